package oauthclient_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A server that requires tokens but has no authorization server: the error names what was looked for.
func TestLoginWithoutAuthorizationServer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.NotFound(w, r)
	}))
	defer s.Close()
	login := oauthclient.NewTransport(s.URL+"/mcp", &oauthclient.TransportOptions{
		Authorizer: oauthclient.NewAuthorizer("http://127.0.0.1/callback",
			func(context.Context, *oauthclient.LoginRequest) (url.Values, error) {
				return nil, errors.New("no page expected")
			}),
	})
	defer login.CloseIdleConnections()
	err := login.Login(t.Context())
	if !errors.Is(err, oauth.ErrNoMetadata) {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{
		"no authorization server found", "/.well-known/oauth-protected-resource/mcp (HTTP 404)",
		"/.well-known/oauth-authorization-server (HTTP 404)", "/register (revision 2025-03-26) does not work either",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error lacks %q: %v", part, err)
		}
	}
}
