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

// keys of the tests: those of RSA take long to make.
var (
	ecKey      = sync.OnceValue(func() *ecdsa.PrivateKey { k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader); return k })
	strangeKey = sync.OnceValue(func() *ecdsa.PrivateKey { k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader); return k })
	rsaKey     = sync.OnceValue(func() *rsa.PrivateKey { k, _ := rsa.GenerateKey(rand.Reader, 2048); return k })
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

// goodClaims are those of a token that is taken.
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

// sign makes a JWT.
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

// issue makes a token as the issuer of the tests does.
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
	return oauth.ResourceMetadata{Resource: resourceURL, AuthorizationServers: []string{issuerURL}, ScopesSupported: []string{"read", "write"}}
}

// echo answers with what it sees of the request.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	who := mcp.PrincipalFrom(r.Context())
	if who == nil {
		fmt.Fprintf(w, "nobody %v %s", r.Header, body)
		return
	}
	fmt.Fprintf(w, "%s|%s|%s|%v|%v|%s", who.Issuer, who.Subject, who.ClientID, who.Scopes, r.Header, body)
})

// protect puts a guard before a handler.
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

// bearer returns the one Bearer challenge of an answer.
func bearer(t testing.TB, w *httptest.ResponseRecorder) params {
	t.Helper()
	for _, c := range oauth.ParseChallenges(w.Result().Header) {
		if c.Is("Bearer") {
			return c.Params
		}
	}
	t.Fatalf("no Bearer challenge in %v", w.Header())
	return nil
}

func TestAUTH05_RequestWithAValidToken(t *testing.T) {
	h := protect(t, echo, nil)
	for name, token := range map[string]string{
		"as it is":               issue(t),
		"several audiences":      issue(t, claims{"aud": []string{"https://other.example", resourceURL}}),
		"AUTHR16 upper case":     issue(t, claims{"aud": "HTTPS://MCP.Example.COM/mcp"}),
		"AUTHR15 trailing slash": issue(t, claims{"aud": resourceURL + "/"}),
		"scopes as a list":       issue(t, claims{"scope": nil, "scp": []string{"read"}}),
		"azp":                    issue(t, claims{"client_id": nil, "azp": "app"}),
		"not before, in time":    issue(t, claims{"nbf": time.Now().Add(20 * time.Second).Unix()}),
		"expired within the skew": issue(t, claims{
			"exp": time.Now().Add(-10 * time.Second).Unix(),
		}),
		"by RSA":       sign(t, jose.PS256, rsaKey(), map[jose.HeaderKey]any{"kid": "rsa"}, goodClaims()),
		"without type": sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec", "typ": "JWT"}, goodClaims()),
		"without kid":  sign(t, jose.ES256, ecKey(), nil, goodClaims()),
	} {
		t.Run(name, func(t *testing.T) {
			w := do(h, "POST", "/mcp", "body", "Authorization: Bearer "+token, "X-Other: 1")
			if w.Code != 200 || w.Body.String() != issuerURL+"|ann|app|[read]|map[X-Other:[1]]|body" {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
	if w := do(h, "POST", "/mcp", "", "Authorization: bEaReR   "+issue(t)); w.Code != 200 {
		t.Errorf("the case of the scheme: got %d", w.Code)
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

// rsaAsSecret signs with the bytes of a public key, which everybody has.
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

func TestAUTH08_InvalidTokens(t *testing.T) {
	now := time.Now()
	embedded := map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: strangeKey().Public()}, "kid": "ec"}
	good := issue(t)
	h := protect(t, echo, nil)
	for name, token := range map[string]string{
		"AUTHR17 another audience":    issue(t, claims{"aud": "https://other.example/mcp"}),
		"AUTHR17 a longer path":       issue(t, claims{"aud": resourceURL + "/other"}),
		"AUTHR17 the origin":          issue(t, claims{"aud": "https://mcp.example.com"}),
		"AUTHR17 another case":        issue(t, claims{"aud": "https://mcp.example.com/MCP"}),
		"AUTHR17 a query":             issue(t, claims{"aud": resourceURL + "?x"}),
		"AUTHR17 two slashes":         issue(t, claims{"aud": resourceURL + "//"}),
		"AUTHR17 look-alike host":     issue(t, claims{"aud": "https://mcp.example.com\u212a/mcp"}),
		"AUTHR17 no audience":         issue(t, claims{"aud": nil}),
		"AUTHR17 an audience of null": issue(t, claims{"aud": []any{nil}}),
		"expired":                     issue(t, claims{"exp": now.Add(-31 * time.Second).Unix()}),
		"no expiry":                   issue(t, claims{"exp": nil}),
		"an expiry that is text":      issue(t, claims{"exp": "9999999999"}),
		"an expiry beyond time":       issue(t, claims{"exp": 1e300}),
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
		"a stranger's key":            sign(t, jose.ES256, strangeKey(), map[jose.HeaderKey]any{"kid": "ec"}, goodClaims()),
		"a stranger's key, embedded":  sign(t, jose.ES256, strangeKey(), embedded, goodClaims()),
		"an unknown kid":              sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "other"}, goodClaims()),
		"the kid of another key":      sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "rsa"}, goodClaims()),
		"changed claims":              tampered(good, goodClaims(claims{"sub": "root"})),
		"no signature":                good[:strings.LastIndexByte(good, '.')+1],
		"crit":                        sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec", "crit": []string{"exp"}}, goodClaims()),
		"an ID token":                 sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec", "typ": "JWT"}, goodClaims(claims{"nonce": "n"})),
		"a logout token":              sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec", "typ": "logout+jwt"}, goodClaims()),
		"an ID-JAG":                   sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec", "typ": "oauth-id-jag+jwt"}, goodClaims()),
		"a claim twice":               sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec"}, strings.Replace(mustJSON(goodClaims()), `"sub":"ann"`, `"sub":"ann","sub":"root"`, 1)),
		"claims that are a list":      sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec"}, `[1]`),
		"claims of great depth":       sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec"}, strings.Replace(mustJSON(goodClaims()), `{`, `{"x":`+strings.Repeat("[", 99)+strings.Repeat("]", 99)+`,`, 1)),
		"bound to a certificate":      issue(t, claims{"cnf": claims{"x5t#S256": "x"}}),
		"bound to a key":              issue(t, claims{"cnf": claims{"jkt": "x"}}),
		"opaque":                      "abcdefghijklmnopqrstuvwxyz",
	} {
		t.Run(name, func(t *testing.T) {
			w := do(h, "POST", "/mcp", "", "Authorization: Bearer "+token)
			got := bearer(t, w)
			if w.Code != 401 || got["error"] != "invalid_token" || got["error_description"] == "" || got["resource_metadata"] != metadataURL {
				t.Errorf("got %d %v %s", w.Code, got, w.Body)
			}
			if strings.Contains(w.Body.String(), token) || strings.Contains(fmt.Sprint(w.Header()), token) {
				t.Errorf("the answer repeats the token")
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

func TestAUTH09_MalformedCredentials(t *testing.T) {
	h, good := protect(t, echo, nil), issue(t)
	for name, tc := range map[string]struct {
		target, body string
		header       []string
	}{
		"AUTH06 token in the query":          {"/mcp?access_token=" + good, "", nil},
		"AUTH06 in the query, escaped":       {"/mcp?a=b&access%5Ftoken=" + good, "", nil},
		"AUTH06 in the query and the header": {"/mcp?access_token=", "", []string{"Authorization: Bearer " + good}},
		"in a form":                          {"/mcp", "a=b&access_token=" + good, []string{"Content-Type: application/x-www-form-urlencoded"}},
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
			if got := bearer(t, w); w.Code != 400 || got["error"] != "invalid_request" {
				t.Errorf("got %d %v", w.Code, got)
			}
		})
	}
	// A form without a token is for the handler.
	w := do(h, "POST", "/mcp", "a=b", "Content-Type: application/x-www-form-urlencoded", "Authorization: Bearer "+good)
	if w.Code != 200 || !strings.HasSuffix(w.Body.String(), "|a=b") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestAUTHR02_ChallengeWithoutToken(t *testing.T) {
	h := protect(t, echo, &oauth.RequireOptions{Scopes: oauth.Scopes{All: []string{"read"}, Any: []string{"write", "admin"}}})
	for name, header := range map[string][]string{"none": nil, "another scheme": {"Authorization: Basic YTpi"}, "DPoP": {"Authorization: DPoP abc"}} {
		t.Run(name, func(t *testing.T) {
			w := do(h, "POST", "/mcp", "", header...)
			want := params{"resource_metadata": metadataURL, "scope": "read write"}
			if got := bearer(t, w); w.Code != 401 || !maps.Equal(got, want) {
				t.Errorf("got %d %v, want %v", w.Code, got, want)
			}
			if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Access-Control-Allow-Origin") != "*" ||
				!strings.Contains(w.Header().Get("Access-Control-Expose-Headers"), "WWW-Authenticate") {
				t.Errorf("got %v", w.Header())
			}
		})
	}
}

func TestAUTHR33_InsufficientScope(t *testing.T) {
	opts := &oauth.RequireOptions{
		Scopes:  oauth.Scopes{All: []string{"read", "list"}, Any: []string{"write", "append"}},
		Implies: oauth.Hierarchy{"admin": {"write"}, "write": {"read"}, "loop": {"loop"}}.Implies,
	}
	h := protect(t, echo, opts)
	for scope, want := range map[string]string{
		"read list write":  "",
		"read list append": "",
		"list admin":       "", // AUTHR-38: admin includes write, and that read
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
			got := bearer(t, w)
			if w.Code != 403 || got["error"] != "insufficient_scope" || got["scope"] != want || got["resource_metadata"] != metadataURL {
				t.Errorf("got %d %v, want scope %q", w.Code, got, want)
			}
		})
	}
}

// What cannot be verified is neither let in nor called invalid, and the client is not told why.
func TestVerifierFailures(t *testing.T) {
	for name, v := range map[string]verifyFunc{
		"an error":     func() (*oauth.Token, error) { return nil, errors.New("the secret database is down") },
		"nothing":      func() (*oauth.Token, error) { return nil, nil },
		"a cancelling": func() (*oauth.Token, error) { return nil, context.Canceled },
	} {
		t.Run(name, func(t *testing.T) {
			w := do(oauth.Require(v, testMetadata(), &oauth.RequireOptions{Logger: discardLog})(echo), "POST", "/mcp", "", "Authorization: Bearer abc")
			if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("WWW-Authenticate") != "" || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
			}
		})
	}
	// The rules hold whatever a verifier lets through.
	for name, token := range map[string]*oauth.Token{
		"nothing in it":    {},
		"no audience":      {Issuer: issuerURL, Subject: "ann"},
		"another issuer":   {Issuer: "https://evil.example", Subject: "ann", Audience: []string{resourceURL}},
		"expired":          {Issuer: issuerURL, Subject: "ann", Audience: []string{resourceURL}, Expires: time.Now().Add(-time.Hour)},
		"not yet":          {Issuer: issuerURL, Subject: "ann", Audience: []string{resourceURL}, NotBefore: time.Now().Add(time.Hour)},
		"control in names": {Issuer: issuerURL, Subject: "ann\x00", Audience: []string{resourceURL}},
	} {
		t.Run(name, func(t *testing.T) {
			v := verifyFunc(func() (*oauth.Token, error) { return token, nil })
			w := do(oauth.Require(v, testMetadata(), &oauth.RequireOptions{Logger: discardLog})(echo), "POST", "/mcp", "", "Authorization: Bearer abc")
			if w.Code != 401 || bearer(t, w)["error"] != "invalid_token" {
				t.Errorf("got %d %v", w.Code, w.Header())
			}
		})
	}
}

type verifyFunc func() (*oauth.Token, error)

func (f verifyFunc) Verify(context.Context, string) (*oauth.Token, error) { return f() }

func TestVerifiersInTurn(t *testing.T) {
	secret := strings.Repeat("s", 30)
	digest := sha256.Sum256([]byte(secret + "2"))
	static := staticVerifier(t,
		oauth.StaticToken{Token: secret, Subject: "robot", Scopes: []string{"read"}},
		oauth.StaticToken{SHA256: hex.EncodeToString(digest[:]), Subject: "hashed"},
		oauth.StaticToken{Token: secret + "3", Subject: "old", Expires: time.Now().Add(-time.Hour)},
	)
	h := oauth.Require(oauth.Verifiers(testVerifier(t), static), testMetadata(), &oauth.RequireOptions{Logger: discardLog})(echo)
	for token, want := range map[string]string{issue(t): issuerURL + "|ann|", secret: "|robot||[read]", secret + "2": "|hashed|"} {
		if w := do(h, "POST", "/mcp", "", "Authorization: Bearer "+token); w.Code != 200 || !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("got %d %s, want %s", w.Code, w.Body, want)
		}
	}
	for _, token := range []string{secret[1:], secret + "4"} {
		if w := do(h, "POST", "/mcp", "", "Authorization: Bearer "+token); w.Code != 401 {
			t.Errorf("got %d", w.Code)
		}
	}
	w := do(h, "POST", "/mcp", "", "Authorization: Bearer "+secret+"3")
	if w.Code != 401 || !strings.Contains(bearer(t, w)["error_description"], "expired") {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
}

// A server with tokens of its configuration has no authorization server to tell of.
func TestStaticTokensNeedNoAuthorizationServer(t *testing.T) {
	secret := strings.Repeat("s", 30)
	v := staticVerifier(t, oauth.StaticToken{Token: secret, Subject: "robot"})
	h := oauth.Require(v, oauth.ResourceMetadata{Resource: "http://localhost:8080/mcp"}, &oauth.RequireOptions{Logger: discardLog})(echo)
	if w := do(h, "POST", "/mcp", "", "Authorization: Bearer "+secret); w.Code != 200 {
		t.Errorf("got %d", w.Code)
	}
	w := do(h, "POST", "/mcp", "")
	if got := w.Header()["Www-Authenticate"]; w.Code != 401 || len(got) != 1 || got[0] != "Bearer" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	for _, path := range []string{"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"} {
		if w := do(h, "GET", path, ""); w.Code != 404 || w.Header().Get("WWW-Authenticate") != "" {
			t.Errorf("metadata that there is none of: got %d %v", w.Code, w.Header())
		}
	}
	if w := do(h, "GET", "/.well-known/oauth-protected-resource/other", ""); w.Code != 401 {
		t.Errorf("what is somebody else's to serve: got %d", w.Code)
	}
}

// Tokens come from the environment of a program, where one may be missing.
func TestInvalidStaticTokens(t *testing.T) {
	good, other := strings.Repeat("a", 30), strings.Repeat("b", 30)
	for name, tokens := range map[string][]oauth.StaticToken{
		"empty":    {{Subject: "a"}},
		"short":    {{Token: "a-short-secret", Subject: "a"}},
		"strange":  {{Token: "a secret with spaces that is long", Subject: "a"}},
		"both":     {{Token: good, SHA256: strings.Repeat("0", 64), Subject: "a"}},
		"no hash":  {{SHA256: "a-short-secret", Subject: "a"}},
		"nobody's": {{Token: good}},
		"twice":    {{Token: good, Subject: "a"}, {Token: other, Subject: "b"}, {Token: good, Subject: "c"}},
		"too many": make([]oauth.StaticToken, 1001),
	} {
		v, err := oauth.NewStaticVerifier(tokens...)
		if v != nil || err == nil || !strings.HasPrefix(err.Error(), "oauth: NewStaticVerifier: ") || strings.Contains(err.Error(), "secret") ||
			strings.Contains(err.Error(), good) {
			t.Errorf("%s: got %v, error %v", name, v, err)
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
	for audience, want := range map[string]int{"api://mcp": 200, "API://mcp": 401, "api://mcp/": 401, resourceURL: 200} {
		if w := do(h, "POST", "/mcp", "", "Authorization: Bearer "+issue(t, claims{"aud": audience})); w.Code != want {
			t.Errorf("%s: got %d, want %d", audience, w.Code, want)
		}
	}
	if w := do(protect(t, echo, &oauth.RequireOptions{Issuers: []string{"https://other.example"}}), "POST", "/mcp", "", "Authorization: Bearer "+issue(t)); w.Code != 401 {
		t.Errorf("an issuer that is not listed: got %d", w.Code)
	}
}

// Browsers ask before they send a token; nothing else comes in without one.
func TestPreflightIsForwarded(t *testing.T) {
	h := protect(t, echo, nil)
	preflight := []string{"Origin: https://app.example", "Access-Control-Request-Method: POST"}
	if w := do(h, "OPTIONS", "/mcp", "", append(preflight, "Authorization: Bearer x")...); w.Code != 200 || strings.Contains(w.Body.String(), "Bearer") || !strings.HasPrefix(w.Body.String(), "nobody") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if w := do(h, "OPTIONS", "/mcp", ""); w.Code != 401 {
		t.Errorf("OPTIONS that is no preflight: got %d", w.Code)
	}
	if w := do(h, "POST", "/mcp", "", preflight...); w.Code != 401 {
		t.Errorf("POST that looks like a preflight: got %d", w.Code)
	}
}

func TestAUTHR18_HandlerDoesNotSeeToken(t *testing.T) {
	token := issue(t)
	var seen *http.Request
	h := protect(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r }), nil)
	r := httptest.NewRequest("POST", "/mcp", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	h.ServeHTTP(httptest.NewRecorder(), r)
	who := mcp.PrincipalFrom(seen.Context())
	if text := fmt.Sprintf("%v %v %#v %v", seen.Header, seen.URL, who, seen.Context()); strings.Contains(text, token) {
		t.Errorf("the handler can see the token: %s", text)
	}
	if who.Claims["sub"] != "ann" || who.Claims["client_id"] != "app" {
		t.Errorf("got claims %v", who.Claims)
	}
	if r.Header.Get("Authorization") == "" {
		t.Error("the request of whoever is outside has changed")
	}
}

// Listening ends with the token, or earlier where it says nothing of its end; a call does not.
func TestStreamsEndWithToken(t *testing.T) {
	secret := strings.Repeat("s", 30)
	forever := verifyFunc(func() (*oauth.Token, error) {
		return &oauth.Token{Issuer: issuerURL, Subject: "ann", Audience: []string{resourceURL}}, nil
	})
	for name, tc := range map[string]struct {
		method, header string
		verifier       oauth.Verifier
		longest        time.Duration
		want           time.Duration
	}{
		"GET":               {"GET", "", testVerifier(t), 0, time.Hour + 30*time.Second},
		"listen":            {"POST", "Mcp-Method: subscriptions/listen", testVerifier(t), 0, time.Hour + 30*time.Second},
		"a call":            {"POST", "Mcp-Method: tools/call", testVerifier(t), time.Minute, 0},
		"a shorter bound":   {"GET", "", testVerifier(t), time.Minute, time.Minute},
		"a longer bound":    {"GET", "", testVerifier(t), 9 * time.Hour, time.Hour + 30*time.Second},
		"no known end":      {"GET", "", forever, 0, time.Hour},
		"no end, own bound": {"GET", "", forever, time.Minute, time.Minute},
		"configured":        {"GET", "", staticVerifier(t, oauth.StaticToken{Token: secret, Subject: "robot"}), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, lasted := time.Now(), time.Duration(0)
				var cause error
				h := oauth.Require(tc.verifier, testMetadata(), &oauth.RequireOptions{Logger: discardLog, MaxStream: tc.longest})(
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
				if lasted != tc.want || tc.want > 0 && (!errors.Is(cause, mcp.ErrClosed) || errors.Is(cause, mcp.ErrDisconnected)) {
					t.Errorf("lasted %v until %v, want %v", lasted, cause, tc.want)
				}
			})
		})
	}
}

func TestRequirePanicsOnInvalidArguments(t *testing.T) {
	v := testVerifier(t)
	for name, f := range map[string]func(){
		"no verifier": func() { oauth.Require(nil, testMetadata(), nil) },
		"AUTHR01 no authorization server": func() {
			oauth.Require(v, oauth.ResourceMetadata{Resource: resourceURL}, nil)
		},
		"no resource": func() { oauth.Require(v, oauth.ResourceMetadata{AuthorizationServers: []string{issuerURL}}, nil) },
		"plain http": func() {
			oauth.Require(v, oauth.ResourceMetadata{Resource: "http://mcp.example.com", AuthorizationServers: []string{issuerURL}}, nil)
		},
		"a plain issuer": func() {
			oauth.Require(v, oauth.ResourceMetadata{Resource: resourceURL, AuthorizationServers: []string{"http://auth.example.com"}}, nil)
		},
		"a fragment": func() {
			oauth.Require(v, oauth.ResourceMetadata{Resource: resourceURL + "#x", AuthorizationServers: []string{issuerURL}}, nil)
		},
		"a user": func() {
			oauth.Require(v, oauth.ResourceMetadata{Resource: "https://a:b@mcp.example.com", AuthorizationServers: []string{issuerURL}}, nil)
		},
		"a scope with a space": func() { oauth.Require(v, testMetadata(), &oauth.RequireOptions{Scopes: oauth.AllOf("a b")}) },
		"an injected scope":    func() { oauth.Require(v, testMetadata(), &oauth.RequireOptions{Scopes: oauth.AnyOf("a\", x=\"")}) },
		"AUTHR41 offline_access": func() {
			oauth.Require(v, testMetadata(), &oauth.RequireOptions{Scopes: oauth.AllOf("offline_access")})
		},
		"AUTHR41 offline_access in the metadata": func() {
			oauth.NewMetadataHandler(oauth.ResourceMetadata{Resource: resourceURL, AuthorizationServers: []string{issuerURL}, ScopesSupported: []string{"offline_access"}})
		},
		"a secret algorithm": func() { oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{Algorithms: []string{"HS256"}}) },
		"no algorithm":       func() { oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{Algorithms: []string{"none"}}) },
		"no issuer":          func() { oauth.NewJWTVerifier("", nil) },
		"no keys":            func() { oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{JWKS: []byte(`{"keys":[]}`)}) },
		"no credentials":     func() { oauth.NewIntrospectionVerifier(issuerURL, nil) },
		"scope rules":        func() { oauth.RequireScopes(&oauth.ScopeRules{Tools: map[string]oauth.Scopes{"x": oauth.AllOf("")}}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if value := recover(); value == nil || !strings.HasPrefix(fmt.Sprint(value), "oauth: ") {
					t.Errorf("got panic %v", value)
				}
			}()
			f()
		})
	}
	oauth.Require(v, oauth.ResourceMetadata{Resource: "http://[::1]:80/mcp", AuthorizationServers: []string{"http://localhost:9000"}}, nil)
	oauth.Require(v, oauth.ResourceMetadata{Resource: "http://server/mcp", AuthorizationServers: []string{issuerURL}}, &oauth.RequireOptions{InsecureHTTP: true})
}

// sha256Text gives a digest as it stands in JWTs.
func sha256Text(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
