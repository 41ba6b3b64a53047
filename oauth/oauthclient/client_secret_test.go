package oauthclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// confidential makes the authorization server issue a secret to each client that registers.
func (w *testEnv) confidential() {
	w.as.method = "client_secret_basic"
	w.as.document["token_endpoint_auth_methods_supported"] = []string{"client_secret_basic"}
	w.Page(clientIssuer+"/register", func(rw http.ResponseWriter, req *http.Request) {
		var m oauth.ClientMetadata
		if err := json.NewDecoder(req.Body).Decode(&m); err != nil {
			w.t.Error(err)
		}
		w.as.mu.Lock()
		defer w.as.mu.Unlock()
		w.as.counts["register"]++
		id := w.as.newID("client")
		w.as.clients[id] = "s3cret-" + id
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(rw).Encode(map[string]any{
			"client_id": id, "client_secret": "s3cret-" + id, "token_endpoint_auth_method": "client_secret_basic",
			"redirect_uris": m.RedirectURIs,
		})
	})
}

// Tokens are renewed with the client secret that they were issued with, also if the stored
// registration changes.
func TestTokensAreRenewedWithTheirClientSecret(t *testing.T) {
	for name, disturb := range map[string]func(t *testing.T, w *testEnv, tr *oauthclient.Transport,
		store oauthclient.Store){
		"nothing": func(*testing.T, *testEnv, *oauthclient.Transport, oauthclient.Store) {},
		"login that times out": func(t *testing.T, w *testEnv, tr *oauthclient.Transport, _ oauthclient.Store) {
			w.changeResponse(func(*oauthclient.LoginRequest, url.Values) (url.Values, error) {
				return nil, oauthclient.ErrLoginTimeout
			})
			if err := tr.Login(t.Context()); !errors.Is(err, oauthclient.ErrLoginTimeout) {
				t.Errorf("Login: got error %v", err)
			}
		},
		"login to another server, at another port": func(t *testing.T, w *testEnv, _ *oauthclient.Transport,
			store oauthclient.Store) {
			w.loginAtAnotherServer(t, store)
			if n := w.as.count("register"); n != 2 {
				t.Errorf("got %d registrations, want 2", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				w.confidential()
				store := oauthclient.NewMemoryStore()
				tr := w.transport(&oauthclient.TransportOptions{Store: store})
				w.mustPost(tr)
				disturb(t, w, tr, store)
				w.as.count("refresh_token")
				for range 2 { // renewed tokens can be renewed again
					time.Sleep(time.Hour)
					w.mustPost(w.unattended(store))
				}
				if n := w.as.count("refresh_token"); n != 2 {
					t.Errorf("got %d renewals, want 2", n)
				}
				if set, err := w.unattended(store).Token(t.Context()); err != nil || set.Client != nil {
					t.Errorf("Token: got error %v or a client secret, want a token without one", err)
				}
				if err := w.unattended(store).Logout(t.Context()); err != nil { // which authenticates the client
					t.Errorf("Logout: got error %v", err)
				}
			})
		})
	}
}

// loginAtAnotherServer logs in to another MCP server of the same authorization server.
func (w *testEnv) loginAtAnotherServer(t *testing.T, store oauthclient.Store) {
	t.Helper()
	const two = "https://two.example/mcp"
	w.as.set(func(s *fakeServer) { s.resource = two })
	w.Doc("https://two.example/.well-known/oauth-protected-resource/mcp",
		`{"resource":"`+two+`","authorization_servers":["`+clientIssuer+`"]}`)
	tr := oauthclient.NewTransport(two, &oauthclient.TransportOptions{
		Store: store, Fetcher: w.fetcher(nil),
		Authorizer: plainAuthorizer{oauthclient.NewAuthorizer("http://127.0.0.1:7778/callback", w.login)},
		Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			rec := httptest.NewRecorder()
			if req.Header.Get("Authorization") == "" {
				rec.WriteHeader(http.StatusUnauthorized)
			} else {
				_, _ = io.WriteString(rec, "hello")
			}
			res := rec.Result()
			res.Request = req
			return res, nil
		}),
	})
	if status, _, err := send(tr, t.Context(), two); status != http.StatusOK {
		t.Fatalf("got %d, error %v; want 200", status, err)
	}
	w.as.set(func(s *fakeServer) { s.resource = clientMCP })
}

// Identity.Issuer also limits a client that registers itself.
//
// Requirement: REG-15
func TestIdentityIssuerIsTheOnlyOne(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		opts := &oauthclient.TransportOptions{Store: oauthclient.NewMemoryStore(),
			Client: oauthclient.Identity{Issuer: clientIssuer}}
		tr := w.transport(opts)
		w.mustPost(tr)
		other := w.newServer(otherIssuer)
		w.rs.moveTo(other)
		w.as.forgetAll()
		_, _, err := post(tr, t.Context())
		if wrong, ok := errors.AsType[*oauthclient.IssuerError](err); !ok || wrong.Want != clientIssuer ||
			wrong.Got != otherIssuer {
			t.Errorf("got error %v, want an IssuerError", err)
		}
		if other.count("register") > 0 || w.loginCount() != 1 {
			t.Error("the client sent a request to the other authorization server")
		}
		anywhere := &oauthclient.TransportOptions{Store: opts.Store}
		w.mustPost(w.transport(anywhere))
		if s, err := w.transport(opts).Status(t.Context()); s != nil || err != nil {
			t.Errorf("got status %v, error %v; want no tokens of another issuer", s, err)
		}
	})
}

// The server's error text repeats a secret at various places, also across the point where it is
// cut.
func TestErrorsContainNoPartOfASecret(t *testing.T) {
	const first = 12 // bytes of the secret that must not appear
	check := func(t *testing.T, err error, secret string) {
		t.Helper()
		if err == nil || secret == "" || strings.Contains(err.Error(), secret[:first]) {
			t.Errorf("got error %v, want one without %.*s", err, first, secret)
		}
	}
	for _, disguise := range []string{"", "\u200b"} {
		for _, length := range []int{0, 40, 56, 230, 250, 300} {
			hide := func(secret string) string {
				return strings.Repeat("x", length) + " " + secret[:20] + disguise + secret[20:]
			}
			withEnv(t, func(t *testing.T, w *testEnv) {
				var verifier string
				w.as.respond = func(form url.Values) (int, string) {
					verifier = form.Get("code_verifier")
					text, _ := json.Marshal(map[string]string{"error": hide(verifier),
						"error_description": hide(verifier)})
					return http.StatusBadRequest, string(text)
				}
				_, _, err := post(w.transport(nil), t.Context())
				check(t, err, verifier)
			})
			withEnv(t, func(t *testing.T, w *testEnv) {
				var state string
				w.changeResponse(func(login *oauthclient.LoginRequest, _ url.Values) (url.Values, error) {
					state = login.State
					return url.Values{"state": {state}, "iss": {clientIssuer}, "error": {hide(state)},
						"error_description": {hide(state)}}, nil
				})
				_, _, err := post(w.transport(nil), context.Background())
				check(t, err, state)
			})
		}
	}
}
