package root

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/gatewayclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// beginLogin returns the page of a login of the local user at a server of a running gateway.
func beginLogin(t *testing.T, path, server string) (page string, err error) {
	t.Helper()
	p := newRun(strings.NewReader(""), io.Discard, io.Discard)
	p.Flags.Config = path
	admin, err := gatewayclient.Require(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var login struct{ URL string }
	err = admin.Do(t.Context(), http.MethodPost, "/servers/"+server+":login", nil, &login)
	return login.URL, err
}

// The local user logs in on a page of the running gateway, whatever the settings of the server are, and the
// next request uses the login.
func TestGatewayLoginOnAPage(t *testing.T) {
	for _, settings := range []string{`{}`, `{"auth": "gateway"}`, `{"auth": "caller"}`} {
		t.Run(settings, func(t *testing.T) {
			mcptest.NoLeaks(t)
			freshVault(t)
			t.Setenv(userdir.EnvState, t.TempDir())
			path, ann := loginConfig(t, settings), newUserBrowser(t)
			g := startGateway(t, nil, "--config", path)
			c := loginClient(t, g, nil)
			res, err := c.CallTool(t.Context(), "notes__who_am_i", nil)
			if err == nil && !res.IsError {
				t.Fatalf("before the login: %+v", res)
			}
			page, err := beginLogin(t, path, "notes")
			if err != nil {
				t.Fatal(err)
			}
			if err := ann.visit(page); err != nil {
				t.Fatal(err)
			}
			all := settings != `{"auth": "caller"}`
			if _, text := ann.opened(); !strings.Contains(text, "You are logged in") ||
				strings.Contains(text, "all callers of this gateway") != all {
				t.Errorf("the last page: %s", text)
			}
			res, err = c.CallTool(t.Context(), "notes__who_am_i", nil)
			if err != nil || !strings.Contains(res.Text(), `"user":"ann"`) {
				t.Errorf("after the login: %+v, %v, want ann", res, err)
			}
			_ = c.Close()
			g.stop()
		})
	}
}

// A login that connections of the gateway would not use is refused before the user makes it.
func TestGatewayLoginOnAPageIsRefused(t *testing.T) {
	freshVault(t)
	t.Setenv(userdir.EnvState, t.TempDir())
	path := filepath.Join(t.TempDir(), "servers.json")
	writeFile(t, path, `{"mcpServers": {"plain": {"url": "http://plain.example/mcp"}, "notes": {"url": "https://notes.example/mcp"},
		"fs": {"command": "x"}}, "patchbay": {"servers": {"notes":
		{"auth": "gateway", "oauth": {"clientId": "id", "issuer": "https://as.example"}}}}}`)
	g := startGateway(t, nil, "--config", path)
	for server, want := range map[string]string{"plain": "must be https", "notes": "registered client: run patchbay gateway login notes",
		"fs": "is a command", "no": "unknown server"} {
		if page, err := beginLogin(t, path, server); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, %v, want %q", server, page, err, want)
		}
	}
	t.Setenv(login.EnvClientID, "machine")
	if _, err := beginLogin(t, path, "notes"); err == nil || !strings.Contains(err.Error(), "no user logs in") {
		t.Errorf("with client credentials: %v", err)
	}
	g.stop()
}
