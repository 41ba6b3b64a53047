package authserver_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const (
	idpIssuer    = "https://idp.example"
	enterpriseID = "enterprise"
	grantJWT     = "urn:ietf:params:oauth:grant-type:jwt-bearer"
)

// An assertionEnv has an identity provider whose ID-JAGs the server accepts.
type assertionEnv struct {
	*env
	key *ecdsa.PrivateKey
}

func newAssertionEnv(t *testing.T, change func(*authserver.AssertionIssuer)) *assertionEnv {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issuer := authserver.AssertionIssuer{Issuer: idpIssuer, Keys: []crypto.PublicKey{key.Public()}}
	if change != nil {
		change(&issuer)
	}
	return &assertionEnv{newInProcessEnv(t, func(o *authserver.Options) {
		o.AssertionIssuers = []authserver.AssertionIssuer{issuer}
		o.Clients = append(o.Clients, authserver.Client{ID: enterpriseID, SecretHash: secretHash, Grants: []string{grantJWT}})
	}), key}
}

// jag returns an ID-JAG with some claims changed. A nil value removes a claim.
func (w *assertionEnv) jag(typ string, change map[string]any) string {
	w.t.Helper()
	now := time.Now()
	claims := map[string]any{
		"iss": idpIssuer, "sub": "ann", "aud": w.issuer, "client_id": enterpriseID, "resource": resource,
		"jti": rand.Text(), "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(), "scope": "read write",
	}
	maps.Copy(claims, change)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: w.key},
		(&jose.SignerOptions{}).WithType(jose.ContentType(typ)))
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

const typeJAG = "oauth-id-jag+jwt"

func assertionForm(jag string) url.Values {
	return url.Values{"grant_type": {grantJWT}, "assertion": {jag}, "client_id": {enterpriseID},
		"client_secret": {secret}}
}

// Requirement: EAUTH-11
func TestIDJAGsAreExchangedForTokens(t *testing.T) {
	w := newAssertionEnv(t, nil)
	types, _ := w.browser().get("/.well-known/oauth-authorization-server").json(t)["grant_types_supported"].([]any)
	if len(types) != 4 {
		t.Errorf("grant_types_supported is %v, want four", types)
	}
	jag := w.jag(typeJAG, nil)
	got := w.tokensOf(w.post("/token", assertionForm(jag)))
	token, err := w.verify(got.Access)
	if err != nil || token.Subject != idpIssuer+"|ann" || token.ClientID != enterpriseID || got.Scope != "read write" ||
		got.Refresh != "" {
		t.Errorf("token %+v, %v, scope %q, refresh token %q; want ann's token without a refresh token", token, err,
			got.Scope, got.Refresh)
	}
	w.post("/token", assertionForm(jag)).wantError(t, http.StatusBadRequest, "invalid_grant") // used before
	narrow := assertionForm(w.jag(typeJAG, nil))
	narrow.Set("scope", "read")
	if got := w.tokensOf(w.post("/token", narrow)); got.Scope != "read" {
		t.Errorf("scope is %q, want read", got.Scope)
	}
	p := newProver(t)
	bound := w.tokensOf(w.postProven(p, "/token", assertionForm(w.jag(typeJAG, nil))))
	if token, err := w.verify(bound.Access); err != nil || token.KeyThumbprint != p.Thumbprint() {
		t.Errorf("with a proof: %+v, %v; want a bound token", token, err)
	}
}

// Requirement: EAUTH-11
func TestInvalidIDJAGsAreRefused(t *testing.T) {
	w := newAssertionEnv(t, nil)
	now := time.Now()
	for name, jag := range map[string]string{
		"another typ":           w.jag("JWT", nil),
		"an access token":       w.jag("at+jwt", nil),
		"another audience":      w.jag(typeJAG, map[string]any{"aud": "https://other.example"}),
		"two audiences":         w.jag(typeJAG, map[string]any{"aud": []string{w.issuer, "https://other.example"}}),
		"another client":        w.jag(typeJAG, map[string]any{"client_id": machineID}),
		"no client":             w.jag(typeJAG, map[string]any{"client_id": nil}),
		"unknown issuer":        w.jag(typeJAG, map[string]any{"iss": "https://other.example"}),
		"no subject":            w.jag(typeJAG, map[string]any{"sub": nil}),
		"no resource":           w.jag(typeJAG, map[string]any{"resource": nil}),
		"no jti":                w.jag(typeJAG, map[string]any{"jti": nil}),
		"expired":               w.jag(typeJAG, map[string]any{"exp": now.Add(-time.Second).Unix()}),
		"no expiry":             w.jag(typeJAG, map[string]any{"exp": nil}),
		"expiry in two hours":   w.jag(typeJAG, map[string]any{"exp": now.Add(2 * time.Hour).Unix()}),
		"from the future":       w.jag(typeJAG, map[string]any{"iat": now.Add(time.Hour).Unix()}),
		"key of another issuer": newAssertionEnv(t, nil).jag(typeJAG, nil),
		"malformed":             "x.y.z",
	} {
		t.Log(name)
		w.post("/token", assertionForm(jag)).wantError(t, http.StatusBadRequest, "invalid_grant")
	}
	w.post("/token", assertionForm(w.jag(typeJAG, map[string]any{"resource": "https://other.example/mcp"}))).
		wantError(t, http.StatusBadRequest, "invalid_target")
	form := assertionForm(w.jag(typeJAG, map[string]any{"client_id": machineID}))
	form.Set("client_id", machineID) // not registered for the grant type
	w.post("/token", form).wantError(t, http.StatusBadRequest, "unauthorized_client")
	form = assertionForm(w.jag(typeJAG, nil))
	form.Set("client_secret", "wrong")
	w.post("/token", form).wantError(t, http.StatusUnauthorized, "invalid_client")
}

func TestIDJAGSubjectsCanBeMappedAndRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAssertionEnv(t, func(i *authserver.AssertionIssuer) {
			i.Subject = func(_ context.Context, claims map[string]any) (authserver.Subject, error) {
				if claims["sub"] != "ann" {
					return authserver.Subject{}, authserver.ErrUserRefused
				}
				return authserver.Subject{ID: "employee-1", Scopes: []string{"read"}}, nil
			}
		})
		got := w.tokensOf(w.post("/token", assertionForm(w.jag(typeJAG, nil))))
		if token, err := w.verify(got.Access); err != nil || token.Subject != "employee-1" || got.Scope != "read" {
			t.Errorf("token %+v, %v, scope %q; want employee-1 with read", token, err, got.Scope)
		}
		w.post("/token", assertionForm(w.jag(typeJAG, map[string]any{"sub": "bob"}))).
			wantError(t, http.StatusBadRequest, "invalid_grant")
		time.Sleep(time.Hour)
		w.wantInvalid(got.Access, "after its lifetime")
	})
}

// The client half and the server half of enterprise-managed authorization, from discovery to a call,
// with bearer and with bound tokens. No browser is involved.
//
// Requirement: EAUTH-10, EAUTH-11
func TestEnterpriseGrantFromDiscoveryToCall(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	m := newMount(t, "/mcp", func(o *authserver.Options) {
		o.Clients = []authserver.Client{{ID: enterpriseID, SecretHash: secretHash, Grants: []string{grantJWT}}}
		o.AssertionIssuers = []authserver.AssertionIssuer{{Issuer: idpIssuer, Keys: []crypto.PublicKey{key.Public()}}}
	})
	provider := &assertionEnv{m.env, key}
	exchange := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.PostFormValue("audience"); got != m.issuer {
			t.Errorf("audience of the token exchange is %q, want %q", got, m.issuer)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": provider.jag(typeJAG, map[string]any{"resource": r.PostFormValue("resource")}),
			"token_type":   "N_A", "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag", "expires_in": 300,
		})
	}))
	t.Cleanup(exchange.Close)
	for name, proofs := range map[string]*oauthclient.DPoPOptions{"bearer": nil, "DPoP": {}} {
		t.Run(name, func(t *testing.T) {
			m.requests() // discard those of the other client
			m.whoami(&oauthclient.TransportOptions{
				DPoP:   proofs,
				Client: oauthclient.Identity{ID: enterpriseID, Secret: secret, Issuer: m.issuer},
				Grant: oauthclient.NewEnterpriseGrant(&oauthclient.EnterpriseOptions{
					TokenEndpoint: exchange.URL, ClientID: "at-the-idp",
					Subject: func(context.Context) (string, string, error) {
						return "the-id-token", oauthclient.TokenTypeID, nil
					},
				}),
			}, idpIssuer+"|ann "+idpIssuer+"|ann")
			paths, form := m.requests()
			if form.Get("grant_type") != grantJWT || slices.Contains(paths, "/authorize") {
				t.Errorf("token request is %v, paths %q; want the grant type %s and no /authorize", form, paths, grantJWT)
			}
		})
	}
}
