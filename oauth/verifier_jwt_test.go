package oauth_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/oauth"
)

func TestAlgorithmsAreAnAllowList(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := jwks(t, map[string]any{"ed": public, "rsa": rsaKey().Public(), "ec": ecKey().Public()})
	byAlg := map[jose.SignatureAlgorithm]string{
		jose.EdDSA: sign(t, jose.EdDSA, private, map[jose.HeaderKey]any{"kid": "ed"}, goodClaims()),
		jose.ES256: issue(t),
	}
	for _, alg := range []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384,
		jose.PS512} {
		byAlg[alg] = sign(t, alg, rsaKey(), map[jose.HeaderKey]any{"kid": "rsa"}, goodClaims())
	}
	all := oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{JWKS: keys})
	one := oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{JWKS: keys, Algorithms: []string{"PS256", "ES256"}})
	for alg, token := range byAlg {
		wantVerified(t, all, token)
		if alg == jose.PS256 || alg == jose.ES256 {
			wantVerified(t, one, token)
		} else {
			wantRefused(t, one, token)
		}
	}
}

func TestTypeOfTokens(t *testing.T) {
	keys := jwks(t, map[string]any{"ec": ecKey().Public()})
	strict := oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{JWKS: keys})
	anyType := oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{JWKS: keys, InsecureAnyType: true})
	for typ, want := range map[string]struct{ strict, anyType bool }{
		"at+jwt": {true, true}, "AT+JWT": {true, true}, "application/at+jwt": {true, true}, "JWT": {false, true},
		"": {false, true}, "logout+jwt": {false, false},
	} {
		token := sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec", "typ": typ}, goodClaims())
		if _, err := strict.Verify(t.Context(), token); (err == nil) != want.strict {
			t.Errorf("typ %q: got error %v, want success %t", typ, err, want.strict)
		}
		if _, err := anyType.Verify(t.Context(), token); (err == nil) != want.anyType {
			t.Errorf("typ %q with InsecureAnyType: got error %v, want success %t", typ, err, want.anyType)
		}
	}
	idToken := sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec", "typ": "JWT"}, goodClaims(claims{"nonce": "n"}))
	wantRefused(t, anyType, idToken)
}

// A token with a cnf that cannot be checked is refused, also beside a jkt.
func TestUnsupportedTokenBindings(t *testing.T) {
	v := testVerifier(t)
	wantVerified(t, v, issue(t, claims{"cnf": claims{"jkt": "x"}}))
	for _, cnf := range []any{
		claims{"x5t#S256": "x"}, claims{"jkt": "x",
			"x5t#S256": "x"}, claims{"jkt": 1}, claims{"jkt": ""}, claims{"jkt": nil}, "x",
	} {
		wantRefused(t, v, issue(t, claims{"cnf": cnf}))
	}
}

// The cache of verified tokens does not extend their lifetime.
func TestVerifiedTokensExpire(t *testing.T) {
	keys := jwks(t, map[string]any{"ec": ecKey().Public()})
	synctest.Test(t, func(t *testing.T) {
		v := oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{JWKS: keys, MaxCached: 2})
		token := issue(t)
		for i := range 10 {
			wantVerified(t, v, issue(t, claims{"jti": i})) // more than are cached
			wantVerified(t, v, token)
		}
		time.Sleep(time.Hour + 29*time.Second)
		wantVerified(t, v, token)
		time.Sleep(time.Second)
		if _, err := v.Verify(t.Context(), token); !errors.Is(err, oauth.ErrTokenExpired) {
			t.Errorf("got error %v, want ErrTokenExpired", err)
		}
	})
}

// Only signed tokens are valid: a text that the verifier accepts has the header and the claims of
// the signed token.
func FuzzJWT(f *testing.F) {
	good := issue(f)
	f.Add(good)
	f.Add(unsigned(`{"alg":"none"}`, goodClaims()))
	f.Add(rsaAsSecret(f, "pem"))
	f.Add(tampered(good, goodClaims(claims{"sub": "root"})))
	f.Add(sign(f, jose.ES256, foreignKey(), map[jose.HeaderKey]any{"kid": "ec"}, goodClaims(claims{"sub": "root"})))
	f.Add(strings.Replace(good, ".", "..", 1))
	f.Add("." + good)
	v := testVerifier(f)
	signed := strings.Split(good, ".")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := v.Verify(t.Context(), text)
		if err != nil {
			if !errors.Is(err, oauth.ErrInvalidToken) {
				t.Errorf("got error %v, want ErrInvalidToken", err)
			}
			return
		}
		parts := strings.Split(text, ".")
		if len(parts) != 3 || parts[0] != signed[0] || parts[1] != signed[1] || token.Subject != "ann" {
			t.Errorf("%q was verified as a token of %q", text, token.Subject)
		}
	})
}

// The fields of a verified token are well-formed, whatever claims were signed.
func FuzzClaims(f *testing.F) {
	f.Add(mustJSON(goodClaims()))
	f.Add(mustJSON(goodClaims(claims{"aud": []any{1, "a", nil}, "scope": []string{"a b", "c"},
		"cnf": claims{"jkt": "x"}, "exp": 1e10})))
	f.Add(`{"iss":"https://auth.example.com","sub":"\u0000","exp":1e99}`)
	v := testVerifier(f)
	f.Fuzz(func(t *testing.T, payload string) {
		token, err := v.Verify(t.Context(), sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": "ec"}, payload))
		if err != nil {
			return
		}
		var reference struct {
			Issuer string `json:"iss"`
		}
		if json.Unmarshal([]byte(payload), &reference) != nil || token.Issuer != issuerURL || token.Subject == "" ||
			token.Expires.IsZero() ||
			strings.ContainsRune(token.Subject+token.ClientID, 0) || time.Until(token.Expires) < -time.Minute {
			t.Errorf("%s was verified as %+v", payload, token)
		}
		for _, scope := range token.Scopes {
			if scope == "" || strings.ContainsAny(scope, " \t\n") {
				t.Errorf("got the scope %q, want no white space", scope)
			}
		}
	})
}

// A bound token needs a proof, and a proof needs a token that is bound to its key.
func TestDPoPAtTheResource(t *testing.T) {
	key := ecKey()
	jwk := jose.JSONWebKey{Key: key.Public()}
	sum, _ := jwk.Thumbprint(crypto.SHA256)
	thumbprint := base64.RawURLEncoding.EncodeToString(sum)
	proof := func(token, method, target string) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key},
			(&jose.SignerOptions{EmbedJWK: true}).WithType("dpop+jwt"))
		if err != nil {
			t.Fatal(err)
		}
		payload := mustJSON(claims{"jti": fmt.Sprint(time.Now().UnixNano()), "htm": method, "htu": target,
			"iat": time.Now().Unix(), "ath": sha256Text(token)})
		signed, err := signer.Sign([]byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		compact, _ := signed.CompactSerialize()
		return compact
	}
	bound, plain := issue(t, claims{"cnf": claims{"jkt": thumbprint}}), issue(t)
	both := protect(t, echo, &oauth.RequireOptions{DPoP: &oauth.ProofOptions{Algorithms: []string{"ES256", "EdDSA"}}})
	only := protect(t, echo, &oauth.RequireOptions{DPoP: &oauth.ProofOptions{Required: true}})
	send := func(h http.Handler, scheme, token, proof string) *httptest.ResponseRecorder {
		header := []string{"Authorization: " + scheme + " " + token}
		if proof != "" {
			header = append(header, "DPoP: "+proof)
		}
		return do(h, "POST", "https://internal:1234/mcp?x=y", "", header...)
	}
	for name, tc := range map[string]struct {
		h             http.Handler
		scheme, token string
		proof         string
		want          int
		code          string
	}{
		"with a proof":           {both, "DPoP", bound, proof(bound, "POST", resourceURL), 200, ""},
		"with a proof, required": {only, "dpop", bound, proof(bound, "POST", resourceURL), 200, ""},
		"as a bearer token":      {both, "Bearer", bound, proof(bound, "POST", resourceURL), 401, "invalid_token"},
		"without a proof":        {both, "DPoP", bound, "", 401, "invalid_dpop_proof"},
		"a proof of another URL": {both, "DPoP", bound, proof(bound, "POST", "https://internal:1234/mcp"), 401,
			"invalid_dpop_proof"},
		"a proof of another token": {both, "DPoP", bound, proof(plain, "POST", resourceURL), 401,
			"invalid_dpop_proof"},
		"a token that is not bound":   {both, "DPoP", plain, proof(plain, "POST", resourceURL), 401, "invalid_token"},
		"a bearer token":              {both, "Bearer", plain, "", 200, ""},
		"a bearer token, not allowed": {only, "Bearer", plain, "", 401, "invalid_token"},
	} {
		t.Run(name, func(t *testing.T) {
			w := send(tc.h, tc.scheme, tc.token, tc.proof)
			if w.Code != tc.want {
				t.Fatalf("got %d %v, want %d", w.Code, w.Header(), tc.want)
			}
			if tc.want == 200 {
				if strings.Contains(w.Body.String(), "Dpop") || strings.Contains(w.Body.String(), tc.token) {
					t.Errorf("the handler sees the token or the proof: %s", w.Body)
				}
				return
			}
			codes := ""
			for _, c := range oauth.ParseChallenges(w.Header()) {
				codes += c.Params["error"]
				if c.Is("DPoP") && c.Params["algs"] == "" || c.Params["resource_metadata"] != metadataURL {
					t.Errorf("got challenge %v, want algs and resource_metadata", c)
				}
			}
			if codes != tc.code {
				t.Errorf("got error codes %q, want %q", codes, tc.code)
			}
		})
	}
	used := proof(bound, "POST", resourceURL)
	if first, second := send(both, "DPoP", bound, used), send(both, "DPoP", bound, used); first.Code != 200 ||
		second.Code != 401 {
		t.Errorf("same proof twice: got %d and %d, want 200 and 401", first.Code, second.Code)
	}
	w := do(both, "GET", rootMetadata, "")
	if !strings.Contains(w.Body.String(), `"dpop_signing_alg_values_supported":["ES256","EdDSA"]`) {
		t.Errorf("got metadata %s, want the proof algorithms", w.Body)
	}
	nonces := protect(t, echo, &oauth.RequireOptions{DPoP: &oauth.ProofOptions{Nonces: true}})
	if w := send(nonces, "DPoP", bound, proof(bound, "POST", resourceURL)); w.Code != 401 ||
		w.Header().Get("DPoP-Nonce") == "" ||
		!strings.Contains(fmt.Sprint(w.Header()["Www-Authenticate"]), "use_dpop_nonce") {
		t.Errorf("no nonce: got %d %v, want 401 use_dpop_nonce with a nonce", w.Code, w.Header())
	}
}
