package oauth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	resourceURL = "https://mcp.example.com/mcp"
	metadataURL = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
	issuerURL   = "https://auth.example.com"
)

var discardLog = slog.New(slog.DiscardHandler)

// The keys of all tests are generated once.
var (
	ecKey = sync.OnceValue(func() *ecdsa.PrivateKey {
		k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		return k
	})
	foreignKey = sync.OnceValue(func() *ecdsa.PrivateKey {
		k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		return k
	})
	rsaKey = sync.OnceValue(func() *rsa.PrivateKey { k, _ := rsa.GenerateKey(rand.Reader, 2048); return k })
)

// jwks returns a set of public keys by their ids.
func jwks(t testing.TB, keys map[string]any) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for id, key := range keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key, KeyID: id, Use: "sig"})
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

type claims map[string]any

// goodClaims returns the claims of a valid token, with changes. A nil value removes a claim.
func goodClaims(changes ...claims) claims {
	now := time.Now()
	c := claims{
		"iss": issuerURL, "sub": "ann", "aud": resourceURL, "client_id": "app", "scope": "read",
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	for _, change := range changes {
		for name, value := range change {
			if value == nil {
				delete(c, name)
				continue
			}
			c[name] = value
		}
	}
	return c
}

// sign returns a JWT. payload is its text or is encoded as JSON.
func sign(t testing.TB, alg jose.SignatureAlgorithm, key any, header map[jose.HeaderKey]any, payload any) string {
	t.Helper()
	opts := &jose.SignerOptions{}
	opts.WithType("at+jwt")
	for name, value := range header {
		opts.WithHeader(name, value)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, opts)
	if err != nil {
		t.Fatal(err)
	}
	text, ok := payload.(string)
	if !ok {
		encoded, err := json.Marshal(payload)
		if err != nil {
			t.Fatal(err)
		}
		text = string(encoded)
	}
	signed, err := signer.Sign([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	compact, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return compact
}

// issue returns a valid token with changes to its claims.
func issue(t testing.TB, changes ...claims) string {
	t.Helper()
	return sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec"}, goodClaims(changes...))
}

func testVerifier(t testing.TB) *oauth.JWTVerifier {
	return oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{
		JWKS: jwks(t, map[string]any{"ec": ecKey().Public(), "rsa": rsaKey().Public()}),
	})
}

func testMetadata() oauth.ResourceMetadata {
	return oauth.ResourceMetadata{Resource: resourceURL, AuthorizationServers: []string{issuerURL},
		ScopesSupported: []string{"read", "write"}}
}

// echo responds with the principal, header and body of the request.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p := mcp.PrincipalFrom(r.Context())
	if p == nil {
		fmt.Fprintf(w, "no principal %v %s", r.Header, body)
		return
	}
	fmt.Fprintf(w, "%s|%s|%s|%v|%v|%s", p.Issuer, p.Subject, p.ClientID, p.Scopes, r.Header, body)
})

// protect returns next behind Require.
func protect(t testing.TB, next http.Handler, opts *oauth.RequireOptions) http.Handler {
	var o oauth.RequireOptions
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = discardLog
	}
	return oauth.Require(testVerifier(t), testMetadata(), &o)(next)
}

func do(h http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// bearerChallenge returns the parameters of the Bearer challenge of a response.
func bearerChallenge(t testing.TB, w *httptest.ResponseRecorder) params {
	t.Helper()
	for _, c := range oauth.ParseChallenges(w.Result().Header) {
		if c.Is("Bearer") {
			return c.Params
		}
	}
	t.Fatalf("no Bearer challenge in %v", w.Header())
	return nil
}

// Requirement: AUTH-07
func TestValidTokens(t *testing.T) {
	h := protect(t, echo, nil)
	for name, token := range map[string]string{
		"unchanged":         issue(t),
		"several audiences": issue(t, claims{"aud": []string{"https://other.example", resourceURL}}),
		// Requirement: AUTHR-16
		"upper case":                     issue(t, claims{"aud": "HTTPS://MCP.Example.COM/mcp"}),
		"audience with a trailing slash": issue(t, claims{"aud": resourceURL + "/"}),
		"scopes as a list":               issue(t, claims{"scope": nil, "scp": []string{"read"}}),
		"azp":                            issue(t, claims{"client_id": nil, "azp": "app"}),
		"nbf within the skew":            issue(t, claims{"nbf": time.Now().Add(20 * time.Second).Unix()}),
		"expired within the skew": issue(t, claims{
			"exp": time.Now().Add(-10 * time.Second).Unix(),
		}),
		"by RSA":      sign(t, jose.PS256, rsaKey(), map[jose.HeaderKey]any{"kid": "rsa"}, goodClaims()),
		"without kid": sign(t, jose.ES256, ecKey(), nil, goodClaims()),
	} {
		t.Run(name, func(t *testing.T) {
			w := do(h, "POST", "/mcp", "body", "Authorization: Bearer "+token, "X-Other: 1")
			if w.Code != 200 || w.Body.String() != issuerURL+"|ann|app|[read]|map[X-Other:[1]]|body" {
				t.Errorf("got %d %s, want 200 with the principal and without the token", w.Code, w.Body)
			}
		})
	}
	if w := do(h, "POST", "/mcp", "", "Authorization: bEaReR   "+issue(t)); w.Code != 200 {
		t.Errorf("scheme in mixed case: got %d, want 200", w.Code)
	}
}

// tampered returns a token with another payload and the same signature.
func tampered(token string, payload claims) string {
	parts := strings.Split(token, ".")
	text, _ := json.Marshal(payload)
	parts[1] = base64.RawURLEncoding.EncodeToString(text)
	return strings.Join(parts, ".")
}

func unsigned(header string, payload claims) string {
	text, _ := json.Marshal(payload)
	return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(text) + "."
}

// rsaAsSecret signs with HMAC, with the bytes of the public RSA key as the secret.
func rsaAsSecret(t testing.TB, form string) string {
	der, err := x509.MarshalPKIXPublicKey(rsaKey().Public())
	if err != nil {
		t.Fatal(err)
	}
	secret := der
	if form == "pem" {
		secret = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	}
	return sign(t, jose.HS256, secret, map[jose.HeaderKey]any{"kid": "rsa"}, goodClaims())
}

// Requirement: AUTH-07, AUTH-08, SEC-06
func TestInvalidTokens(t *testing.T) {
	now := time.Now()
	embedded := map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: foreignKey().Public()}, "kid": "ec"}
	good := issue(t)
	h := protect(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the request reached the handler")
	}), nil)
	for name, token := range map[string]string{
		// Requirement: AUTHR-17
		"another audience": issue(t, claims{"aud": "https://other.example/mcp"}),
		// Requirement: AUTHR-17
		"a longer path": issue(t, claims{"aud": resourceURL + "/other"}),
		// Requirement: AUTHR-17
		"the origin": issue(t, claims{"aud": "https://mcp.example.com"}),
		// Requirement: AUTHR-17
		"another case": issue(t, claims{"aud": "https://mcp.example.com/MCP"}),
		// Requirement: AUTHR-17
		"a query": issue(t, claims{"aud": resourceURL + "?x"}),
		// Requirement: AUTHR-17
		"two slashes": issue(t, claims{"aud": resourceURL + "//"}),
		// Requirement: AUTHR-17
		"look-alike host": issue(t, claims{"aud": "https://mcp.example.com\u212a/mcp"}),
		// Requirement: AUTHR-17
		"no audience": issue(t, claims{"aud": nil}),
		// Requirement: AUTHR-17
		"an audience of null":         issue(t, claims{"aud": []any{nil}}),
		"expired":                     issue(t, claims{"exp": now.Add(-31 * time.Second).Unix()}),
		"no expiry":                   issue(t, claims{"exp": nil}),
		"an expiry that is text":      issue(t, claims{"exp": "9999999999"}),
		"an expiry out of range":      issue(t, claims{"exp": 1e300}),
		"not valid yet":               issue(t, claims{"nbf": now.Add(90 * time.Second).Unix()}),
		"issued in the future":        issue(t, claims{"iat": now.Add(90 * time.Second).Unix()}),
		"a foreign issuer":            issue(t, claims{"iss": "https://evil.example"}),
		"an issuer with a slash":      issue(t, claims{"iss": issuerURL + "/"}),
		"no issuer":                   issue(t, claims{"iss": nil}),
		"no subject":                  issue(t, claims{"sub": nil, "client_id": nil}),
		"NUL in the subject":          issue(t, claims{"sub": "ann\x00app"}),
		"a line break in the client":  issue(t, claims{"client_id": "a\nb"}),
		"a huge subject":              issue(t, claims{"sub": strings.Repeat("x", 3000)}),
		"a subject that is no text":   issue(t, claims{"sub": 1}),
		"alg none":                    unsigned(`{"alg":"none","typ":"at+jwt"}`, goodClaims()),
		"alg None":                    unsigned(`{"alg":"None","typ":"at+jwt"}`, goodClaims()),
		"no alg":                      unsigned(`{"typ":"at+jwt"}`, goodClaims()),
		"alg twice":                   unsigned(`{"alg":"none","alg":"ES256"}`, goodClaims()),
		"HS256 with the RSA key, DER": rsaAsSecret(t, "der"),
		"HS256 with the RSA key, PEM": rsaAsSecret(t, "pem"),
		"a foreign key": sign(t, jose.ES256, foreignKey(), map[jose.HeaderKey]any{"kid": "ec"},
			goodClaims()),
		"a foreign key, embedded": sign(t, jose.ES256, foreignKey(), embedded, goodClaims()),
		"an unknown kid": sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "other"},
			goodClaims()),
		"the kid of another key": sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "rsa"},
			goodClaims()),
		"changed claims": tampered(good, goodClaims(claims{"sub": "root"})),
		"no signature":   good[:strings.LastIndexByte(good, '.')+1],
		"crit": sign(t, jose.ES256, ecKey(),
			map[jose.HeaderKey]any{"kid": "ec", "crit": []string{"exp"}}, goodClaims()),
		"an ID token": sign(t, jose.ES256, ecKey(),
			map[jose.HeaderKey]any{"kid": "ec", "typ": "JWT"}, goodClaims(claims{"nonce": "n"})),
		"a logout token": sign(t, jose.ES256, ecKey(),
			map[jose.HeaderKey]any{"kid": "ec", "typ": "logout+jwt"}, goodClaims()),
		"an ID-JAG": sign(t, jose.ES256, ecKey(),
			map[jose.HeaderKey]any{"kid": "ec", "typ": "oauth-id-jag+jwt"}, goodClaims()),
		"a claim twice": sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec"},
			strings.Replace(mustJSON(goodClaims()), `"sub":"ann"`, `"sub":"ann","sub":"root"`, 1)),
		"claims that are a list": sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec"}, `[1]`),
		"claims of great depth": sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec"},
			strings.Replace(mustJSON(goodClaims()), `{`,
				`{"x":`+strings.Repeat("[", 99)+strings.Repeat("]", 99)+`,`, 1)),
		"bound to a certificate": issue(t, claims{"cnf": claims{"x5t#S256": "x"}}),
		"bound to a key":         issue(t, claims{"cnf": claims{"jkt": "x"}}),
		"opaque":                 "abcdefghijklmnopqrstuvwxyz",
	} {
		t.Run(name, func(t *testing.T) {
			w := do(h, "POST", "/mcp", "", "Authorization: Bearer "+token)
			got := bearerChallenge(t, w)
			if w.Code != 401 || got["error"] != "invalid_token" || got["error_description"] == "" ||
				got["resource_metadata"] != metadataURL {
				t.Errorf("got %d %v %s, want 401 invalid_token", w.Code, got, w.Body)
			}
			if strings.Contains(w.Body.String(), token) || strings.Contains(fmt.Sprint(w.Header()), token) {
				t.Error("the response contains the token")
			}
		})
	}
}

func mustJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Requirement: AUTH-09
func TestMalformedCredentials(t *testing.T) {
	h, good := protect(t, echo, nil), issue(t)
	for name, tc := range map[string]struct {
		target, body string
		header       []string
	}{
		"token in the query":          {"/mcp?access_token=" + good, "", nil},
		"in the query, escaped":       {"/mcp?a=b&access%5Ftoken=" + good, "", nil},
		"in the query and the header": {"/mcp?access_token=", "", []string{"Authorization: Bearer " + good}},
		"in a form and the header": {"/mcp", "access_token=" + good, []string{
			"Content-Type: application/x-www-form-urlencoded; charset=utf-8", "Authorization: Bearer " + good,
		}},
		"two headers":     {"/mcp", "", []string{"Authorization: Bearer " + good, "Authorization: Bearer " + good}},
		"two in a header": {"/mcp", "", []string{"Authorization: Bearer " + good + ", Bearer " + good}},
		"no token":        {"/mcp", "", []string{"Authorization: Bearer"}},
		"two words":       {"/mcp", "", []string{"Authorization: Bearer " + good + " x"}},
		"quoted":          {"/mcp", "", []string{`Authorization: Bearer "` + good + `"`}},
		"huge":            {"/mcp", "", []string{"Authorization: Bearer " + strings.Repeat("a", 17<<10)}},
	} {
		t.Run(name, func(t *testing.T) {
			w := do(h, "POST", tc.target, tc.body, tc.header...)
			if got := bearerChallenge(t, w); w.Code != 400 || got["error"] != "invalid_request" {
				t.Errorf("got %d %v, want 400 invalid_request", w.Code, got)
			}
		})
	}
	// A form without a token reaches the handler.
	w := do(h, "POST", "/mcp", "a=b", "Content-Type: application/x-www-form-urlencoded", "Authorization: Bearer "+good)
	if w.Code != 200 || !strings.HasSuffix(w.Body.String(), "|a=b") {
		t.Errorf("form without a token: got %d %s, want 200 and the form", w.Code, w.Body)
	}
}

// TestFormIsReadOnlyWithAValidToken sends forms whose bodies must not be read, because the header has
// no valid token.
func TestFormIsReadOnlyWithAValidToken(t *testing.T) {
	h, good := protect(t, echo, nil), issue(t)
	expired := issue(t, claims{"exp": time.Now().Add(-time.Hour).Unix()})
	for name, tc := range map[string]struct {
		header string
		want   int
		read   bool
	}{
		"none":           {"", 401, false},
		"another scheme": {"Basic YTpi", 401, false},
		"malformed":      {"Bearer a b", 400, false},
		"two":            {"Bearer a, Bearer b", 400, false},
		"with colons":    {"Bearer user:grant:secret", 401, false}, // the form of Cloudflare's provider
		"expired":        {"Bearer " + expired, 401, false},
		"valid":          {"Bearer " + good, 400, true},
	} {
		t.Run(name, func(t *testing.T) {
			body := &countingReader{r: strings.NewReader("access_token=" + good)}
			r := httptest.NewRequest("POST", "/mcp", body)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if tc.header != "" {
				r.Header.Set("Authorization", tc.header)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tc.want || body.reads > 0 != tc.read {
				t.Errorf("got %d after %d reads of the body, want %d and a read: %t", w.Code, body.reads, tc.want, tc.read)
			}
		})
	}
}

type countingReader struct {
	r     io.Reader
	reads int
}

func (c *countingReader) Read(p []byte) (int, error) {
	c.reads++
	return c.r.Read(p)
}

// Requirement: AUTHR-02, AUTHR-03, AUTHR-30
func TestChallengeWithoutToken(t *testing.T) {
	h := protect(t, echo, &oauth.RequireOptions{Scopes: oauth.Scopes{All: []string{"read"},
		Any: []string{"write", "admin"}}})
	for name, header := range map[string][]string{"none": nil, "another scheme": {"Authorization: Basic YTpi"},
		"DPoP": {"Authorization: DPoP abc"}} {
		t.Run(name, func(t *testing.T) {
			w := do(h, "POST", "/mcp", "", header...)
			want := params{"resource_metadata": metadataURL, "scope": "read write"}
			if got := bearerChallenge(t, w); w.Code != 401 || !maps.Equal(got, want) {
				t.Errorf("got %d %v, want %v", w.Code, got, want)
			}
			if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Access-Control-Allow-Origin") != "*" ||
				!strings.Contains(w.Header().Get("Access-Control-Expose-Headers"), "WWW-Authenticate") {
				t.Errorf("got header %v, want no-store and readable across origins", w.Header())
			}
		})
	}
}

// Requirement: AUTH-09, AUTHR-33, AUTHR-38
func TestInsufficientScope(t *testing.T) {
	opts := &oauth.RequireOptions{
		Scopes:  oauth.Scopes{All: []string{"read", "list"}, Any: []string{"write", "append"}},
		Implies: oauth.Hierarchy{"admin": {"write"}, "write": {"read"}, "loop": {"loop"}}.Implies,
	}
	h := protect(t, echo, opts)
	for scope, want := range map[string]string{
		"read list write":  "",
		"read list append": "",
		"list admin":       "", // admin implies write, and write implies read
		"read list":        "read list write",
		"append read":      "read list append",
		"loop":             "read list write",
		"":                 "read list write",
		"READ LIST WRITE":  "read list write",
	} {
		t.Run(scope, func(t *testing.T) {
			w := do(h, "POST", "/mcp", "", "Authorization: Bearer "+issue(t, claims{"scope": scope}))
			if want == "" {
				if w.Code != 200 {
					t.Errorf("got %d %v", w.Code, w.Header())
				}
				return
			}
			got := bearerChallenge(t, w)
			if w.Code != 403 || got["error"] != "insufficient_scope" || got["scope"] != want ||
				got["resource_metadata"] != metadataURL {
				t.Errorf("got %d %v, want scope %q", w.Code, got, want)
			}
		})
	}
}

// If the verifier fails, the response is 503 and does not contain the error.
func TestVerifierFailures(t *testing.T) {
	for name, v := range map[string]verifyFunc{
		"an error":  func() (*oauth.Token, error) { return nil, errors.New("the secret database is down") },
		"nothing":   func() (*oauth.Token, error) { return nil, nil },
		"cancelled": func() (*oauth.Token, error) { return nil, context.Canceled },
	} {
		t.Run(name, func(t *testing.T) {
			w := do(oauth.Require(v, testMetadata(), &oauth.RequireOptions{Logger: discardLog})(echo), "POST", "/mcp",
				"", "Authorization: Bearer abc")
			if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("WWW-Authenticate") != "" ||
				strings.Contains(w.Body.String(), "secret") {
				t.Errorf("got %d %v %s, want 503 with Retry-After and without the error", w.Code, w.Header(), w.Body)
			}
		})
	}
	// Require checks the returned token itself.
	for name, token := range map[string]*oauth.Token{
		"empty token":    {},
		"no audience":    {Issuer: issuerURL, Subject: "ann"},
		"another issuer": {Issuer: "https://evil.example", Subject: "ann", Audience: []string{resourceURL}},
		"expired": {Issuer: issuerURL, Subject: "ann", Audience: []string{resourceURL},
			Expires: time.Now().Add(-time.Hour)},
		"not valid yet": {Issuer: issuerURL, Subject: "ann", Audience: []string{resourceURL},
			NotBefore: time.Now().Add(time.Hour)},
		"control in names": {Issuer: issuerURL, Subject: "ann\x00", Audience: []string{resourceURL}},
	} {
		t.Run(name, func(t *testing.T) {
			v := verifyFunc(func() (*oauth.Token, error) { return token, nil })
			w := do(oauth.Require(v, testMetadata(), &oauth.RequireOptions{Logger: discardLog})(echo), "POST", "/mcp",
				"", "Authorization: Bearer abc")
			if w.Code != 401 || bearerChallenge(t, w)["error"] != "invalid_token" {
				t.Errorf("got %d %v, want 401 invalid_token", w.Code, w.Header())
			}
		})
	}
}

type verifyFunc func() (*oauth.Token, error)

func (f verifyFunc) Verify(context.Context, string) (*oauth.Token, error) { return f() }

func TestVerifiersAreTriedInOrder(t *testing.T) {
	secret := strings.Repeat("s", 30)
	digest := sha256.Sum256([]byte(secret + "2"))
	static := staticVerifier(t,
		oauth.StaticToken{Token: secret, Subject: "robot", Scopes: []string{"read"}},
		oauth.StaticToken{SHA256: hex.EncodeToString(digest[:]), Subject: "hashed"},
		oauth.StaticToken{Token: secret + "3", Subject: "old", Expires: time.Now().Add(-time.Hour)},
	)
	h := oauth.Require(oauth.Verifiers(testVerifier(t), static), testMetadata(),
		&oauth.RequireOptions{Logger: discardLog})(echo)
	for token, want := range map[string]string{issue(t): issuerURL + "|ann|", secret: "|robot||[read]",
		secret + "2": "|hashed|"} {
		if w := do(h, "POST", "/mcp", "", "Authorization: Bearer "+token); w.Code != 200 ||
			!strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("got %d %s, want %s", w.Code, w.Body, want)
		}
	}
	for _, token := range []string{secret[1:], secret + "4"} {
		if w := do(h, "POST", "/mcp", "", "Authorization: Bearer "+token); w.Code != 401 {
			t.Errorf("unknown token: got %d, want 401", w.Code)
		}
	}
	w := do(h, "POST", "/mcp", "", "Authorization: Bearer "+secret+"3")
	if w.Code != 401 || !strings.Contains(bearerChallenge(t, w)["error_description"], "expired") {
		t.Errorf("expired token: got %d %v, want 401 that says so", w.Code, w.Header())
	}
}

func TestStaticTokensNeedNoAuthorizationServer(t *testing.T) {
	secret := strings.Repeat("s", 30)
	v := staticVerifier(t, oauth.StaticToken{Token: secret, Subject: "robot"})
	h := oauth.Require(v, oauth.ResourceMetadata{Resource: "http://localhost:8080/mcp"},
		&oauth.RequireOptions{Logger: discardLog})(echo)
	if w := do(h, "POST", "/mcp", "", "Authorization: Bearer "+secret); w.Code != 200 {
		t.Errorf("valid token: got %d, want 200", w.Code)
	}
	w := do(h, "POST", "/mcp", "")
	if got := w.Header()["Www-Authenticate"]; w.Code != 401 || len(got) != 1 || got[0] != "Bearer" {
		t.Errorf("no token: got %d %v, want 401 with the challenge Bearer", w.Code, w.Header())
	}
	for _, path := range []string{"/.well-known/oauth-protected-resource/mcp",
		"/.well-known/oauth-protected-resource"} {
		if w := do(h, "GET", path, ""); w.Code != 404 || w.Header().Get("WWW-Authenticate") != "" {
			t.Errorf("%s: got %d %v, want 404 without a challenge", path, w.Code, w.Header())
		}
	}
	if w := do(h, "GET", "/.well-known/oauth-protected-resource/other", ""); w.Code != 401 {
		t.Errorf("metadata path of another resource: got %d, want 401", w.Code)
	}
}

func TestInvalidStaticTokens(t *testing.T) {
	good, other := strings.Repeat("a", 30), strings.Repeat("b", 30)
	for name, tokens := range map[string][]oauth.StaticToken{
		"empty":    {{Subject: "a"}},
		"short":    {{Token: "a-short-secret", Subject: "a"}},
		"spaces":   {{Token: "a secret with spaces that is long", Subject: "a"}},
		"both":     {{Token: good, SHA256: strings.Repeat("0", 64), Subject: "a"}},
		"bad hash": {{SHA256: "a-short-secret", Subject: "a"}},
		"no name":  {{Token: good}},
		"twice":    {{Token: good, Subject: "a"}, {Token: other, Subject: "b"}, {Token: good, Subject: "c"}},
		"too many": make([]oauth.StaticToken, 1001),
	} {
		v, err := oauth.NewStaticVerifier(tokens...)
		if v != nil || err == nil || !strings.HasPrefix(err.Error(), "oauth: NewStaticVerifier: ") ||
			strings.Contains(err.Error(), "secret") ||
			strings.Contains(err.Error(), good) {
			t.Errorf("%s: got %v, error %v; want an error without the token", name, v, err)
		}
	}
}

func staticVerifier(t testing.TB, tokens ...oauth.StaticToken) *oauth.StaticVerifier {
	t.Helper()
	v, err := oauth.NewStaticVerifier(tokens...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestConfiguredAudiences(t *testing.T) {
	h := protect(t, echo, &oauth.RequireOptions{Audiences: []string{"api://mcp"}, Issuers: []string{issuerURL}})
	for audience, want := range map[string]int{"api://mcp": 200, "API://mcp": 401, "api://mcp/": 401,
		resourceURL: 200} {
		if w := do(h, "POST", "/mcp", "", "Authorization: Bearer "+issue(t, claims{"aud": audience})); w.Code != want {
			t.Errorf("%s: got %d, want %d", audience, w.Code, want)
		}
	}
	w := do(protect(t, echo, &oauth.RequireOptions{Issuers: []string{"https://other.example"}}), "POST", "/mcp", "",
		"Authorization: Bearer "+issue(t))
	if w.Code != 401 {
		t.Errorf("issuer not in RequireOptions.Issuers: got %d, want 401", w.Code)
	}
}

// A CORS preflight carries no token and reaches the handler; no other request does.
func TestPreflightIsForwarded(t *testing.T) {
	h := protect(t, echo, nil)
	preflight := []string{"Origin: https://app.example", "Access-Control-Request-Method: POST"}
	if w := do(h, "OPTIONS", "/mcp", "", append(preflight, "Authorization: Bearer x")...); w.Code != 200 ||
		strings.Contains(w.Body.String(), "Bearer") || !strings.HasPrefix(w.Body.String(), "no principal") {
		t.Errorf("preflight: got %d %s, want 200 without a principal", w.Code, w.Body)
	}
	if w := do(h, "OPTIONS", "/mcp", ""); w.Code != 401 {
		t.Errorf("OPTIONS without preflight headers: got %d, want 401", w.Code)
	}
	if w := do(h, "POST", "/mcp", "", preflight...); w.Code != 401 {
		t.Errorf("POST with preflight headers: got %d, want 401", w.Code)
	}
}

// Requirement: AUTHR-18
func TestHandlerDoesNotSeeToken(t *testing.T) {
	token := issue(t)
	var seen *http.Request
	h := protect(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r }), nil)
	r := httptest.NewRequest("POST", "/mcp", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	h.ServeHTTP(httptest.NewRecorder(), r)
	p := mcp.PrincipalFrom(seen.Context())
	if text := fmt.Sprintf("%v %v %#v %v", seen.Header, seen.URL, p, seen.Context()); strings.Contains(text, token) {
		t.Errorf("the handler sees the token: %s", text)
	}
	if p.Claims["sub"] != "ann" || p.Claims["client_id"] != "app" {
		t.Errorf("got claims %v, want sub ann and client_id app", p.Claims)
	}
	if r.Header.Get("Authorization") == "" {
		t.Error("the caller's request was modified")
	}
}

// A stream ends when its token expires or at MaxStream; a call is not cut off.
func TestStreamsEndWithToken(t *testing.T) {
	secret := strings.Repeat("s", 30)
	noExpiry := verifyFunc(func() (*oauth.Token, error) {
		return &oauth.Token{Issuer: issuerURL, Subject: "ann", Audience: []string{resourceURL}}, nil
	})
	for name, tc := range map[string]struct {
		method, header string
		verifier       oauth.Verifier
		longest        time.Duration
		want           time.Duration
	}{
		"GET": {"GET", "", testVerifier(t), 0, time.Hour + 30*time.Second},
		"listen": {"POST", "Mcp-Method: subscriptions/listen", testVerifier(t), 0,
			time.Hour + 30*time.Second},
		"a call":               {"POST", "Mcp-Method: tools/call", testVerifier(t), time.Minute, 0},
		"shorter MaxStream":    {"GET", "", testVerifier(t), time.Minute, time.Minute},
		"longer MaxStream":     {"GET", "", testVerifier(t), 9 * time.Hour, time.Hour + 30*time.Second},
		"no expiry":            {"GET", "", noExpiry, 0, time.Hour},
		"no expiry, MaxStream": {"GET", "", noExpiry, time.Minute, time.Minute},
		"static token": {"GET", "",
			staticVerifier(t, oauth.StaticToken{Token: secret, Subject: "robot"}), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, lasted := time.Now(), time.Duration(0)
				var cause error
				h := oauth.Require(tc.verifier, testMetadata(),
					&oauth.RequireOptions{Logger: discardLog, MaxStream: tc.longest})(
					http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						select {
						case <-r.Context().Done():
							lasted, cause = time.Since(begin), context.Cause(r.Context())
						case <-time.After(24 * time.Hour):
						}
					}))
				token := issue(t)
				if _, ok := tc.verifier.(*oauth.StaticVerifier); ok {
					token = secret
				}
				header := []string{"Authorization: Bearer " + token}
				if tc.header != "" {
					header = append(header, tc.header)
				}
				do(h, tc.method, "/mcp", "", header...)
				if lasted != tc.want || tc.want > 0 &&
					(!errors.Is(cause, mcp.ErrClosed) || errors.Is(cause, mcp.ErrDisconnected)) {
					t.Errorf("stream lasted %v and ended with %v, want %v", lasted, cause, tc.want)
				}
			})
		})
	}
}

func TestRequirePanicsOnInvalidArguments(t *testing.T) {
	v := testVerifier(t)
	for name, f := range map[string]func(){
		"no verifier": func() { oauth.Require(nil, testMetadata(), nil) },
		"no authorization server": func() { // Requirement: AUTHR-01
			oauth.Require(v, oauth.ResourceMetadata{Resource: resourceURL}, nil)
		},
		"no resource": func() {
			oauth.Require(v, oauth.ResourceMetadata{AuthorizationServers: []string{issuerURL}}, nil)
		},
		"plain http": func() {
			oauth.Require(v, oauth.ResourceMetadata{Resource: "http://mcp.example.com",
				AuthorizationServers: []string{issuerURL}}, nil)
		},
		"issuer with http": func() {
			oauth.Require(v, oauth.ResourceMetadata{Resource: resourceURL,
				AuthorizationServers: []string{"http://auth.example.com"}}, nil)
		},
		"an empty port": func() {
			oauth.Require(v, oauth.ResourceMetadata{Resource: "https://mcp.example.com:/mcp",
				AuthorizationServers: []string{issuerURL}}, nil)
		},
		"issuer with an empty port": func() {
			oauth.Require(v, oauth.ResourceMetadata{Resource: resourceURL,
				AuthorizationServers: []string{"https://auth.example.com:"}}, nil)
		},
		"a fragment": func() {
			oauth.Require(v, oauth.ResourceMetadata{Resource: resourceURL + "#x",
				AuthorizationServers: []string{issuerURL}}, nil)
		},
		"a user": func() {
			oauth.Require(v, oauth.ResourceMetadata{Resource: "https://a:b@mcp.example.com",
				AuthorizationServers: []string{issuerURL}}, nil)
		},
		"a scope with a space": func() {
			oauth.Require(v, testMetadata(), &oauth.RequireOptions{Scopes: oauth.AllOf("a b")})
		},
		"an injected scope": func() {
			oauth.Require(v, testMetadata(), &oauth.RequireOptions{Scopes: oauth.AnyOf("a\", x=\"")})
		},
		"offline_access": func() { // Requirement: AUTHR-41
			oauth.Require(v, testMetadata(), &oauth.RequireOptions{Scopes: oauth.AllOf("offline_access")})
		},
		"offline_access in the metadata": func() { // Requirement: AUTHR-41
			oauth.NewMetadataHandler(oauth.ResourceMetadata{Resource: resourceURL,
				AuthorizationServers: []string{issuerURL}, ScopesSupported: []string{"offline_access"}})
		},
		"HMAC algorithm": func() { oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{Algorithms: []string{"HS256"}}) },
		"algorithm none": func() { oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{Algorithms: []string{"none"}}) },
		"no issuer":      func() { oauth.NewJWTVerifier("", nil) },
		"no keys":        func() { oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{JWKS: []byte(`{"keys":[]}`)}) },
		"no credentials": func() { oauth.NewIntrospectionVerifier(issuerURL, nil) },
		"scope rules":    func() { oauth.RequireScopes(&oauth.ScopeRules{Tools: map[string]oauth.Scopes{"x": oauth.AllOf("")}}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if value := recover(); value == nil || !strings.HasPrefix(fmt.Sprint(value), "oauth: ") {
					t.Errorf("got panic %v, want one that begins with \"oauth: \"", value)
				}
			}()
			f()
		})
	}
	oauth.Require(v, oauth.ResourceMetadata{Resource: "http://[::1]:80/mcp",
		AuthorizationServers: []string{"http://localhost:9000"}}, nil)
	oauth.Require(v, oauth.ResourceMetadata{Resource: "http://server/mcp", AuthorizationServers: []string{issuerURL}},
		&oauth.RequireOptions{InsecureHTTP: true})
}

// sha256Text returns the base64url SHA-256 digest of a text.
func sha256Text(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
