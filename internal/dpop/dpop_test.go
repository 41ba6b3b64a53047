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

// proven is a request with a token and a proof of it.
func proven(t testing.TB, p *Prover, method, target string) *http.Request {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	if err := p.Authorize(r, proofToken); err != nil {
		t.Fatal(err)
	}
	return r
}

// handmade signs claims as they are, under any header.
func handmade(t testing.TB, key any, algorithm jose.SignatureAlgorithm, typ string, jwk any, claims map[string]any) string {
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

// TestDPoPExamplesOfRFC9449 computes what RFC 9449 prints: the hash of the token of section 7.1 and the
// thumbprint of the key of section 4.1, which section 6.1 has as jkt.
func TestDPoPExamplesOfRFC9449(t *testing.T) {
	const (
		token = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"
		ath   = "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"
		jwk   = `{"kty":"EC","x":"l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",` +
			`"y":"9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA","crv":"P-256"}`
		jkt = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
	)
	if got := tokenHash(token); got != ath {
		t.Errorf("ath is %s, want %s", got, ath)
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
		t.Errorf("jkt is %s, want %s", got, jkt)
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
		"our own": nil, "P-384": p384, "Ed25519": edwards, "RSA": rsaKey, "in hardware": hardwareKey{p384},
	} {
		t.Run(name, func(t *testing.T) {
			p := testProver(t, &ProverOptions{Key: key})
			r := proven(t, p, "POST", proofURL+"?query=1#fragment")
			if got, want := r.Header.Get("Authorization"), "DPoP "+proofToken; got != want {
				t.Errorf("Authorization is %q, want %q", got, want)
			}
			nonce, err := testVerifier(t, nil).Verify(r, mustURL(t, proofURL), proofToken, p.Thumbprint())
			if err != nil || nonce != "" {
				t.Errorf("verifyProof = %q, %v", nonce, err)
			}
		})
	}
}

// A hardwareKey is a key of a type that nobody knows.
type hardwareKey struct{ crypto.Signer }

func TestProverRefusesWeakKeys(t *testing.T) {
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewProver(&ProverOptions{Key: p224}); err == nil {
		t.Error("a key on P-224 is taken")
	}
	if _, err := NewProver(&ProverOptions{Key: hardwareKey{short{}}}); err == nil {
		t.Error("an RSA key of 1024 bits is taken")
	}
}

// short is the public half of an RSA key with 1024 bits.
type short struct{ crypto.Signer }

func (short) Public() crypto.PublicKey {
	n := make([]byte, 128)
	n[0] = 0x80
	var key jose.JSONWebKey
	_ = key.UnmarshalJSON([]byte(`{"kty":"RSA","e":"AQAB","n":"` + base64.RawURLEncoding.EncodeToString(n) + `"}`))
	return key.Key
}

// TestInvalidProofs takes a good proof and breaks it in one place at a time.
func TestInvalidProofs(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := testProver(t, &ProverOptions{Key: key})
	stranger := testProver(t, nil)
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
		return handmade(t, key, jose.ES256, typeProof, public, claims)
	}
	at := func(d time.Duration) map[string]any { return with("iat", proofTime.Add(d).Unix()) }
	secret := []byte(strings.Repeat("k", 32))
	whole := sign(good)
	parts := strings.Split(whole, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"dpop+jwt"}`))
	for _, tt := range []struct {
		name  string
		proof string
		taken bool
	}{
		{"as it should be", whole, true},
		{"a claim more", sign(with("more", []string{"x"})), true},
		{"two minutes old", sign(at(-2 * time.Minute)), true},
		{"one minute ahead", sign(at(time.Minute)), true},
		{"a part of a second", sign(with("iat", float64(proofTime.Unix())-0.5)), true},
		{"scheme, host and port written otherwise", sign(with("htu", "HTTPS://MCP.example.com:443/mcp")), true},

		{"older than two minutes", sign(at(-2*time.Minute - time.Second)), false},
		{"more than a minute ahead", sign(at(time.Minute + time.Second)), false},
		{"no time", sign(with("iat", nil)), false},
		{"a time that is none", sign(with("iat", "now")), false},
		{"a time beyond all times", sign(with("iat", 1e300)), false},
		{"a time before all times", sign(with("iat", -1e300)), false},
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
		{"another key", handmade(t, stranger.testKey(t), jose.ES256, typeProof, jose.JSONWebKey{Key: stranger.testKey(t).Public()}, good), false},
		{"the key in the header did not sign", handmade(t, stranger.testKey(t), jose.ES256, typeProof, public, good), false},
		{"no key in the header", handmade(t, key, jose.ES256, typeProof, nil, good), false},
		{"a symmetric key", handmade(t, secret, jose.HS256, typeProof, jose.JSONWebKey{Key: secret}, good), false},
		{"no typ", handmade(t, key, jose.ES256, "", public, good), false},
		{"typ of other JWTs", handmade(t, key, jose.ES256, "JWT", public, good), false},
		{"not signed", none + "." + parts[1] + ".", false},
		{"signature cut", parts[0] + "." + parts[1] + ".", false},
		{"claims exchanged", parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{}`)) + "." + parts[2], false},
		{"a name twice", signText(t, key, public, `{"jti":"1","htm":"GET","htm":"POST","htu":"`+proofURL+`"}`), false},
		{"deep", sign(with("more", [][][][]int{{{{}}}})), false},
		{"no JWT", "proof", false},
		{"empty", "", false},
		{"too long", sign(with("more", strings.Repeat("A", maxProof))), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("POST", proofURL, nil)
			r.Header.Set(Header, tt.proof)
			_, err := testVerifier(t, nil).Verify(r, mustURL(t, proofURL), proofToken, p.Thumbprint())
			if (err == nil) != tt.taken {
				t.Fatalf("verifyProof: %v, taken: want %t", err, tt.taken)
			}
			var fault *ProofError
			if err != nil && (!errors.As(err, &fault) || fault.Code != oauthwire.InvalidDPoPProof) {
				t.Errorf("the error is %v, want %s", err, oauthwire.InvalidDPoPProof)
			}
		})
	}
}

// testKey returns a key that is not the one of the test, always the same for a prover.
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
	r.Header.Set(Header, handmade(t, key, jose.ES256, typeProof, jose.JSONWebKey{Key: key}, map[string]any{
		"jti": "1", "htm": "POST", "htu": proofURL, "iat": proofTime.Unix(), "ath": tokenHash(proofToken),
	}))
	if _, err := testVerifier(t, nil).Verify(r, mustURL(t, proofURL), proofToken, p.Thumbprint()); err == nil {
		t.Error("a proof is taken that tells the private key")
	}
}

func TestProofNeedsBoundToken(t *testing.T) {
	p := testProver(t, nil)
	for _, thumbprint := range []string{"", testProver(t, nil).Thumbprint()} {
		if _, err := testVerifier(t, nil).Verify(proven(t, p, "POST", proofURL), mustURL(t, proofURL), proofToken, thumbprint); err == nil {
			t.Errorf("a proof is taken for a token that is bound to %q", thumbprint)
		}
	}
}

func TestOneProofPerRequest(t *testing.T) {
	p, v := testProver(t, nil), testVerifier(t, nil)
	r := proven(t, p, "POST", proofURL)
	r.Header.Add(Header, r.Header.Get(Header))
	if _, err := v.Verify(r, mustURL(t, proofURL), proofToken, p.Thumbprint()); err == nil {
		t.Error("two proofs are taken")
	}
	r.Header.Del(Header)
	if _, err := v.Verify(r, mustURL(t, proofURL), proofToken, p.Thumbprint()); err == nil {
		t.Error("no proof is taken")
	}
}

// TestProofIsUsedOnce holds for as long as the proof is good, and proofs of others with the same
// jti are not touched.
func TestProofIsUsedOnce(t *testing.T) {
	v := testVerifier(t, nil)
	now := proofTime
	v.now = func() time.Time { return now }
	p := testProver(t, nil)
	r := proven(t, p, "POST", proofURL)
	verify := func() error {
		_, err := v.Verify(r, mustURL(t, proofURL), proofToken, p.Thumbprint())
		return err
	}
	now = proofTime.Add(-clockSkew) // the first clock that takes it
	if err := verify(); err != nil {
		t.Fatal(err)
	}
	for now = now.Add(time.Second); now.Before(proofTime.Add(2 * proofValidity)); now = now.Add(time.Second) {
		if err := verify(); err == nil {
			t.Fatalf("the proof is taken again %v after it was made", now.Sub(proofTime))
		}
		// Others keep the memory moving.
		q := testProverAt(t, now)
		if _, err := v.Verify(proven(t, q, "POST", proofURL), mustURL(t, proofURL), proofToken, q.Thumbprint()); err != nil {
			t.Fatal(err)
		}
	}
}

func testProverAt(t *testing.T, now time.Time) *Prover {
	p := testProver(t, nil)
	p.now = func() time.Time { return now }
	return p
}

// TestOneKeyCannotFillReplayCache fills the memory: one key may have half of it, and what is forgotten
// makes room.
func TestOneKeyCannotFillReplayCache(t *testing.T) {
	m := replayCache{max: 10}
	for i := range 5 {
		if err := m.add("greedy", fmt.Sprint(i), proofTime); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.add("greedy", "6", proofTime); !errors.Is(err, ErrTooManyProofs) {
		t.Errorf("a sixth proof of the same key: %v", err)
	}
	for i := range 5 {
		if err := m.add(fmt.Sprint("modest", i), "1", proofTime); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.add("late", "1", proofTime); !errors.Is(err, ErrTooManyProofs) {
		t.Errorf("an eleventh proof: %v", err)
	}
	later := proofTime.Add(proofValidity)
	if err := m.add("late", "1", later); err != nil {
		t.Errorf("a proof of the next generation: %v", err)
	}
	if err := m.add("greedy", "1", later); err == nil || errors.Is(err, ErrTooManyProofs) {
		t.Errorf("a proof of the last generation again: %v", err)
	}
	if m.add("late", "2", later.Add(3*proofValidity)); len(m.current)+len(m.previous) != 1 {
		t.Errorf("%d proofs are remembered after a long time, want 1", len(m.current)+len(m.previous))
	}
}

// TestProofNonces plays the client and the resource against each other while time goes by.
func TestProofNonces(t *testing.T) {
	v := testVerifier(t, &VerifierOptions{Nonces: true})
	p := testProver(t, nil)
	now := proofTime.Truncate(nonceLifetime)
	clock := func() time.Time { return now }
	v.now, p.now = clock, clock
	target := mustURL(t, proofURL)
	try := func() (string, error) {
		return v.Verify(proven(t, p, "POST", proofURL), target, proofToken, p.Thumbprint())
	}
	nonce, err := try()
	var fault *ProofError
	if !errors.As(err, &fault) || fault.Code != oauthwire.UseDPoPNonce || !isNonce(nonce) {
		t.Fatalf("without a nonce: %q, %v", nonce, err)
	}
	p.LearnFromResource(target, http.Header{"Dpop-Nonce": {nonce}})
	if next, err := try(); err != nil || next != "" {
		t.Errorf("with a nonce: %q, %v", next, err)
	}
	now = now.Add(nonceLifetime)
	next, err := try()
	if err != nil || next == "" || next == nonce {
		t.Errorf("with the last nonce: %q, %v; want the current one", next, err)
	}
	now = now.Add(nonceLifetime)
	if _, err := try(); !errors.As(err, &fault) || fault.Code != oauthwire.UseDPoPNonce {
		t.Errorf("with a nonce of long ago: %v", err)
	}
	other := testVerifier(t, &VerifierOptions{Nonces: true, NonceKeys: [][]byte{[]byte(strings.Repeat("n", minNonceKey))}})
	other.now = clock
	p.LearnFromResource(target, http.Header{"Dpop-Nonce": {other.nonceAt(now)}})
	if _, err := try(); !errors.As(err, &fault) || fault.Code != oauthwire.UseDPoPNonce {
		t.Errorf("with a nonce that somebody else made: %v", err)
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
			t.Errorf("the nonce for %s, token %q, is %q, want %q", tt.target, tt.token, claims.Nonce, tt.want)
		}
	}
	for _, bad := range []string{"", "a b", `"`, `\`, "ä", "a\tb", strings.Repeat("n", maxNonce+1)} {
		if learn("https://a.example/mcp", bad, true) {
			t.Errorf("the nonce %q is taken", bad)
		}
	}
	if p.LearnFromResource(mustURL(t, proofURL), http.Header{"Dpop-Nonce": {"a", "b"}}) {
		t.Error("two nonces are taken")
	}
	for i := range 10 * maxNonces {
		learn(fmt.Sprintf("https://%d.example/", i), "n", true)
	}
	if len(p.nonces) > maxNonces {
		t.Errorf("%d nonces are kept, want at most %d", len(p.nonces), maxNonces)
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
			t.Errorf("%v is offered: %v", tt.algorithms, err)
		}
		if err := lax.CheckServer(tt.algorithms); (err == nil) != tt.lax {
			t.Errorf("%v is offered, bearer allowed: %v", tt.algorithms, err)
		}
	}
	for _, tt := range []struct {
		tokenType   string
		strict, lax bool
	}{{"DPoP", true, true}, {"dpop", true, true}, {"Bearer", false, true}, {"N_A", false, false}, {"", false, false}} {
		if err := strict.CheckTokenType(tt.tokenType); (err == nil) != tt.strict {
			t.Errorf("token type %q: %v", tt.tokenType, err)
		}
		if err := lax.CheckTokenType(tt.tokenType); (err == nil) != tt.lax {
			t.Errorf("token type %q, bearer allowed: %v", tt.tokenType, err)
		}
	}
}

func TestProofOptionsAreChecked(t *testing.T) {
	for _, o := range []VerifierOptions{
		{Algorithms: []string{"none"}}, {Algorithms: []string{"HS256"}}, {Algorithms: []string{""}},
		{NonceKeys: [][]byte{make([]byte, 32)}}, {Nonces: true, NonceKeys: [][]byte{make([]byte, 31)}}, {MaxProofs: -1},
	} {
		if _, err := NewVerifier(&o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	p := testProver(t, nil)
	v := testVerifier(t, &VerifierOptions{Algorithms: []string{"EdDSA"}})
	if _, err := v.Verify(proven(t, p, "POST", proofURL), mustURL(t, proofURL), proofToken, p.Thumbprint()); err == nil {
		t.Error("a proof is taken whose algorithm is not on the list")
	}
}
