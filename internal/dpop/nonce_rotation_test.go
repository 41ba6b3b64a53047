package dpop

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

// Nonces of all keys are accepted. The first key derives the new ones.
func TestNonceKeysCanBeRotated(t *testing.T) {
	key := func(c string) string { return strings.Repeat(c, minNonceKey) }
	target := mustURL(t, proofURL)
	verifier := func(keys ...string) *Verifier {
		return testVerifier(t, &VerifierOptions{Nonces: true, NonceKeys: nonceKeys(t, keys...)})
	}
	before, during, after := verifier(key("a")), verifier(key("b"), key("a")), verifier(key("b"))
	try := func(p *Prover, v *Verifier) (nonce string, err error) {
		nonce, err = v.Verify(requestWithProof(t, p, "POST", proofURL), target, proofToken, p.Thumbprint())
		if nonce != "" {
			p.LearnFromResource(target, http.Header{"Dpop-Nonce": {nonce}})
		}
		return nonce, err
	}
	p := testProver(t, nil)
	if _, err := try(p, before); err == nil {
		t.Error("a proof without a nonce was accepted")
	}
	if next, err := try(p, before); err != nil || next != "" {
		t.Errorf("with the nonce: got %q, error %v", next, err)
	}
	if next, err := try(p, during); err != nil || next == "" {
		t.Errorf("with the nonce of the old key: got %q, error %v; want it accepted, and a new nonce", next, err)
	}
	for _, v := range []*Verifier{during, after} {
		if next, err := try(p, v); err != nil || next != "" {
			t.Errorf("with the nonce of the new key: got %q, error %v", next, err)
		}
	}
	old := testProver(t, nil)
	_, _ = try(old, before)
	if _, err := try(old, after); !isNonceError(err) {
		t.Errorf("with the nonce of a removed key: got error %v, want use_dpop_nonce", err)
	}
}

func nonceKeys(t *testing.T, keys ...string) *NonceKeys {
	t.Helper()
	var all [][]byte
	for _, key := range keys {
		all = append(all, []byte(key))
	}
	k := new(NonceKeys)
	if err := k.Replace(all); err != nil {
		t.Fatal(err)
	}
	return k
}

func isNonceError(err error) bool {
	fault, ok := errors.AsType[*ProofError](err)
	return ok && fault.Code == oauthwire.UseDPoPNonce
}
