package oauthclient_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A client that is closed after a logout ends its session with DELETE, which must not log in again.
func TestEndOfASessionDoesNotLogIn(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		store := oauthclient.NewMemoryStore()
		tr := w.transport(&oauthclient.TransportOptions{Store: store})
		w.mustPost(tr)
		if err := tr.Logout(t.Context()); err != nil {
			t.Fatal(err)
		}
		logins := w.loginCount()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, clientMCP, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := tr.RoundTrip(req)
		if err != nil || res.StatusCode != http.StatusUnauthorized {
			t.Fatalf("got %v, %v, want status 401", res, err)
		}
		res.Body.Close()
		if got := w.loginCount(); got != logins {
			t.Errorf("got %d logins after the end of the session, want %d", got, logins)
		}
	})
}

// A server may name its metadata only in the challenge of a POST, and answer GET with 405.
func TestLoginUsesTheChallengeOfAPost(t *testing.T) {
	for _, only := range []string{http.MethodPost, http.MethodGet} {
		withEnv(t, func(t *testing.T, w *testEnv) {
			w.rs.set(func(r *fakeResource) { r.path = "https://mcp.example/metadata" })
			w.rs.document(w.as.issuer, nil)
			w.Doc("https://mcp.example/.well-known/oauth-protected-resource/mcp", "<!doctype html>")
			tr := oauthclient.NewTransport(clientMCP, &oauthclient.TransportOptions{
				Base: roundTripper(func(req *http.Request) (*http.Response, error) {
					if req.Method != only {
						return &http.Response{StatusCode: http.StatusMethodNotAllowed, Body: http.NoBody, Request: req}, nil
					}
					return w.roundTrip(req)
				}),
				Fetcher: w.fetcher(nil), Logger: slog.New(slog.DiscardHandler),
				Authorizer: oauthclient.NewAuthorizer(clientRedirect, w.login),
			})
			if err := tr.Login(t.Context()); err != nil || w.loginCount() != 1 {
				t.Errorf("%s only: got error %v after %d logins, want success after 1", only, err, w.loginCount())
			}
		})
	}
}
