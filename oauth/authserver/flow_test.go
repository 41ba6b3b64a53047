package authserver_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

func isInvalid(err error) bool { return errors.Is(err, oauth.ErrInvalidToken) }

// Requirement: AUTH-14
func TestPublicClientCompletesTheCodeFlow(t *testing.T) {
	w := newEnv(t, nil)
	answer := w.browser().authorize(authorizeQuery())
	if answer.Get("state") != "the state" || answer.Get("iss") != w.issuer {
		t.Errorf("authorization response is %v, want the state and the issuer", answer)
	}
	res := w.post("/token", exchangeForm(answer.Get("code")))
	if res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("Content-Type") != "application/json" {
		t.Errorf("token response has headers %v, want no-store and application/json", res.Header)
	}
	got := w.tokensOf(res)
	if got.Type != "Bearer" || got.Scope != "read write" || got.Expires != 900 || got.Refresh == "" {
		t.Errorf("token response is %+v, want Bearer, both scopes, 900 s and a refresh token", got)
	}
	token, err := w.verify(got.Access)
	if err != nil {
		t.Fatal(err)
	}
	if token.Issuer != w.issuer || token.Subject != "alice" || token.ClientID != publicID ||
		!slices.Equal(token.Audience, []string{resource}) ||
		!slices.Equal(token.Scopes, []string{"read", "write"}) || token.Claims["team"] != "red" ||
		token.Claims[authserver.ClaimName] != "Alice A." {
		t.Errorf("token is %+v, want alice's for the resource, with both scopes and all claims", token)
	}
	if left := time.Until(token.Expires); left <= 14*time.Minute || left > 15*time.Minute {
		t.Errorf("the access token expires in %v, want 15 minutes", left)
	}
	next := w.tokensOf(w.post("/token", refreshForm(got.Refresh, "resource", resource)))
	if next.Refresh == got.Refresh || next.Refresh == "" || next.Scope != "read write" {
		t.Errorf("refresh returned %+v, want a new refresh token and both scopes", next)
	}
	w.wantValid(next.Access, "after refreshing")
}

// Resource servers other than ours rely on this format.
func TestAccessTokensConformToRFC9068(t *testing.T) {
	w := newEnv(t, nil)
	access := w.login().Access
	jws, err := jose.ParseSignedCompact(access, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	if typ := jws.Signatures[0].Protected.ExtraHeaders["typ"]; typ != "at+jwt" {
		t.Errorf("typ is %v, want at+jwt", typ)
	}
	var set jose.JSONWebKeySet
	res := w.browser().get("/jwks")
	if err := json.Unmarshal([]byte(res.body), &set); err != nil {
		t.Fatal(err)
	}
	keys := set.Key(jws.Signatures[0].Protected.KeyID)
	if len(keys) != 1 || !keys[0].IsPublic() {
		t.Fatalf("key set is %s, want one public key with the kid of the token", res.body)
	}
	payload, err := jws.Verify(keys[0])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"iss": w.issuer, "sub": "alice", "aud": resource, "client_id": publicID, "scope": "read write",
	} {
		if claims[name] != want {
			t.Errorf("%s is %v, want %v", name, claims[name], want)
		}
	}
	if claims["jti"] == "" || claims["exp"].(float64)-claims["iat"].(float64) != 900 {
		t.Errorf("claims are %v, want a jti and a lifetime of 900 s", claims)
	}
}

// The paths after an issuer without a path are also the default endpoints that clients of
// 2025-03-26 use if they find no metadata.
//
// Requirement: AUTHB-04, AUTHR-08, AUTHR-09, EAUTH-04
func TestMetadataIsPublished(t *testing.T) {
	for _, path := range []string{"", "/as", "/deep/as"} {
		w := newEnv(t, func(o *authserver.Options) { o.Issuer += path })
		root := strings.TrimSuffix(w.issuer, path)
		res := w.browser().get(root + "/.well-known/oauth-authorization-server" + path)
		m := res.json(t)
		if res.StatusCode != http.StatusOK || res.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("issuer path %q: metadata request: %s %v, want 200 for all origins", path, res.Status, res.Header)
		}
		for name, endpoint := range map[string]string{
			"issuer": "", "authorization_endpoint": "/authorize", "token_endpoint": "/token",
			"registration_endpoint": "/register", "revocation_endpoint": "/revoke",
			"introspection_endpoint": "/introspect", "jwks_uri": "/jwks",
		} {
			if want := w.issuer + endpoint; m[name] != want {
				t.Errorf("issuer path %q: %s is %v, want %s", path, name, m[name], want)
			}
		}
		text, _ := json.Marshal([]any{m["code_challenge_methods_supported"], m["response_types_supported"],
			m["authorization_response_iss_parameter_supported"], m["client_id_metadata_document_supported"],
			m["token_endpoint_auth_methods_supported"], m["token_endpoint_auth_signing_alg_values_supported"]})
		const want = `[["S256"],["code"],true,true,` +
			`["none","client_secret_basic","client_secret_post","private_key_jwt"],` +
			`["ES256","ES384","ES512","EdDSA","PS256","PS384","PS512","RS256","RS384","RS512"]]`
		if string(text) != want {
			t.Errorf("issuer path %q: got %s, want %s", path, text, want)
		}
		// The server issues no ID tokens, so it is not an OpenID provider.
		res = w.browser().get(root + "/.well-known/openid-configuration" + path)
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("issuer path %q: OpenID configuration: %s, want 404", path, res.Status)
		}
		w.wantValid(w.login().Access, "issuer with path "+path)
	}
}

// Clients of 2025-03-26 do not send the resource parameter. They use the default endpoints, as w
// does, if they find no metadata.
//
// Requirement: AUTHB-04
func TestClientsMayOmitTheResource(t *testing.T) {
	w := newEnv(t, nil)
	code := w.code("resource", "", "scope", "")
	got := w.tokensOf(w.post("/token", exchangeForm(code, "resource", "")))
	if got.Scope != "read write" {
		t.Errorf("scope is %q, want all scopes except those with OnRequest", got.Scope)
	}
	w.wantValid(got.Access, "without a resource")

	two := newEnv(t, func(o *authserver.Options) {
		o.Resources = append(o.Resources, authserver.Resource{URL: "https://other.example/"})
	})
	answer := two.browser().redirectQuery(two.browser().get("/authorize?" + authorizeQuery("resource", "").Encode()))
	if answer.Get("error") != "invalid_target" {
		t.Errorf("request without resource, two configured: %v, want invalid_target", answer)
	}
}

// Requirement: AUTHR-16, AUTHR-17, SEC-06
func TestTokensAreForOneResource(t *testing.T) {
	w := newEnv(t, func(o *authserver.Options) {
		o.Resources = append(o.Resources, authserver.Resource{URL: "https://other.example/mcp",
			Scopes: []authserver.Scope{{Name: "read"}}})
	})
	access := w.login().Access
	if _, err := w.server.Verifier("https://other.example/mcp").Verify(t.Context(), access); !isInvalid(err) {
		t.Errorf("verify for the other resource returned %v, want ErrInvalidToken", err)
	}
	w.wantValid(access, "at its resource")
	for _, q := range []string{"https://mcp.example/", "https://mcp.example/mcp/", "http://mcp.example/mcp",
		"https://evil.example/mcp", "mcp", "https://mcp.example/mcp#x"} {
		answer := w.browser().redirectQuery(w.browser().get("/authorize?" + authorizeQuery("resource", q).Encode()))
		if answer.Get("error") != "invalid_target" {
			t.Errorf("resource %s: %v, want invalid_target", q, answer)
		}
	}
	w.code("resource", "HTTPS://MCP.example:443/mcp")
	w.code("resource", "https://mcp.example:/mcp")
}

// Requirement: REG-20
func TestDenialIsReportedToTheClient(t *testing.T) {
	w := newEnv(t, nil)
	b := w.browser()
	_, form := b.consentPage(authorizeQuery())
	answer := b.redirectQuery(b.decide(form, "deny"))
	if answer.Get("error") != "access_denied" || answer.Get("state") != "the state" || answer.Get("iss") != w.issuer ||
		answer.Has("code") {
		t.Errorf("authorization response is %v, want access_denied with state and iss", answer)
	}
	if res := b.decide(form, "allow"); res.StatusCode != http.StatusBadRequest {
		t.Errorf("consent after denial: %s, want 400", res.Status)
	}
}

// Requirement: AUTHB-08
func TestGrantTypesOfConfidentialClients(t *testing.T) {
	w := newEnv(t, nil)
	q := authorizeQuery("client_id", secretID, "redirect_uri", "")
	code := w.browser().authorize(q).Get("code")
	form := exchangeForm(code, "client_id", "", "redirect_uri", "")
	req := w.request(http.MethodPost, "/token", form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(secretID, secret)
	w.tokensOf(w.send(http.DefaultClient, req))

	form = url.Values{"grant_type": {"client_credentials"}, "client_id": {machineID}, "client_secret": {secret},
		"resource": {resource}}
	got := w.tokensOf(w.post("/token", form))
	if got.Refresh != "" || got.Scope != "read" {
		t.Errorf("client credentials returned %+v, want scope read and no refresh token", got)
	}
	token, err := w.verify(got.Access)
	if err != nil || token.Subject != machineID || token.ClientID != machineID {
		t.Errorf("token is %+v, %v; want the client as its subject", token, err)
	}
	form.Set("scope", "write")
	w.post("/token", form).wantError(t, http.StatusBadRequest, "invalid_scope")
	form.Set("client_id", secretID)
	w.post("/token", form).wantError(t, http.StatusBadRequest, "unauthorized_client")
}

func TestRestartKeepsTokensCodesAndClients(t *testing.T) {
	o := options("https://as.example")
	o.Store = authserver.NewMemoryStore()
	server := newServer(t, o)
	w := &env{t, server, o.Issuer, handlerTransport{server, "192.0.2.1"}}
	got, code := w.login(), w.code()
	keys := w.browser().get("/jwks").body
	registered := w.register(`{"redirect_uris":["http://localhost/cb"],"token_endpoint_auth_method":"none"}`)

	server = newServer(t, o)
	w = &env{t, server, o.Issuer, handlerTransport{server, "192.0.2.1"}}
	w.wantValid(got.Access, "after a restart")
	if after := w.browser().get("/jwks").body; after != keys {
		t.Errorf("keys after the restart are %s, want %s", after, keys)
	}
	w.tokensOf(w.post("/token", exchangeForm(code)))
	next := w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
	w.wantValid(next.Access, "refreshed after a restart")
	w.code("client_id", registered["client_id"].(string), "redirect_uri", "http://localhost:99/cb")
}
