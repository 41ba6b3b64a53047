package oauthclient_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// newMachineExampleServer returns an MCP server, its authorization server and an identity provider
// in one. It prints the token requests.
func newMachineExampleServer() *httptest.Server {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	reply := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, oauth.ResourceMetadata{Resource: server.URL + "/mcp", AuthorizationServers: []string{server.URL}})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, oauth.ServerMetadata{Issuer: server.URL, TokenEndpoint: server.URL + "/token"})
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(strings.TrimSpace("authorization server: " + r.FormValue("grant_type") + " " +
			r.FormValue("assertion")))
		reply(w, map[string]any{"access_token": "good", "token_type": "Bearer", "expires_in": 600})
	})
	mux.HandleFunc("/sso/token", func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("identity provider:", r.FormValue("grant_type"), r.FormValue("subject_token"))
		reply(w, map[string]any{
			"access_token": "access-for-ann", "token_type": "N_A",
			"issued_token_type": "urn:ietf:params:oauth:token-type:id-jag",
		})
	})
	mux.Handle("/mcp", newResource())
	return server
}

// getWith sends one request through a Transport, as an MCP client does.
func getWith(t *oauthclient.Transport, endpoint string) {
	defer t.CloseIdleConnections()
	res, err := (&http.Client{Transport: t}).Get(endpoint)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	fmt.Println("server:", string(text), err)
}

func ExampleNewClientCredentialsGrant() {
	server := newMachineExampleServer()
	defer server.Close()
	endpoint := server.URL + "/mcp"
	t := oauthclient.NewTransport(endpoint, &oauthclient.TransportOptions{
		Grant:  oauthclient.NewClientCredentialsGrant(),
		Client: oauthclient.Identity{ID: "nightly-report", Secret: "secret", Issuer: server.URL},
	})
	getWith(t, endpoint)
	// Output:
	// authorization server: client_credentials
	// server: hello <nil>
}

func ExampleNewWorkloadGrant() {
	server := newMachineExampleServer()
	defer server.Close()
	endpoint := server.URL + "/mcp"
	t := oauthclient.NewTransport(endpoint, &oauthclient.TransportOptions{
		// In a cluster this is oauthclient.AssertionFile("/var/run/secrets/tokens/mcp").
		Grant: oauthclient.NewWorkloadGrant(func(_ context.Context, issuer string) (string, error) {
			return "jwt-of-the-platform", nil
		}),
		// The JWT is sent to no other authorization server that the MCP server may name.
		Client: oauthclient.Identity{Issuer: server.URL},
	})
	getWith(t, endpoint)
	// Output:
	// authorization server: urn:ietf:params:oauth:grant-type:jwt-bearer jwt-of-the-platform
	// server: hello <nil>
}

func ExampleNewEnterpriseGrant() {
	server := newMachineExampleServer()
	defer server.Close()
	endpoint := server.URL + "/mcp"
	t := oauthclient.NewTransport(endpoint, &oauthclient.TransportOptions{
		Grant: oauthclient.NewEnterpriseGrant(&oauthclient.EnterpriseOptions{
			TokenEndpoint: server.URL + "/sso/token",
			ClientID:      "editor",
			Subject: func(context.Context) (token, tokenType string, err error) {
				return "id-token-of-ann", oauthclient.TokenTypeID, nil
			},
		}),
		Client: oauthclient.Identity{ID: "editor-at-mcp", Secret: "secret", Issuer: server.URL},
	})
	getWith(t, endpoint)
	// Output:
	// identity provider: urn:ietf:params:oauth:grant-type:token-exchange id-token-of-ann
	// authorization server: urn:ietf:params:oauth:grant-type:jwt-bearer access-for-ann
	// server: hello <nil>
}
