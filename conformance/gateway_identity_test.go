package conformance_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A caller whom the certified OpenID provider has authenticated sends the address of its login page to another user. The
// gateway asks the provider who has opened the page, refuses the other user, and logs in only the caller.
//
// Requirement: ELI-21
func TestLoginPagesAreForTheirCaller(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	for _, name := range []string{"HOME", "PATCHBAY_STATE_DIR", "XDG_CONFIG_HOME", "PATCHBAY_VAULT_DIR"} {
		t.Setenv(name, filepath.Join(t.TempDir(), "private")) // the command creates it with access for the user only
	}
	t.Setenv("GATEWAY_SECRET", "the secret of the gateway")
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	addr := l.Addr().String()
	_ = l.Close()
	patchbay := build(t, "..", "./gateway/cmd/patchbay")
	notes := start(t, patchbay, "serve", "--auth", "demo", "--addr", "127.0.0.1:0", "--tasks", "memory")
	p := startProvider(t, providerConfig{Clients: []providerClient{{ID: "gateway", Secret: "the secret of the gateway",
		RedirectURIs: []string{"http://" + addr + "/connect/identity"}, GrantTypes: []string{"authorization_code"},
		Type: "native", AuthMethod: "client_secret_basic"}}})
	file := filepath.Join(t.TempDir(), "mcp.json")
	text := fmt.Sprintf(`{"mcpServers": {"notes": {"url": %q}}, "patchbay": {"servers": {"notes": {"auth": "caller"}},
		"auth": {"oidc": {"issuer": %q, "audience": "http://127.0.0.1", "scopes": ["mcp:read"],
		"clientId": "gateway", "clientSecret": "GATEWAY_SECRET"}}}}`, notes, p.issuer)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	endpoint := start(t, patchbay, "gateway", "--config", file, "--addr", addr)

	caller, other := newLoginClient(t), newLoginUser(t)
	caller.user.name, caller.user.password, other.name, other.password = "ann", "demo", "bob", "demo"
	seen, done := "", ""
	opened := func(ctx context.Context, e *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		_, err := other.visit(ctx, e.URL)
		seen = fmt.Sprint(err)
		done, err = caller.user.visit(ctx, e.URL)
		return &mcp.ElicitResult{Action: mcp.ElicitAccept}, err
	}
	client := &http.Client{Transport: caller.transport(t, endpoint)}
	c := dial(ctx, t, mcphttp.NewTransport(endpoint, &mcphttp.TransportOptions{Client: client, Logger: logger(t)}),
		&mcp.ClientOptions{ElicitURL: opened})
	res := must(c.CallTool(ctx, "log_in", nil))(t)
	if res.IsError || !strings.Contains(res.Text(), "Logged in to notes") {
		t.Errorf("log_in: %s", res.Text())
	}
	if !strings.Contains(seen, "403") || !strings.Contains(seen, "You are not the caller that the login is for") {
		t.Errorf("the other user: %s, want 403", seen)
	}
	if !strings.Contains(done, "You are logged in") {
		t.Errorf("the caller: %s", done)
	}
	if who := must(c.CallTool(ctx, "who_am_i", nil))(t); !strings.Contains(who.Text(), `"user":"ann"`) {
		t.Errorf("the server sees %s, want ann", who.Text())
	}
}
