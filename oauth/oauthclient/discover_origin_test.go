package oauthclient_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// The resource_metadata of a challenge may be at another origin, if the document there is about the
// MCP server itself.
//
// Requirement: AUTHR-05, AUTHR-07
func TestResourceMetadataAtAnotherOrigin(t *testing.T) {
	const elsewhere = "https://metadata.example/.well-known/oauth-protected-resource/mcp"
	for name, tt := range map[string]struct {
		text     string
		endpoint string // default: mcpServer
		ok       bool
	}{
		"the server":                        {text: resourceDoc(mcpServer, issuer), ok: true},
		"the server with a slash":           {text: resourceDoc(mcpServer+"/", issuer), ok: true},
		"the server in another case":        {text: resourceDoc("HTTPS://MCP.example/mcp", issuer), ok: true},
		"the server without a path":         {text: resourceDoc("https://mcp.example", issuer), endpoint: "https://mcp.example/", ok: true},
		"the origin of the server":          {text: resourceDoc("https://mcp.example", issuer)},
		"another path":                      {text: resourceDoc(mcpServer+"2", issuer)},
		"the other origin":                  {text: resourceDoc(elsewhere, issuer)},
		"no resource":                       {text: `{"authorization_servers":["` + issuer + `"]}`},
		"the server with a query":           {text: resourceDoc(mcpServer+"?a=b", issuer)},
		"a parent of the server's own path": {text: resourceDoc(mcpServer, issuer), endpoint: mcpServer + "/tenant"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNetwork(t)
			w.Doc(elsewhere, tt.text)
			w.Doc(mcpPath, resourceDoc(mcpServer, "https://other.example")) // not asked
			w.Doc(asRoot, serverDoc(issuer))
			q := &oauthclient.DiscoveryQuery{Endpoint: mcpServer, Challenge: metadataChallenge(elsewhere)}
			if tt.endpoint != "" {
				q.Endpoint = tt.endpoint
			}
			d, err := oauthclient.Discover(t.Context(), w.fetcher(nil), q)
			want := []string{"GET " + elsewhere}
			if tt.ok {
				want = append(want, "GET "+asRoot)
			}
			if got := w.Requests(); !slices.Equal(got, want) {
				t.Errorf("requested %q, want %q", got, want)
			}
			if _, invalid := errors.AsType[*oauth.DiscoveryError](err); invalid == tt.ok || tt.ok && (err != nil || d.Issuer != issuer) {
				t.Errorf("got %+v, error %v; want success %t", d, err, tt.ok)
			}
		})
	}
}

// The rules of the Fetcher hold for a resource_metadata at another origin: a host at a private address
// is not connected to, as if the challenge had not named it, and a redirect is not followed.
//
// Requirement: SEC-07
func TestResourceMetadataAtAnotherOriginIsGuarded(t *testing.T) {
	const elsewhere = "https://metadata.example/.well-known/oauth-protected-resource/mcp"
	for name, tt := range map[string]struct {
		prepare func(w *network)
		ok      bool
	}{
		"private address": {func(w *network) { w.At("metadata.example", "10.0.0.7") }, true},
		"cloud":           {func(w *network) { w.At("metadata.example", "169.254.169.254") }, true},
		"redirect": {func(w *network) {
			w.Page(elsewhere, oauthtest.RedirectPage("https://third.example/mcp"))
			w.Doc("https://third.example/mcp", resourceDoc(mcpServer, "https://evil.example"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNetwork(t)
			w.Doc(elsewhere, resourceDoc(mcpServer, "https://evil.example"))
			w.Doc(mcpPath, resourceDoc(mcpServer, issuer))
			w.Doc(asRoot, serverDoc(issuer))
			tt.prepare(w)
			d, err := oauthclient.Discover(t.Context(), w.fetcher(nil),
				&oauthclient.DiscoveryQuery{Endpoint: mcpServer, Challenge: metadataChallenge(elsewhere)})
			_, failed := errors.AsType[*oauth.FetchError](err)
			if failed == tt.ok || tt.ok && (err != nil || d.Issuer != issuer) {
				t.Errorf("got %+v, error %v; want success %t", d, err, tt.ok)
			}
			if got := w.Addresses(); len(got) != 1 || got[0] != oauthtest.DefaultAddress {
				t.Errorf("connected to %v, want one public address", got)
			}
		})
	}
}

// At another origin, the client requests only well-known addresses of metadata. Otherwise, a server could make the
// client send a request to any path of another machine.
//
// Requirement: SEC-07
func TestResourceMetadataOfANeighbourIsAtItsWellKnownPath(t *testing.T) {
	for _, to := range []string{"https://other.example/admin/delete", "https://other.example/",
		"https://other.example/.well-known/oauth-protected-resources", "https://other.example/.well-known/oauth-protected-resource/../admin",
		"https://other.example/.well-known/oauth-protected-resource/%2e%2e/admin", "https://mcp.example:8443/admin",
		"https://other.example/x/.well-known/oauth-protected-resource"} {
		w := newNetwork(t)
		w.Doc(to, resourceDoc(mcpServer, "https://evil.example"))
		w.Doc(mcpPath, resourceDoc(mcpServer, issuer))
		w.Doc(asRoot, serverDoc(issuer))
		d, err := oauthclient.Discover(t.Context(), w.fetcher(nil),
			&oauthclient.DiscoveryQuery{Endpoint: mcpServer, Challenge: metadataChallenge(to)})
		if err != nil || d.Issuer != issuer || slices.Contains(w.Requests(), "GET "+to) {
			t.Errorf("%s: got %+v, error %v, requests %q; want none of them to it", to, d, err, w.Requests())
		}
	}
}
