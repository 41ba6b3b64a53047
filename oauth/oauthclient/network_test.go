package oauthclient_test

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// A network is an oauthtest.Network with the Fetcher of package oauth.
type network struct {
	*oauthtest.Network
	t testing.TB
}

func newNetwork(t testing.TB) *network { return &network{oauthtest.NewNetwork(t), t} }

func (n *network) fetcher(opts *oauth.FetcherOptions) *oauth.Fetcher {
	return (*oauth.Fetcher)(n.Fetcher((*oauthfetch.Options)(opts)))
}

// refusedURLs returns URLs that every Fetcher refuses by their text.
func refusedURLs(t testing.TB) (urls []string) {
	t.Helper()
	data, err := os.ReadFile("../../internal/oauthfetch/testdata/refused_urls.json")
	if err == nil {
		err = json.Unmarshal(data, &urls)
	}
	if err != nil {
		t.Fatal(err)
	}
	return urls
}

// statusPage returns a handler that responds with a status.
func statusPage(status int) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(status) }
}
