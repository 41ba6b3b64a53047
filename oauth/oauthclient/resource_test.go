package oauthclient_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// The resource parameter is the identifier in the server's metadata, byte for byte: the canonical URI of
// the server, with a scheme and without a fragment.
//
// Requirement: AUTHR-15, AUTHR-16
func TestResourceParameterIsTheCanonicalURI(t *testing.T) {
	for name, tt := range map[string]struct {
		identifier string
		ok         bool
	}{
		"the server":            {clientMCP, true},
		"upper-case host":       {"https://MCP.EXAMPLE/mcp", true},
		"upper-case scheme":     {"HTTPS://mcp.example/mcp", true},
		"slash at the end":      {clientMCP + "/", true},
		"the origin":            {"https://mcp.example", true},
		"without a scheme":      {"mcp.example/mcp", false},
		"with a fragment":       {clientMCP + "#tools", false},
		"with an empty one":     {clientMCP + "#", false},
		"a path within it":      {clientMCP + "/tools", false},
		"another server's path": {"https://mcp.example/other", false},
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				w.rs.resource = tt.identifier
				w.as.set(func(s *fakeServer) { s.resource = tt.identifier })
				w.rs.document(w.as.issuer, nil)
				tr := w.transport(nil)
				status, _, err := post(tr, t.Context())
				if (err == nil && status == 200) != tt.ok {
					t.Fatalf("got %d, error %v; want success %t", status, err, tt.ok)
				}
				if got := w.as.last.Get("resource"); tt.ok && got != tt.identifier || !tt.ok && w.loginCount() != 0 {
					t.Errorf("got resource %q after %d logins, want %q", got, w.loginCount(), tt.identifier)
				}
			})
		})
	}
	// A fragment in the address of the server is not part of the resource.
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := oauthclient.NewTransport(clientMCP+"#fragment", &oauthclient.TransportOptions{
			Base: roundTripper(w.roundTrip), Fetcher: w.fetcher(nil), Logger: discardLog,
			Authorizer: oauthclient.NewAuthorizer(clientRedirect, w.login),
		})
		w.mustPost(tr)
		if got := w.as.last.Get("resource"); got != clientMCP {
			t.Errorf("got resource %q, want %q", got, clientMCP)
		}
	})
}
