package root

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// loginConfig returns the path of a configuration with a protected server.
func loginConfig(t *testing.T, settings string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "servers.json")
	writeFile(t, path, `{"mcpServers": {"notes": {"url": "`+protected(t)+`"}, "fs": {"command": "x"}},
		"patchbay": {"servers": {"notes": `+settings+`}}}`)
	return path
}

// The local user logs in to a server of the gateway on the command line, and a running gateway uses that.
func TestGatewayLoginOfTheLocalUser(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	path, ann := loginConfig(t, `{"auth": "caller"}`), newUserBrowser(t)
	g := startGateway(t, nil, "--config", path)
	c := loginClient(t, g, nil)
	res, err := c.CallTool(t.Context(), "log_in", nil)
	if err != nil || !res.IsError || !strings.Contains(res.Text(), "run patchbay gateway login notes --config ") {
		t.Fatalf("got %+v, %v, want the command", res, err)
	}
	if o := withBrowser(t, ann, "gateway", "login", "notes", "--config", path); o.status != exit.OK ||
		!strings.Contains(o.stdout, "logged in") {
		t.Fatalf("got %d, %s, %s", o.status, o.stdout, o.stderr)
	}
	if res, err = c.CallTool(t.Context(), "notes__who_am_i", nil); err != nil || !strings.Contains(res.Text(), `"user":"ann"`) {
		t.Errorf("got %+v, %v, want ann", res, err)
	}
	if o := patchbay(t, "", "gateway", "logout", "notes", "--config", path); o.status != exit.OK {
		t.Errorf("got %d, %s", o.status, o.stderr)
	}
	if o := patchbay(t, "", "gateway", "logout", "notes", "--config", path, "--json"); !strings.Contains(o.stdout,
		`"loggedOut":false`) {
		t.Errorf("got %d, %s, %s", o.status, o.stdout, o.stderr)
	}
	if o := patchbay(t, "", "gateway", "logout", "notes", "--config", path, "--caller", "ann"); o.status != exit.OK ||
		o.stdout != "ann is logged out of notes.\n" {
		t.Errorf("a caller: got %d, %s, %s", o.status, o.stdout, o.stderr)
	}
	_ = c.Close()
	if o := g.stop(); o.status != exit.OK {
		t.Errorf("got %d, %s", o.status, o.stderr)
	}
}

// loginClient connects a client to a gateway. Its pages go to open, unless it is nil.
func loginClient(t *testing.T, g *runningGateway, open func(ctx context.Context, page string) error) *mcp.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	opts := &mcp.ClientOptions{Logger: slog.New(slog.DiscardHandler)}
	if open != nil {
		opts.ElicitURL = func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept}, open(ctx, p.URL)
		}
	}
	c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(g.url, &mcphttp.TransportOptions{
		Client: &http.Client{Transport: transport}, Header: http.Header{"Authorization": {"Bearer " + g.key}}}), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A client that opens pages logs the local user in to the gateway's server.
func TestGatewayLoginByTheClient(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	ann := newUserBrowser(t)
	g := startGateway(t, nil, "--config", loginConfig(t, `{"auth": "caller"}`))
	c := loginClient(t, g, ann.open)
	if res, err := c.CallTool(t.Context(), "log_in", nil); err != nil || res.IsError {
		t.Fatalf("got %+v, %v", res, err)
	}
	res, err := c.CallTool(t.Context(), "notes__who_am_i", nil)
	if err != nil || !strings.Contains(res.Text(), `"user":"ann"`) {
		t.Errorf("got %+v, %v, want ann", res, err)
	}
	if n, page := ann.opened(); n != 1 || !strings.Contains(page, "You are logged in") {
		t.Errorf("%d pages, the last is %s", n, page)
	}
	_ = c.Close()
	g.stop()
}

func TestGatewayLoginErrors(t *testing.T) {
	freshVault(t)
	for settings, want := range map[string]string{
		`{"auth": "none"}`: `has "auth": "none"`, `{"auth": "forward", "forwardHeaders": ["X-A"]}`: `has "auth": "forward"`,
		`{"auth": "caller", "oauth": {"clientId": "id", "clientSecret": "NO_SUCH_VARIABLE", "issuer": "https://as.example"}}`: `NO_SUCH_VARIABLE is not set`,
	} {
		if o := atTerminal(t, "", nil, "gateway", "login", "notes", "--config", loginConfig(t, settings)); o.status != exit.Usage ||
			!strings.Contains(o.stderr, want) {
			t.Errorf("%s: got %d, %s, want %q", settings, o.status, o.stderr, want)
		}
	}
	path := loginConfig(t, `{}`)
	if o := patchbay(t, "", "gateway", "login", "nots", "--config", path); o.status != exit.NotFound ||
		!strings.Contains(o.stderr, "notes") {
		t.Errorf("got %d, %s", o.status, o.stderr)
	}
	if o := patchbay(t, "", "gateway", "login", "fs", "--config", path); o.status != exit.Usage {
		t.Errorf("a command: got %d, %s", o.status, o.stderr)
	}
	if o := patchbay(t, "", "gateway", "login", "notes", "--config", path, "--no-input"); o.status != exit.Auth {
		t.Errorf("got %d, %s", o.status, o.stderr)
	}
}

// The tokens of callers are apart in the vault, and not among the logins of the local user.
func TestTokensOfCallersAreApart(t *testing.T) {
	freshVault(t)
	p := newRun(strings.NewReader(""), &strings.Builder{}, &strings.Builder{})
	if _, err := p.Vault.Open(); err != nil {
		t.Fatal(err)
	}
	for _, principal := range []string{"", "3:iss3:ann0:", "3:iss3:bob0:"} {
		err := hosting.CallerTokens(p, principal).Update(t.Context(), "tokens x", func([]byte) ([]byte, error) {
			return []byte("of " + principal), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, principal := range []string{"", "3:iss3:ann0:", "3:iss3:bob0:"} {
		if got, err := hosting.CallerTokens(p, principal).Load(t.Context(), "tokens x"); err != nil || string(got) != "of "+principal {
			t.Errorf("%q: got %q, %v", principal, got, err)
		}
	}
	keys, err := p.Vault.Opened.Keys(t.Context())
	if err != nil || len(keys) != 3 || strings.Contains(strings.Join(keys, " "), "ann") {
		t.Errorf("got %q, %v", keys, err)
	}
}
