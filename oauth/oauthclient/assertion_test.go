package oauthclient

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// clientKeys returns one key of each supported type.
func clientKeys(t *testing.T) map[string]crypto.Signer {
	t.Helper()
	keys := map[string]crypto.Signer{}
	for name, curve := range map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(),
		"P-521": elliptic.P521()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = key
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys["Ed25519"] = edwards
	if keys["RSA"], err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	return keys
}

// Requirement: EAUTH-03
func TestClientAssertion(t *testing.T) {
	keys := clientKeys(t)
	now := time.Unix(1_790_000_000, 0)
	for _, tt := range []struct {
		key, wanted string   // wanted is AssertionKey.Algorithm
		taken       []string // algorithms of the server's metadata
		algorithm   string   // empty: refused
	}{
		{"P-256", "", nil, "ES256"},
		{"P-256", "ES256", []string{"RS256", "ES256"}, "ES256"},
		{"P-256", "", []string{"RS256"}, ""},
		{"P-256", "RS256", nil, ""},
		{"P-256", "none", nil, ""},
		{"P-384", "", nil, "ES384"},
		{"P-521", "", nil, "ES512"},
		{"Ed25519", "", nil, "EdDSA"},
		{"RSA", "", nil, "RS256"},
		{"RSA", "", []string{"RS256", "PS256"}, "PS256"},
		{"RSA", "", []string{"ES256", "RS256"}, "RS256"},
		{"RSA", "RS256", []string{"RS256", "PS256"}, "RS256"},
		{"RSA", "PS256", nil, "PS256"},
		{"RSA", "PS256", []string{"RS256"}, ""},
		{"RSA", "HS256", nil, ""},
	} {
		t.Run(strings.Join(append([]string{tt.key, tt.wanted, "for"}, tt.taken...), " "), func(t *testing.T) {
			k := &AssertionKey{Key: keys[tt.key], ID: "key-1", Algorithm: tt.wanted}
			form := url.Values{"client_id": {"c"}, "grant_type": {"client_credentials"}}
			err := k.authenticate(form, "client-1",
				&oauth.ServerMetadata{Issuer: "https://as.example", TokenEndpointAuthAlgorithms: tt.taken}, now)
			if tt.algorithm == "" {
				if err == nil || form.Get("client_assertion") != "" {
					t.Fatalf("got form %v and error %v, want an error and no assertion", form, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if form.Has("client_id") || form.Get("client_assertion_type") != clientAssertionType {
				t.Errorf("got form %v, want an assertion and no client_id", form)
			}
			checkAssertion(t, form.Get("client_assertion"), keys[tt.key].Public(), tt.algorithm, now)
		})
	}
}

func checkAssertion(t *testing.T, assertion string, public crypto.PublicKey, algorithm string, now time.Time) {
	t.Helper()
	signed, err := jose.ParseSignedCompact(assertion, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(algorithm)})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := signed.Verify(public)
	if err != nil {
		t.Fatal(err)
	}
	if header := signed.Signatures[0].Protected; header.KeyID != "key-1" || header.JSONWebKey != nil {
		t.Errorf("got header %+v, want kid key-1 and no jwk", header)
	}
	var claims map[string]any
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	if claims["iss"] != "client-1" || claims["sub"] != "client-1" || claims["aud"] != "https://as.example" {
		t.Errorf("got claims %v, want iss and sub client-1, aud https://as.example", claims)
	}
	if id, _ := claims["jti"].(string); len(id) < 22 {
		t.Errorf("got jti %q, want 128 bits", id)
	}
	iat, _ := claims["iat"].(float64)
	if exp, _ := claims["exp"].(float64); int64(iat) != now.Unix() || exp <= iat || exp-iat > 300 {
		t.Errorf("got iat %v, exp %v; want at most five minutes from now", iat, exp)
	}
}

func TestClientAssertionsHaveUniqueClaims(t *testing.T) {
	k := &AssertionKey{Key: clientKeys(t)["P-256"]}
	seen := map[string]bool{}
	for range 10 {
		jwt, err := k.assertion("c", "https://as.example", nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		seen[strings.Split(jwt, ".")[1]] = true
	}
	if len(seen) != 10 {
		t.Errorf("got %d different claim sets in 10 assertions, want 10", len(seen))
	}
}

func TestAssertionWithoutKeyFails(t *testing.T) {
	for _, k := range []*AssertionKey{nil, {}} {
		if _, err := k.assertion("c", "https://as.example", nil, time.Now()); err == nil {
			t.Error("got an assertion without a key, want an error")
		}
	}
}

func TestParsePrivateKey(t *testing.T) {
	keys := clientKeys(t)
	encode := func(kind string, der []byte, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for name, key := range keys {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		checkParsed(t, name+" in PKCS #8", encode("PRIVATE KEY", der, err), key)
	}
	ec, err := x509.MarshalECPrivateKey(keys["P-256"].(*ecdsa.PrivateKey))
	sec1 := encode("EC PRIVATE KEY", ec, err)
	checkParsed(t, "SEC 1 after its parameters", "text\n"+encode("EC PARAMETERS", []byte{6}, nil)+sec1, keys["P-256"])
	checkParsed(t, "PKCS #1", encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(keys["RSA"].(*rsa.PrivateKey)),
		nil), keys["RSA"])

	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := x509.MarshalPKCS8PrivateKey(p224)
	for name, text := range map[string]string{
		"nothing": "", "no PEM": "secret", "a certificate": encode("CERTIFICATE", []byte("x"), nil),
		"encrypted": encode("ENCRYPTED PRIVATE KEY", []byte("x"), nil), "broken": encode("PRIVATE KEY",
			[]byte("secret"), nil),
		"P-224": encode("PRIVATE KEY", weak, err),
	} {
		if _, err := ParsePrivateKey([]byte(text)); err == nil {
			t.Errorf("%s: got a key, want an error", name)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error contains the text of the key: %v", name, err)
		}
	}
}

func checkParsed(t *testing.T, name, text string, want crypto.Signer) {
	t.Helper()
	got, err := ParsePrivateKey([]byte(text))
	if err != nil {
		t.Errorf("%s: got error %v, want the key", name, err)
		return
	}
	if public, ok := got.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(want.Public()) {
		t.Errorf("%s: got another key than the encoded one", name)
	}
}
