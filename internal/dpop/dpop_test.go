package dpop

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

const (
	proofURL   = "https://mcp.example.com/mcp"
	proofToken = "a-token"
)

var proofTime = time.Unix(1_790_000_000, 0)

func testProver(t testing.TB, opts *ProverOptions) *Prover {
	t.Helper()
	p, err := NewProver(opts)
	if err != nil {
		t.Fatal(err)
	}
	p.now = func() time.Time { return proofTime }
	return p
}

func testVerifier(t testing.TB, opts *VerifierOptions) *Verifier {
	t.Helper()
	v, err := NewVerifier(opts)
	if err != nil {
		t.Fatal(err)
	}
	v.now = func() time.Time { return proofTime }
	return v
}

func mustURL(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// requestWithProof returns a request with a token and a proof for it.
func requestWithProof(t testing.TB, p *Prover, method, target string) *http.Request {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	if err := p.Authorize(r, proofToken); err != nil {
		t.Fatal(err)
	}
	return r
}

// signProof signs claims with any header. typ and jwk may be empty.
func signProof(t testing.TB, key any, algorithm jose.SignatureAlgorithm, typ string, jwk any,
	claims map[string]any) string {
	t.Helper()
	opts := &jose.SignerOptions{}
	if typ != "" {
		opts.WithType(jose.ContentType(typ))
	}
	if jwk != nil {
		opts.WithHeader("jwk", jwk)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, opts)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The hash of the token of RFC 9449 section 7.1, and the thumbprint of the key of section 4.1,
// which is jkt in section 6.1.
func TestExamplesOfRFC9449(t *testing.T) {
	const (
		token = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"
		ath   = "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"
		jwk   = `{"kty":"EC","x":"l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",` +
			`"y":"9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA","crv":"P-256"}`
		jkt = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
	)
	if got := tokenHash(token); got != ath {
		t.Errorf("got ath %s, want %s", got, ath)
	}
	var key jose.JSONWebKey
	if err := key.UnmarshalJSON([]byte(jwk)); err != nil {
		t.Fatal(err)
	}
	sum, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	if got := base64.RawURLEncoding.EncodeToString(sum); got != jkt {
		t.Errorf("got jkt %s, want %s", got, jkt)
	}
}

func TestProofWithEveryKeyType(t *testing.T) {
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{
		"generated": nil, "P-384": p384, "Ed25519": edwards, "RSA": rsaKey, "unknown type": hardwareKey{p384},
	} {
		t.Run(name, func(t *testing.T) {
			p := testProver(t, &ProverOptions{Key: key})
			r := requestWithProof(t, p, "POST", proofURL+"?query=1#fragment")
			if got, want := r.Header.Get("Authorization"), "DPoP "+proofToken; got != want {
				t.Errorf("got Authorization %q, want %q", got, want)
			}
			nonce, err := testVerifier(t, nil).Verify(r, mustURL(t, proofURL), proofToken, p.Thumbprint())
			if err != nil || nonce != "" {
				t.Errorf("Verify = %q, %v; want no nonce and no error", nonce, err)
			}
		})
	}
}

// A hardwareKey is a crypto.Signer of an unknown type.
type hardwareKey struct{ crypto.Signer }

func TestProverRefusesWeakKeys(t *testing.T) {
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewProver(&ProverOptions{Key: p224}); err == nil {
		t.Error("a key on P-224 was accepted")
	}
	if _, err := NewProver(&ProverOptions{Key: hardwareKey{weakRSAKey{}}}); err == nil {
		t.Error("an RSA key of 1024 bits was accepted")
	}
}

// A weakRSAKey has an RSA public key of 1024 bits.
type weakRSAKey struct{ crypto.Signer }

func (weakRSAKey) Public() crypto.PublicKey {
	n := make([]byte, 128)
	n[0] = 0x80
	var key jose.JSONWebKey
	_ = key.UnmarshalJSON([]byte(`{"kty":"RSA","e":"AQAB","n":"` + base64.RawURLEncoding.EncodeToString(n) + `"}`))
	return key.Key
}

// Each proof differs from a valid one in one place.
func TestInvalidProofs(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := testProver(t, &ProverOptions{Key: key})
	other := testProver(t, nil)
	public := jose.JSONWebKey{Key: key.Public()}
	good := map[string]any{
		"jti": "1", "htm": "POST", "htu": proofURL, "iat": proofTime.Unix(), "ath": tokenHash(proofToken),
	}
	with := func(name string, value any) map[string]any {
		c := maps.Clone(good)
		if c[name] = value; value == nil {
			delete(c, name)
		}
		return c
	}
	sign := func(claims map[string]any) string {
		return signProof(t, key, jose.ES256, typeProof, public, claims)
	}
	at := func(d time.Duration) map[string]any { return with("iat", proofTime.Add(d).Unix()) }
	secret := []byte(strings.Repeat("k", 32))
	whole := sign(good)
	parts := strings.Split(whole, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"dpop+jwt"}`))
	for _, tt := range []struct {
		name  string
		proof string
		ok    bool
	}{
		{"valid", whole, true},
		{"additional claim", sign(with("more", []string{"x"})), true},
		{"two minutes old", sign(at(-2 * time.Minute)), true},
		{"one minute ahead", sign(at(time.Minute)), true},
		{"fractional time", sign(with("iat", float64(proofTime.Unix())-0.5)), true},
		{"scheme, host and port in other forms", sign(with("htu", "HTTPS://MCP.example.com:443/mcp")), true},
		{"an empty port", sign(with("htu", "https://mcp.example.com:/mcp")), true},

		{"older than two minutes", sign(at(-2*time.Minute - time.Second)), false},
		{"more than a minute ahead", sign(at(time.Minute + time.Second)), false},
		{"no time", sign(with("iat", nil)), false},
		{"a time that is not a number", sign(with("iat", "now")), false},
		{"a time out of range", sign(with("iat", 1e300)), false},
		{"a negative time out of range", sign(with("iat", -1e300)), false},
		{"no jti", sign(with("jti", nil)), false},
		{"a huge jti", sign(with("jti", strings.Repeat("j", maxJWTID+1))), false},
		{"a jti that is no text", sign(with("jti", 7)), false},
		{"another method", sign(with("htm", "GET")), false},
		{"the method in lower case", sign(with("htm", "post")), false},
		{"no method", sign(with("htm", nil)), false},
		{"another path", sign(with("htu", proofURL+"/")), false},
		{"another host", sign(with("htu", "https://evil.example.com/mcp")), false},
		{"another scheme", sign(with("htu", "http://mcp.example.com/mcp")), false},
		{"another port", sign(with("htu", "https://mcp.example.com:8443/mcp")), false},
		{"user-info", sign(with("htu", "https://u@mcp.example.com/mcp")), false},
		{"a query", sign(with("htu", proofURL+"?a")), false},
		{"a fragment", sign(with("htu", proofURL+"#a")), false},
		{"no URL", sign(with("htu", nil)), false},
		{"another token", sign(with("ath", tokenHash("b-token"))), false},
		{"no token", sign(with("ath", nil)), false},
		{"the token itself", sign(with("ath", proofToken)), false},
		{"another key", signProof(t, other.testKey(t), jose.ES256, typeProof,
			jose.JSONWebKey{Key: other.testKey(t).Public()}, good), false},
		{"the key in the header did not sign",
			signProof(t, other.testKey(t), jose.ES256, typeProof, public, good), false},
		{"no key in the header", signProof(t, key, jose.ES256, typeProof, nil, good), false},
		{"a symmetric key", signProof(t, secret, jose.HS256, typeProof, jose.JSONWebKey{Key: secret}, good), false},
		{"no typ", signProof(t, key, jose.ES256, "", public, good), false},
		{"typ of other JWTs", signProof(t, key, jose.ES256, "JWT", public, good), false},
		{"not signed", none + "." + parts[1] + ".", false},
		{"signature cut", parts[0] + "." + parts[1] + ".", false},
		{"claims replaced", parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{}`)) + "." +
			parts[2], false},
		{"duplicate claim", signText(t, key, public,
			`{"jti":"1","htm":"GET","htm":"POST","htu":"`+proofURL+`"}`), false},
		{"deeply nested", sign(with("more", [][][][]int{{{{}}}})), false},
		{"not a JWT", "proof", false},
		{"empty", "", false},
		{"too long", sign(with("more", strings.Repeat("A", maxProof))), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("POST", proofURL, nil)
			r.Header.Set(Header, tt.proof)
			_, err := testVerifier(t, nil).Verify(r, mustURL(t, proofURL), proofToken, p.Thumbprint())
			if (err == nil) != tt.ok {
				t.Fatalf("Verify: got error %v, want success %t", err, tt.ok)
			}
			var fault *ProofError
			if err != nil && (!errors.As(err, &fault) || fault.Code != oauthwire.InvalidDPoPProof) {
				t.Errorf("got error %v, want %s", err, oauthwire.InvalidDPoPProof)
			}
		})
	}
}

// testKey returns a fixed key that differs from that of the test.
func (p *Prover) testKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), []byte(strings.Repeat("s", 32)))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func signText(t *testing.T, key *ecdsa.PrivateKey, public jose.JSONWebKey, payload string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key},
		(&jose.SignerOptions{}).WithType(typeProof).WithHeader("jwk", public))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestProofWithPrivateKeyInIt(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := testProver(t, &ProverOptions{Key: key})
	r := httptest.NewRequest("POST", proofURL, nil)
	r.Header.Set(Header, signProof(t, key, jose.ES256, typeProof, jose.JSONWebKey{Key: key}, map[string]any{
		"jti": "1", "htm": "POST", "htu": proofURL, "iat": proofTime.Unix(), "ath": tokenHash(proofToken),
	}))
	if _, err := testVerifier(t, nil).Verify(r, mustURL(t, proofURL), proofToken, p.Thumbprint()); err == nil {
		t.Error("a proof with the private key was accepted")
	}
}

func TestProofNeedsBoundToken(t *testing.T) {
	p := testProver(t, nil)
	for _, thumbprint := range []string{"", testProver(t, nil).Thumbprint()} {
		_, err := testVerifier(t, nil).Verify(requestWithProof(t, p, "POST", proofURL), mustURL(t, proofURL),
			proofToken, thumbprint)
		if err == nil {
			t.Errorf("a proof was accepted for a token that is bound to %q", thumbprint)
		}
	}
}

func TestOneProofPerRequest(t *testing.T) {
	p, v := testProver(t, nil), testVerifier(t, nil)
	r := requestWithProof(t, p, "POST", proofURL)
	r.Header.Add(Header, r.Header.Get(Header))
	if _, err := v.Verify(r, mustURL(t, proofURL), proofToken, p.Thumbprint()); err == nil {
		t.Error("a request with two proofs was accepted")
	}
	r.Header.Del(Header)
	if _, err := v.Verify(r, mustURL(t, proofURL), proofToken, p.Thumbprint()); err == nil {
		t.Error("a request without a proof was accepted")
	}
}

// A proof is accepted once while it is valid. Proofs of other keys with the same jti are accepted.
func TestProofIsUsedOnce(t *testing.T) {
	v := testVerifier(t, nil)
	now := proofTime
	v.now = func() time.Time { return now }
	p := testProver(t, nil)
	r := requestWithProof(t, p, "POST", proofURL)
	verify := func() error {
		_, err := v.Verify(r, mustURL(t, proofURL), proofToken, p.Thumbprint())
		return err
	}
	now = proofTime.Add(-clockSkew) // the earliest time at which it is valid
	if err := verify(); err != nil {
		t.Fatal(err)
	}
	for now = now.Add(time.Second); now.Before(proofTime.Add(2 * ProofValidity)); now = now.Add(time.Second) {
		if err := verify(); err == nil {
			t.Fatalf("the proof was accepted again %v after it was made", now.Sub(proofTime))
		}
		// Proofs of other keys rotate the replay cache.
		q := testProverAt(t, now)
		_, err := v.Verify(requestWithProof(t, q, "POST", proofURL), mustURL(t, proofURL), proofToken, q.Thumbprint())
		if err != nil {
			t.Fatal(err)
		}
	}
}

func testProverAt(t *testing.T, now time.Time) *Prover {
	p := testProver(t, nil)
	p.now = func() time.Time { return now }
	return p
}

// One key may fill half of the replay cache. Expired proofs are removed.
func TestOneKeyCannotFillReplayCache(t *testing.T) {
	m := replayCache{max: 10}
	for i := range 5 {
		if err := m.add("greedy", fmt.Sprint(i), proofTime); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.add("greedy", "6", proofTime); !errors.Is(err, ErrTooManyProofs) {
		t.Errorf("sixth proof of the same key: got error %v, want ErrTooManyProofs", err)
	}
	for i := range 5 {
		if err := m.add(fmt.Sprint("modest", i), "1", proofTime); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.add("late", "1", proofTime); !errors.Is(err, ErrTooManyProofs) {
		t.Errorf("eleventh proof: got error %v, want ErrTooManyProofs", err)
	}
	later := proofTime.Add(ProofValidity)
	if err := m.add("late", "1", later); err != nil {
		t.Errorf("proof of the next generation: got error %v", err)
	}
	if err := m.add("greedy", "1", later); err == nil || errors.Is(err, ErrTooManyProofs) {
		t.Errorf("repeated proof of the last generation: got error %v, want a replay error", err)
	}
	if m.add("late", "2", later.Add(3*ProofValidity)); len(m.current)+len(m.previous) != 1 {
		t.Errorf("got %d cached proofs after a long time, want 1", len(m.current)+len(m.previous))
	}
}

// A nonce is accepted during its lifetime and the next one, and only by the verifier that made it.
func TestProofNonces(t *testing.T) {
	v := testVerifier(t, &VerifierOptions{Nonces: true})
	p := testProver(t, nil)
	now := proofTime.Truncate(nonceLifetime)
	clock := func() time.Time { return now }
	v.now, p.now = clock, clock
	target := mustURL(t, proofURL)
	try := func() (string, error) {
		return v.Verify(requestWithProof(t, p, "POST", proofURL), target, proofToken, p.Thumbprint())
	}
	nonce, err := try()
	var fault *ProofError
	if !errors.As(err, &fault) || fault.Code != oauthwire.UseDPoPNonce || !isNonce(nonce) {
		t.Fatalf("without a nonce: got nonce %q, error %v; want use_dpop_nonce with a nonce", nonce, err)
	}
	p.LearnFromResource(target, http.Header{"Dpop-Nonce": {nonce}})
	if next, err := try(); err != nil || next != "" {
		t.Errorf("with the current nonce: got nonce %q, error %v; want neither", next, err)
	}
	now = now.Add(nonceLifetime)
	next, err := try()
	if err != nil || next == "" || next == nonce {
		t.Errorf("with the last nonce: got nonce %q, error %v; want the current nonce", next, err)
	}
	now = now.Add(nonceLifetime)
	if _, err := try(); !errors.As(err, &fault) || fault.Code != oauthwire.UseDPoPNonce {
		t.Errorf("with an expired nonce: got error %v, want use_dpop_nonce", err)
	}
	other := testVerifier(t, &VerifierOptions{Nonces: true, NonceKeys: nonceKeys(t, strings.Repeat("n", minNonceKey))})
	other.now = clock
	p.LearnFromResource(target, http.Header{"Dpop-Nonce": {other.nonceAt(now)}})
	if _, err := try(); !errors.As(err, &fault) || fault.Code != oauthwire.UseDPoPNonce {
		t.Errorf("with a nonce of another verifier: got error %v, want use_dpop_nonce", err)
	}
}

func TestNoncesPerServer(t *testing.T) {
	p := testProver(t, nil)
	learn := func(target, nonce string, resource bool) bool {
		header := http.Header{"Dpop-Nonce": {nonce}}
		if resource {
			return p.LearnFromResource(mustURL(t, target), header)
		}
		return p.LearnFromServer(mustURL(t, target), header)
	}
	learn("https://a.example/token", "as", false)
	learn("https://a.example/mcp", "rs", true)
	learn("https://b.example/mcp", "other", true)
	for _, tt := range []struct {
		target, token, want string
	}{
		{"https://A.example/token", "", "as"},
		{"https://a.example/mcp?x", proofToken, "rs"},
		{"https://b.example/", proofToken, "other"},
		{"https://b.example/", "", ""},
		{"http://a.example/mcp", proofToken, ""},
	} {
		proof, err := p.Prove("POST", mustURL(t, tt.target), tt.token)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := jose.ParseSignedCompact(proof, []jose.SignatureAlgorithm{jose.ES256})
		if err != nil {
			t.Fatal(err)
		}
		var claims proofClaims
		if err := json.Unmarshal(signed.UnsafePayloadWithoutVerification(), &claims); err != nil {
			t.Fatal(err)
		}
		if claims.Nonce != tt.want {
			t.Errorf("%s, token %q: got nonce %q, want %q", tt.target, tt.token, claims.Nonce, tt.want)
		}
	}
	for _, bad := range []string{"", "a b", `"`, `\`, "ä", "a\tb", strings.Repeat("n", maxNonce+1)} {
		if learn("https://a.example/mcp", bad, true) {
			t.Errorf("the nonce %q was accepted", bad)
		}
	}
	if p.LearnFromResource(mustURL(t, proofURL), http.Header{"Dpop-Nonce": {"a", "b"}}) {
		t.Error("a header with two nonces was accepted")
	}
	for i := range 10 * maxNonces {
		learn(fmt.Sprintf("https://%d.example/", i), "n", true)
	}
	if len(p.nonces) > maxNonces {
		t.Errorf("got %d stored nonces, want at most %d", len(p.nonces), maxNonces)
	}
}

func TestProverRequiresDPoP(t *testing.T) {
	strict, lax := testProver(t, nil), testProver(t, &ProverOptions{InsecureAllowBearer: true})
	for _, tt := range []struct {
		algorithms  []string
		strict, lax bool
	}{
		{[]string{"PS256", "ES256"}, true, true},
		{[]string{"PS256"}, false, true},
		{nil, false, true},
	} {
		if err := strict.CheckServer(tt.algorithms); (err == nil) != tt.strict {
			t.Errorf("algorithms %v: got error %v, want success %t", tt.algorithms, err, tt.strict)
		}
		if err := lax.CheckServer(tt.algorithms); (err == nil) != tt.lax {
			t.Errorf("algorithms %v, bearer allowed: got error %v, want success %t", tt.algorithms, err, tt.lax)
		}
	}
	for _, tt := range []struct {
		tokenType   string
		strict, lax bool
	}{{"DPoP", true, true}, {"dpop", true, true}, {"Bearer", false, true}, {"N_A", false, false}, {"", false, false}} {
		if err := strict.CheckTokenType(tt.tokenType); (err == nil) != tt.strict {
			t.Errorf("token type %q: got error %v, want success %t", tt.tokenType, err, tt.strict)
		}
		if err := lax.CheckTokenType(tt.tokenType); (err == nil) != tt.lax {
			t.Errorf("token type %q, bearer allowed: got error %v, want success %t", tt.tokenType, err, tt.lax)
		}
	}
}

func TestProofOptionsAreChecked(t *testing.T) {
	for _, o := range []VerifierOptions{
		{Algorithms: []string{"none"}}, {Algorithms: []string{"HS256"}}, {Algorithms: []string{""}},
		{NonceKeys: new(NonceKeys)}, {MaxProofs: -1},
	} {
		if _, err := NewVerifier(&o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	p := testProver(t, nil)
	v := testVerifier(t, &VerifierOptions{Algorithms: []string{"EdDSA"}})
	_, err := v.Verify(requestWithProof(t, p, "POST", proofURL), mustURL(t, proofURL), proofToken, p.Thumbprint())
	if err == nil {
		t.Error("a proof was accepted whose algorithm is not on the list")
	}
}
