package oauth_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// A network is an oauthtest.Network with the Fetcher of package oauth.
type network struct{ *oauthtest.Network }

func newNetwork(t testing.TB) *network { return &network{oauthtest.NewNetwork(t)} }

func (n *network) fetcher(opts *oauth.FetcherOptions) *oauth.Fetcher {
	return (*oauth.Fetcher)(n.Fetcher((*oauthfetch.Options)(opts)))
}
