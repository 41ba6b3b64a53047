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

// confidential has the authorization server give a secret to each client that it registers.
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

// TestTokensKeepTheSecretTheyAreRenewedWith has something become of the registration while its
// tokens are good.
func TestTokensKeepTheSecretTheyAreRenewedWith(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, w *testEnv, tr *oauthclient.Transport, store oauthclient.Store){
		"nothing": func(*testing.T, *testEnv, *oauthclient.Transport, oauthclient.Store) {},
		"a login that nobody answers": func(t *testing.T, w *testEnv, tr *oauthclient.Transport, _ oauthclient.Store) {
			w.changeResponse(func(*oauthclient.LoginRequest, url.Values) (url.Values, error) {
				return nil, oauthclient.ErrLoginTimeout
			})
			if err := tr.Login(t.Context()); !errors.Is(err, oauthclient.ErrLoginTimeout) {
				t.Errorf("login: %v", err)
			}
		},
		"another server's login, at another port": func(t *testing.T, w *testEnv, _ *oauthclient.Transport, store oauthclient.Store) {
			w.loginAtAnotherServer(t, store)
			if n := w.as.count("register"); n != 2 {
				t.Errorf("%d registrations", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				w.confidential()
				store := oauthclient.NewMemoryStore()
				tr := w.transport(&oauthclient.TransportOptions{Store: store})
				w.mustPost(tr)
				spoil(t, w, tr, store)
				w.as.count("refresh_token")
				for range 2 { // what a renewal gives is renewed, too
					time.Sleep(time.Hour)
					w.mustPost(w.unattended(store))
				}
				if n := w.as.count("refresh_token"); n != 2 {
					t.Errorf("%d renewals", n)
				}
				if set, err := w.unattended(store).Token(t.Context()); err != nil || set.Client != nil {
					t.Errorf("the program is given the secret: %v", err)
				}
				if err := w.unattended(store).Logout(t.Context()); err != nil { // which authenticates the client
					t.Errorf("logout: %v", err)
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
		t.Fatalf("got %d %v", status, err)
	}
	w.as.set(func(s *fakeServer) { s.resource = clientMCP })
}

// TestIdentityIssuerIsTheOnlyOne names an authorization server for a client that is not known
// there.
func TestIdentityIssuerIsTheOnlyOne(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		opts := &oauthclient.TransportOptions{Store: oauthclient.NewMemoryStore(), Client: oauthclient.Identity{Issuer: clientIssuer}}
		tr := w.transport(opts)
		w.mustPost(tr)
		other := w.newServer(otherIssuer)
		w.rs.moveTo(other)
		w.as.forgetAll()
		_, _, err := post(tr, t.Context())
		if wrong, ok := errors.AsType[*oauthclient.IssuerError](err); !ok || wrong.Want != clientIssuer || wrong.Got != otherIssuer {
			t.Errorf("got %v", err)
		}
		if other.count("register") > 0 || w.loginCount() != 1 {
			t.Error("the client sent a request to the other authorization server")
		}
		anywhere := &oauthclient.TransportOptions{Store: opts.Store}
		w.mustPost(w.transport(anywhere))
		if s, err := w.transport(opts).Status(t.Context()); s != nil || err != nil {
			t.Errorf("it uses the tokens of another authorization server: %v %v", s, err)
		}
	})
}

// TestErrorsContainNoPartOfASecret has words that end, where they are cut, within what they repeat.
func TestErrorsContainNoPartOfASecret(t *testing.T) {
	const first = 12 // bytes of a secret
	check := func(t *testing.T, err error, secret string) {
		t.Helper()
		if err == nil || secret == "" || strings.Contains(err.Error(), secret[:first]) {
			t.Errorf("the error says %.*s…: %v", first, secret, err)
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
					text, _ := json.Marshal(map[string]string{"error": hide(verifier), "error_description": hide(verifier)})
					return http.StatusBadRequest, string(text)
				}
				_, _, err := post(w.transport(nil), t.Context())
				check(t, err, verifier)
			})
			withEnv(t, func(t *testing.T, w *testEnv) {
				var state string
				w.changeResponse(func(login *oauthclient.LoginRequest, _ url.Values) (url.Values, error) {
					state = login.State
					return url.Values{"state": {state}, "iss": {clientIssuer}, "error": {hide(state)}, "error_description": {hide(state)}}, nil
				})
				_, _, err := post(w.transport(nil), context.Background())
				check(t, err, state)
			})
		}
	}
}
