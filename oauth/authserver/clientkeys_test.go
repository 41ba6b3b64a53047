package authserver_test

import (
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// newDocumentHostWithKey returns a host of the document and the key set of a client.
func newDocumentHostWithKey(t *testing.T, key crypto.Signer) *documentHost {
	h := newDocumentHost(t)
	h.body = document(`,"token_endpoint_auth_method":"private_key_jwt","jwks_uri":"` + h.URL + `/jwks"`)
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	h.jwks = string(set)
	return h
}

// withAssertion adds a client assertion to a form, and returns the form.
func (w *env) withAssertion(form url.Values, key crypto.PrivateKey, id string) url.Values {
	w.t.Helper()
	form.Set("client_assertion_type", jwtBearer)
	form.Set("client_assertion", sign(w.t, jose.ES256, key, map[string]any{
		"iss": id, "sub": id, "aud": w.issuer, "jti": fmt.Sprint(time.Now().UnixNano()), "exp": time.Now().Unix() + 60,
	}))
	return form
}

// An attacker can send requests in the name of a client and cancel them while its keys are fetched.
func TestCanceledRequestKeepsClientKeyFetch(t *testing.T) {
	key := newKey(t)
	h := newDocumentHostWithKey(t, key)
	synctest.Test(t, func(t *testing.T) {
		id := h.URL + "/client.json"
		w := h.newEnv(t, func(o *authserver.Options) {
			o.ClientMetadata.Fetcher = h.slowFetcher(func(r *http.Request) error {
				if r.URL.Path != "/jwks" {
					return nil
				}
				select {
				case <-time.After(5 * time.Second):
				case <-r.Context().Done():
				}
				return r.Context().Err()
			})
		})
		code := w.code("client_id", id, "redirect_uri", documentURI)
		encode := base64.RawURLEncoding.EncodeToString
		forged := encode([]byte(`{"alg":"ES256"}`)) + "." + encode(fmt.Appendf(nil, `{"sub":%q}`, id)) + "." +
			encode(make([]byte, 64))
		form := url.Values{"grant_type": {"authorization_code"}, "client_assertion_type": {jwtBearer},
			"client_assertion": {forged}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			req := w.request(http.MethodPost, "/token", form.Encode(), "Content-Type",
				"application/x-www-form-urlencoded")
			_ = w.send(&http.Client{Transport: w.base}, req.WithContext(ctx))
		})
		time.Sleep(2 * time.Second)
		exchange := exchangeForm(code, "client_id", id, "redirect_uri", documentURI)
		w.tokensOf(w.post("/token", w.withAssertion(exchange, key, id)))
		all.Wait()
	})
}

func TestStaleClientKeysAreUsedForAnHour(t *testing.T) {
	key := newKey(t)
	h := newDocumentHostWithKey(t, key)
	h.header.Set("Cache-Control", "max-age=86400") // for the document
	synctest.Test(t, func(t *testing.T) {
		w := h.newEnv(t, nil)
		id := h.URL + "/client.json"
		try := func() response {
			time.Sleep(time.Millisecond) // for another jti
			return w.post("/token", w.withAssertion(refreshForm("x", "client_id", id), key, id))
		}
		// The client is authenticated, and its refresh token is unknown.
		try().wantError(t, http.StatusBadRequest, "invalid_grant")
		h.set(func() { h.status = http.StatusBadGateway })
		for range 5 {
			time.Sleep(10 * time.Minute)
			try().wantError(t, http.StatusBadRequest, "invalid_grant")
		}
		time.Sleep(10 * time.Minute)
		try().wantError(t, http.StatusServiceUnavailable, "temporarily_unavailable")
		h.set(func() { h.status = http.StatusOK })
		time.Sleep(time.Minute)
		try().wantError(t, http.StatusBadRequest, "invalid_grant")
		for name, change := range map[string]func(){
			"not found":       func() { h.status = http.StatusNotFound },
			"no keys":         func() { h.status, h.jwks = http.StatusOK, `{"keys":[]}` },
			"not a key set":   func() { h.jwks = `<html>` },
			"too large a set": func() { h.jwks = `{"keys":[],"x":"` + strings.Repeat("x", 256<<10) + `"}` },
		} {
			h.set(change)
			time.Sleep(6 * time.Minute)
			if res := try(); res.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: %s %s, want 401", name, res.Status, res.body)
			}
		}
	})
}

// Key sets are fetched with the limits and the address rules of documents.
func TestClientKeyFetchesAreLimited(t *testing.T) {
	h := newDocumentHostWithKey(t, newKey(t))
	synctest.Test(t, func(t *testing.T) {
		w := h.newEnv(t, func(o *authserver.Options) { o.Limits.Fetches = authserver.Rate{Count: 1, Per: time.Hour} })
		id := h.URL + "/client.json"
		w.post("/token", w.withAssertion(refreshForm("x", "client_id", id), newKey(t), id)).
			wantError(t, http.StatusServiceUnavailable, "temporarily_unavailable")
		if h.count() != 1 {
			t.Errorf("the host got %d requests, want 1", h.count())
		}
	})
	private := newDocumentHostWithKey(t, newKey(t))
	private.body = strings.Replace(private.body, private.URL+"/jwks", "https://10.1.2.3/jwks", 1)
	w := private.newEnv(t, nil)
	id := private.URL + "/client.json"
	w.post("/token", w.withAssertion(refreshForm("x", "client_id", id), newKey(t), id)).
		wantError(t, http.StatusUnauthorized, "invalid_client")
}
