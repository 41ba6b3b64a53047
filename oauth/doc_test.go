package oauth_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// The tests of this file run the code of the doc comments.

// TestDocRequire sends a request without a token.
func TestDocRequire(t *testing.T) {
	addr := freeport.Addr(t)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	challenged := make(chan string, 1)
	go func() {
		defer stop()
		challenged <- challengeOf(ctx, "http://"+addr+"/mcp")
	}()
	func() {
		server := mcp.NewServer("demo", "1.0.0", nil)
		verifier := oauth.NewJWTVerifier("https://auth.example.com", nil)
		protect := oauth.Require(verifier, oauth.ResourceMetadata{
			Resource:             "https://example.com/mcp",
			AuthorizationServers: []string{"https://auth.example.com"},
		}, nil)
		err := mcphttp.ListenAndServe(ctx, addr, "/mcp", mcphttp.NewHandler(server, nil), protect)
		if err != nil {
			t.Error(err)
		}
	}()
	const want = `resource_metadata="https://example.com/.well-known/oauth-protected-resource/mcp"`
	if got := <-challenged; !strings.Contains(got, want) {
		t.Errorf("got the challenge %s", got)
	}
}

// challengeOf returns the challenge of a server, which may not listen yet.
func challengeOf(ctx context.Context, url string) string {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
		if err != nil {
			return err.Error()
		}
		if res, err := transport.RoundTrip(req); err == nil {
			res.Body.Close()
			return res.Header.Get("WWW-Authenticate")
		}
		time.Sleep(5 * time.Millisecond)
	}
	return ""
}

func TestDocMetadataHandler(t *testing.T) {
	metadata := oauth.ResourceMetadata{
		Resource: "https://example.com/mcp", AuthorizationServers: []string{"https://auth.example.com"},
	}
	mux := http.NewServeMux()
	mux.Handle("/.well-known/oauth-protected-resource/", oauth.NewMetadataHandler(metadata))

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest("GET", "/.well-known/oauth-protected-resource/mcp", nil))
	if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "https://auth.example.com") {
		t.Errorf("got %d %s", answer.Code, answer.Body)
	}
}

func TestDocRequireScopes(t *testing.T) {
	admins := oauth.RequireScopes(&oauth.ScopeRules{Tools: map[string]oauth.Scopes{"delete": oauth.AllOf("admin")}})
	server := mcp.NewServer("files", "1.0.0", &mcp.ServerOptions{Middleware: []mcp.Middleware{admins}})

	mcp.AddTool(server, &mcp.Tool{Name: "delete"}, func(context.Context, struct{}) (string, error) { return "done", nil })
	c, err := mcp.Connect(t.Context(), mcp.InMemory(server), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, scope := range []string{"admin", "read"} {
		caller := mcp.WithPrincipal(t.Context(), &mcp.Principal{Subject: "ann", Scopes: []string{scope}})
		if _, err := c.CallTool(caller, "delete", nil); (err == nil) != (scope == "admin") {
			t.Errorf("scope %s: got %v", scope, err)
		}
	}
}
