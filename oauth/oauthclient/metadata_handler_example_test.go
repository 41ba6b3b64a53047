package oauthclient_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

func ExampleNewMetadataHandler() {
	const id = "https://app.example.com/oauth/client.json"
	document, err := oauthclient.NewMetadataHandler(&oauth.ClientMetadata{
		ClientID:     id,
		Name:         "Example App",
		RedirectURIs: []string{"http://127.0.0.1/callback", "http://localhost/callback"},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /oauth/client.json", document)

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, id, nil))
	fmt.Println(w.Body)
	// Output:
	// {"client_id":"https://app.example.com/oauth/client.json","client_name":"Example App","redirect_uris":["http://127.0.0.1/callback","http://localhost/callback"]}
}
