package oauthclient_test

import (
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
