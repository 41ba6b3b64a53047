package authserver_test

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// Requirement: REG-06
func TestClientAuthenticatesWithTheKeysOfItsDocument(t *testing.T) {
	key := newKey(t)
	var fetched atomic.Int32
	var address string
	host := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/client.json":
			fmt.Fprintf(w, `{"client_id":%q,"client_name":"App","redirect_uris":["https://app.example/cb"],
				"grant_types":["authorization_code","client_credentials"],
				"token_endpoint_auth_method":"private_key_jwt","jwks_uri":%q}`, address+"/client.json", address+"/jwks")
		case "/jwks":
			fetched.Add(1)
			set, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
				{Key: []byte("a symmetric key, which must be ignored"), KeyID: "1"},
				{Key: key.Public(), KeyID: "2", Use: "sig"},
			}})
			_, _ = w.Write(set)
		}
	}))
	defer host.Close()
	address = host.URL
	id := address + "/client.json"
	roots := x509.NewCertPool()
	roots.AddCert(host.Certificate())
	fetcher := oauth.NewFetcher(&oauth.FetcherOptions{TLSConfig: &tls.Config{RootCAs: roots}, InsecureAnyAddress: true})
	w := newEnv(t, func(o *authserver.Options) { o.ClientMetadata.Fetcher = fetcher })

	n := 0
	form := func(key crypto.PrivateKey) url.Values {
		n++
		now := time.Now().Unix()
		f := exchangeForm(w.code("client_id", id, "redirect_uri", "https://app.example/cb"), "client_id", id,
			"redirect_uri", "https://app.example/cb")
		f.Set("client_assertion_type", jwtBearer)
		f.Set("client_assertion", sign(t, jose.ES256, key, map[string]any{
			"iss": id, "sub": id, "aud": w.issuer, "jti": fmt.Sprint(n), "exp": now + 60,
		}))
		return f
	}
	w.wantValid(w.tokensOf(w.post("/token", form(key))).Access, "with the key of the document")
	w.post("/token", form(newKey(t))).wantError(t, http.StatusUnauthorized, "invalid_client")
	none := form(key)
	none.Del("client_assertion")
	w.post("/token", none).wantError(t, http.StatusUnauthorized, "invalid_client")
	if fetched.Load() != 1 {
		t.Errorf("the keys were fetched %d times, want once", fetched.Load())
	}
	credentials := form(key)
	credentials.Set("grant_type", "client_credentials")
	credentials.Del("code")
	w.post("/token", credentials).wantError(t, http.StatusBadRequest, "unauthorized_client")
}

// Requirement: REG-09
func TestDocumentOverHTTPIsNotFetched(t *testing.T) {
	var requested atomic.Bool
	host := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requested.Store(true) }))
	defer host.Close()
	w := newEnv(t, nil)
	res := w.browser().get("/authorize?" + authorizeQuery("client_id", host.URL+"/client.json").Encode())
	if res.StatusCode != http.StatusBadRequest {
		t.Errorf("document at a loopback address: %s, want 400", res.Status)
	}
	if requested.Load() {
		t.Error("the host at a loopback address got a request")
	}
}
