package oauthclient_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"

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
			Resource: server.URL + "/mcp", AuthorizationServers: []string{server.URL}, ScopesSupported: []string{"read"},
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
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, "hello")
	})
	return server
}
