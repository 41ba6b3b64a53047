package authserver_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/dpop"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

func newProver(t *testing.T) *dpop.Prover {
	t.Helper()
	p, err := dpop.NewProver(&dpop.ProverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// postProven sends a form with a DPoP proof.
func (w *env) postProven(p *dpop.Prover, path string, form url.Values) response {
	w.t.Helper()
	proof, err := p.Prove(http.MethodPost, mustURL(w.issuer+path), "")
	if err != nil {
		w.t.Fatal(err)
	}
	return w.post(path, form, "DPoP", proof)
}

func TestDPoPTokensAreBoundToTheKey(t *testing.T) {
	w := newInProcessEnv(t, nil)
	p := newProver(t)
	algorithms := w.browser().get("/.well-known/oauth-authorization-server").json(t)["dpop_signing_alg_values_supported"]
	if list, _ := algorithms.([]any); !slices.Contains(list, any("ES256")) {
		t.Errorf("dpop_signing_alg_values_supported is %v, want ES256 among them", algorithms)
	}
	got := w.tokensOf(w.postProven(p, "/token", exchangeForm(w.code())))
	if got.Type != "DPoP" {
		t.Errorf("token_type is %q, want DPoP", got.Type)
	}
	token, err := w.verify(got.Access)
	if err != nil || token.KeyThumbprint != p.Thumbprint() {
		t.Errorf("verify: thumbprint %q, %v; want that of the key of the proof", token.KeyThumbprint, err)
	}
	info := w.post("/introspect", url.Values{"token": {got.Access}}, "Authorization", "Basic "+basic(checkerID, secret))
	cnf, _ := info.json(t)["cnf"].(map[string]any)
	if cnf["jkt"] != p.Thumbprint() || info.json(t)["token_type"] != "DPoP" {
		t.Errorf("introspection is %s, want cnf.jkt and token_type DPoP", info.body)
	}

	// The refresh token of a public client needs the same key. A thief does not end the grant.
	w.post("/token", refreshForm(got.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
	w.postProven(newProver(t), "/token", refreshForm(got.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
	next := w.tokensOf(w.postProven(p, "/token", refreshForm(got.Refresh)))
	if token, err := w.verify(next.Access); err != nil || token.KeyThumbprint != p.Thumbprint() {
		t.Errorf("after a refresh: %v, %v; want a token bound to the same key", token, err)
	}

	protect := oauth.Require(w.server.Verifier(resource), w.server.ResourceMetadata(resource), nil)
	protected := protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	call := func(authorize func(*http.Request)) int {
		r := httptest.NewRequest(http.MethodGet, resource, nil)
		authorize(r)
		return serveRequest(protected, r).Code
	}
	if got := call(func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+next.Access) }); got != 401 {
		t.Errorf("bound token as a bearer token: status %d, want 401", got)
	}
	if got := call(func(r *http.Request) {
		if err := p.Authorize(r, next.Access); err != nil {
			t.Fatal(err)
		}
	}); got != http.StatusOK {
		t.Errorf("bound token with a proof: status %d, want 200", got)
	}
}

func TestInvalidDPoPProofsGetNoToken(t *testing.T) {
	w := newInProcessEnv(t, nil)
	p := newProver(t)
	code := w.code()
	other, err := p.Prove(http.MethodPost, mustURL("https://other.example/token"), "")
	if err != nil {
		t.Fatal(err)
	}
	right, err := p.Prove(http.MethodPost, mustURL(w.issuer+"/token"), "")
	if err != nil {
		t.Fatal(err)
	}
	for name, header := range map[string][]string{
		"malformed": {"DPoP", "x"}, "for another server": {"DPoP", other}, "two proofs": {"DPoP", right, "DPoP", right},
	} {
		t.Log(name)
		w.post("/token", exchangeForm(code), header...).wantError(t, http.StatusBadRequest, "invalid_dpop_proof")
	}
	w.tokensOf(w.post("/token", exchangeForm(code), "DPoP", right)) // the code was not used up
	w.post("/token", exchangeForm(w.code()), "DPoP", right).wantError(t, http.StatusBadRequest, "invalid_dpop_proof")
}

func TestCodesAreBoundToTheKeyOfTheRequest(t *testing.T) {
	w := newInProcessEnv(t, nil)
	p := newProver(t)
	w.tokensOf(w.postProven(p, "/token", exchangeForm(w.code("dpop_jkt", p.Thumbprint()))))
	for _, send := range []func(url.Values) response{
		func(f url.Values) response { return w.post("/token", f) },
		func(f url.Values) response { return w.postProven(newProver(t), "/token", f) },
	} {
		code := w.code("dpop_jkt", p.Thumbprint())
		send(exchangeForm(code)).wantError(t, http.StatusBadRequest, "invalid_grant")
	}
}

// Confidential clients authenticate, so their refresh tokens are not bound.
func TestConfidentialClientsCanChangeTheDPoPKey(t *testing.T) {
	w := newInProcessEnv(t, func(o *authserver.Options) { o.Clients[0].SecretHash = secretHash })
	form := exchangeForm(w.code(), "client_secret", secret)
	got := w.tokensOf(w.postProven(newProver(t), "/token", form))
	p := newProver(t)
	next := w.tokensOf(w.postProven(p, "/token", refreshForm(got.Refresh, "client_secret", secret)))
	if token, err := w.verify(next.Access); err != nil || token.KeyThumbprint != p.Thumbprint() {
		t.Errorf("after a refresh with another key: %v, %v; want a token bound to that key", token, err)
	}
}

func TestClientLogsInWithDPoP(t *testing.T) {
	m := newMount(t, "/mcp", nil)
	m.whoami(&oauthclient.TransportOptions{
		Authorizer: oauthclient.NewAuthorizer("http://127.0.0.1:4711/callback", m.consent),
		DPoP:       &oauthclient.DPoPOptions{},
	}, "alice alice")
}

func TestProofIsUsedOnceByServersThatShareAStore(t *testing.T) {
	store := authserver.NewMemoryStore()
	share := func(o *authserver.Options) { o.Store = store }
	first, second, p := newInProcessEnv(t, share), newInProcessEnv(t, share), newProver(t)
	proof, err := p.Prove(http.MethodPost, mustURL(first.issuer+"/token"), "")
	if err != nil {
		t.Fatal(err)
	}
	code := second.code()
	first.post("/token", exchangeForm("unknown"), "DPoP", proof).wantError(t, http.StatusBadRequest, "invalid_grant")
	if n := authserver.MemoryRecords(store, "proof"); n != 0 {
		t.Errorf("%d proofs stored for an unknown code, want none", n)
	}
	if proof, err = p.Prove(http.MethodPost, mustURL(first.issuer+"/token"), ""); err != nil {
		t.Fatal(err)
	}
	got := first.tokensOf(first.post("/token", exchangeForm(first.code()), "DPoP", proof))
	second.post("/token", exchangeForm(code), "DPoP", proof).wantError(t, http.StatusBadRequest, "invalid_dpop_proof")
	second.tokensOf(second.postProven(p, "/token", refreshForm(got.Refresh)))
}
