package dpop

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// FuzzVerifyProof searches for an accepted proof that the token's key has not made for the request.
// The checks share no code with Verify. If signature is empty, header and payload are signed with
// the key.
func FuzzVerifyProof(f *testing.F) {
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), []byte(strings.Repeat("k", 32)))
	if err != nil {
		f.Fatal(err)
	}
	p := testProver(f, &ProverOptions{Key: key})
	good, err := p.Prove("POST", mustURL(f, proofURL), proofToken)
	if err != nil {
		f.Fatal(err)
	}
	var parts [3]string
	for i, part := range strings.Split(good, ".") {
		text, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			f.Fatal(err)
		}
		parts[i] = string(text)
	}
	header, payload, signature := parts[0], parts[1], []byte(parts[2])
	f.Add(header, payload, []byte{}, proofURL, proofToken)
	f.Add(header, payload, signature, proofURL, proofToken)
	f.Add(header, payload, signature, "HTTPS://MCP.EXAMPLE.COM:443/mcp?q", proofToken)
	f.Add(header, payload, []byte{}, proofURL, "b-token")
	f.Add(header, "{}", []byte{}, proofURL, proofToken)
	f.Add(header, strings.Replace(payload, "POST", "GET", 1), []byte{}, proofURL, proofToken)
	f.Add(header, strings.Replace(payload, "/mcp", "/mcp?a", 1), []byte{}, proofURL, proofToken)
	f.Add(header, strings.Replace(payload, `"htm"`, `"HTM"`, 1), []byte{}, proofURL, proofToken)
	f.Add(header, strings.Replace(payload, `"iat":`, `"iat":1e0,"iat":`, 1), []byte{}, proofURL, proofToken)
	f.Add(strings.Replace(header, "ES256", "none", 1), payload, signature[:1], proofURL, proofToken)
	f.Add(strings.Replace(header, "ES256", "HS256", 1), payload, signature[:32], proofURL, proofToken)
	f.Add(strings.Replace(header, "dpop+jwt", "JWT", 1), payload, []byte{}, proofURL, proofToken)
	f.Fuzz(func(t *testing.T, header, payload string, signature []byte, target, token string) {
		u, err := url.Parse(target)
		if err != nil || u.Host == "" || token == "" {
			return
		}
		signed := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
		digest := sha256.Sum256([]byte(signed))
		if len(signature) == 0 {
			r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
			if err != nil {
				t.Fatal(err)
			}
			signature = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
		}
		r := httptest.NewRequest("POST", "/", nil)
		r.Header["Dpop"] = []string{signed + "." + base64.RawURLEncoding.EncodeToString(signature)}
		_, err = testVerifier(t, nil).Verify(r, u, token, p.Thumbprint())
		isSigned := len(signature) == 64 && ecdsa.Verify(&key.PublicKey, digest[:],
			new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:]))
		if err == nil && !(isSigned && isProofHeader(header) && claimsMatch(payload, u, token)) {
			t.Errorf("the proof %q, %q was accepted for %q and the token %q", header, payload, target, token)
		}
		if err != nil && isSigned && header == parts[0] && payload == parts[1] && target == proofURL &&
			token == proofToken {
			t.Errorf("the valid proof was refused: %v", err)
		}
	})
}

// isProofHeader reports whether text is the JOSE header of a proof.
func isProofHeader(text string) bool {
	var header map[string]any
	return json.Unmarshal([]byte(text), &header) == nil && header["typ"] == "dpop+jwt" && header["alg"] == "ES256"
}

// claimsMatch reports whether claims are those of a proof for the request.
func claimsMatch(payload string, target *url.URL, token string) bool {
	var claims map[string]any
	if json.Unmarshal([]byte(payload), &claims) != nil {
		return false
	}
	sum := sha256.Sum256([]byte(token))
	text, _ := claims["htu"].(string)
	htu, err := url.Parse(text)
	if err != nil {
		return false
	}
	iat, _ := claims["iat"].(float64)
	age := float64(proofTime.Unix()) - iat
	jti, _ := claims["jti"].(string)
	path := func(u *url.URL) string { return cmp.Or(u.EscapedPath(), "/") }
	return jti != "" && claims["htm"] == "POST" && claims["ath"] == base64.RawURLEncoding.EncodeToString(sum[:]) &&
		strings.EqualFold(htu.Hostname(), target.Hostname()) && path(htu) == path(target) &&
		htu.RawQuery == "" && htu.Fragment == "" &&
		strings.EqualFold(htu.Scheme, target.Scheme) && age <= 120 && age >= -60
}
