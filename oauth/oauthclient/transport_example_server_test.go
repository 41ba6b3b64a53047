package oauthclient_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// newExampleServer returns an MCP server and its authorization server in one.
func newExampleServer() *httptest.Server {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	reply := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, oauth.ResourceMetadata{
			Resource: server.URL + "/mcp", AuthorizationServers: []string{server.URL},
			ScopesSupported: []string{"read"},
		})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, oauth.ServerMetadata{
			Issuer: server.URL, AuthorizationEndpoint: server.URL + "/authorize", TokenEndpoint: server.URL + "/token",
			RegistrationEndpoint: server.URL + "/register", CodeChallengeMethods: []string{"S256"},
			TokenEndpointAuthMethods: []string{"none"},
		})
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusCreated, map[string]any{"client_id": "example"})
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("code") != "of-ann" || r.FormValue("code_verifier") == "" {
			reply(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
			return
		}
		reply(w, http.StatusOK, map[string]any{"access_token": "good", "token_type": "Bearer", "expires_in": 600})
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) { // the user agrees
		answer := url.Values{"code": {"of-ann"}, "state": {r.FormValue("state")}}
		http.Redirect(w, r, r.FormValue("redirect_uri")+"?"+answer.Encode(), http.StatusFound)
	})
	mux.Handle("/mcp", newResource())
	return server
}

// newResource returns an MCP server, whose endpoint answers GET with a text, for tokens that are good.
func newResource() http.Handler {
	server := mcp.NewServer("hello", "1.0.0", nil)
	mcp.AddTool(server, &mcp.Tool{Name: "extensions"}, func(ctx context.Context, _ struct{}) ([]string, error) {
		return slices.Collect(maps.Keys(mcp.RequestFrom(ctx).Capabilities().Extensions)), nil
	})
	h := mcphttp.NewHandler(server, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer good":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, "hello")
		default:
			h.ServeHTTP(w, r)
		}
	})
}
