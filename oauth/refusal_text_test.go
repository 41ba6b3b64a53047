package oauth_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// The errors of a client and the log of the server name what a refused request lacks.
func TestRefusalsNameWhatIsMissing(t *testing.T) {
	server := mcp.NewServer("files", "1.0.0", &mcp.ServerOptions{
		Middleware: []mcp.Middleware{oauth.RequireScopes(&oauth.ScopeRules{
			Tools: map[string]oauth.Scopes{"rule": oauth.AllOf("files:write", "files:read")},
		})},
	})
	mcp.AddTool(server, &mcp.Tool{Name: "rule"}, func(context.Context, struct{}) (string, error) { return "", nil })
	mcp.AddTool(server, &mcp.Tool{Name: "check"}, func(ctx context.Context, _ struct{}) (string, error) {
		return "", oauth.CheckScopes(ctx, oauth.AllOf("admin"))
	})
	const token = "a-token-of-the-configuration"
	verifier, err := oauth.NewStaticVerifier(oauth.StaticToken{Token: token, Subject: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	log := &bytes.Buffer{}
	var handler http.Handler
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(site.Close)
	handler = oauth.Require(verifier, oauth.ResourceMetadata{Resource: site.URL},
		&oauth.RequireOptions{Logger: slog.New(slog.NewTextHandler(log, nil))})(mcphttp.NewHandler(server, nil))
	connect := func(token string) (*mcp.Client, error) {
		opts := &mcphttp.TransportOptions{Header: http.Header{}}
		if token != "" {
			opts.Header.Set("Authorization", "Bearer "+token)
		}
		return mcp.Connect(t.Context(), mcphttp.NewTransport(site.URL, opts), nil)
	}
	for token, want := range map[string]string{
		"": `mcp: server/discover: HTTP 401 Unauthorized: "an access token is needed"; the request had no Authorization ` +
			`header: the server requires an access token or a login`,
		"another-token-of-nobody": `mcp: server/discover: HTTP 401 Unauthorized: "the access token is not valid here"; ` +
			`the server does not accept the token in the Authorization header`,
	} {
		if _, err := connect(token); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("token %q: got %v, want %s", token, err, want)
		}
	}
	c, err := connect(token)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for tool, scopes := range map[string]string{"rule": "files:write files:read", "check": "admin"} {
		log.Reset()
		want := `mcp: tools/call: HTTP 403 Forbidden: "the token does not have all of these scopes: ` +
			strings.ReplaceAll(scopes, " ", ", ") + `"`
		if _, err := c.CallTool(t.Context(), tool, nil); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		for _, part := range []string{"level=INFO", "subject=ann", "name=" + tool, scopes} {
			if strings.Count(log.String(), part) != 1 {
				t.Errorf("%s: the log lacks %q: %s", tool, part, log)
			}
		}
	}
}

func TestStaticTokenWithoutSubject(t *testing.T) {
	_, err := oauth.NewStaticVerifier(oauth.StaticToken{Token: "a-token-of-the-configuration"})
	if err == nil || err.Error() != "oauth: NewStaticVerifier: token 0: missing Subject" {
		t.Errorf("got %v", err)
	}
}
