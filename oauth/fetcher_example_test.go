package oauth_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// A Fetcher made with For may also fetch from the machine of the server that it is for.
func ExampleFetcher() {
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"issuer":%q,"token_endpoint":%q}`, server.URL, server.URL+"/token")
	}))
	defer server.Close()

	f := oauth.NewFetcher(nil)
	_, err := f.FetchServerMetadata(context.Background(), server.URL)
	fmt.Println("without For: refused:", err != nil)

	at, err := url.Parse(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	m, err := f.For(at).FetchServerMetadata(context.Background(), server.URL)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("for a server on this machine: fetched:", m.TokenEndpoint == server.URL+"/token")
	// Output:
	// without For: refused: true
	// for a server on this machine: fetched: true
}
