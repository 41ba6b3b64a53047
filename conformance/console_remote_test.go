package conformance_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// A remoteConsole is the console of a running gateway.
type remoteConsole struct {
	t          *testing.T
	binary     string
	file, base string // the configuration, and the URL of the console without a path
	listen     string // the address of the console
	endpoint   string // of the gateway, for clients
	idp        *provider
}

// newRemoteConsole returns the console of a gateway that is not started.
func newRemoteConsole(t *testing.T) *remoteConsole {
	t.Helper()
	for _, name := range []string{"HOME", "PATCHBAY_STATE_DIR", "XDG_CONFIG_HOME", "PATCHBAY_VAULT_DIR"} {
		t.Setenv(name, filepath.Join(t.TempDir(), "private")) // the command creates it with access for the user only
	}
	w := &remoteConsole{t: t, binary: build(t, "..", "./gateway/cmd/patchbay"), listen: anyAddr(t),
		file: filepath.Join(t.TempDir(), "mcp.json")}
	w.base = "http://" + w.listen
	return w
}

// anyAddr returns an address with a free port.
func anyAddr(t *testing.T) string {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().String()
}

// run starts the gateway with a configuration until the test ends.
func (w *remoteConsole) run(configuration string, args ...string) {
	w.t.Helper()
	if err := os.WriteFile(w.file, []byte(configuration), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.endpoint = start(w.t, w.binary, append([]string{"gateway", "--config", w.file}, args...)...)
}

// startRemoteConsole runs a gateway with a console, keys and the certified OpenID provider, whose
// users have groups.
func startRemoteConsole(t *testing.T, groups map[string][]string) *remoteConsole {
	t.Helper()
	t.Setenv("GATEWAY_SECRET", "the secret of the gateway")
	w := newRemoteConsole(t)
	w.idp = startProvider(t, providerConfig{Groups: groups, Clients: []providerClient{{ID: "gateway",
		Secret: "the secret of the gateway", RedirectURIs: []string{w.base + "/login/callback"},
		GrantTypes: []string{"authorization_code"}, Type: "native", AuthMethod: "client_secret_basic"}}})
	w.run(fmt.Sprintf(`{"mcpServers": {"demo": {"command": %q, "args": ["serve", "--stdio", "--tasks", "memory"]}},
		"patchbay": {"auth": {"oidc": {"issuer": %q, "audience": "http://127.0.0.1", "clientId": "gateway",
		"clientSecret": "GATEWAY_SECRET"}}, "console": {"listen": %q, "publicURL": %q,
		"roles": {"viewer": ["staff"], "operator": ["platform"]}},
		"policy": {"rules": [{"when": "caller.subject == 'carol' && tool.name == 'add'", "do": "deny"}]}}}`,
		w.binary, w.idp.issuer, w.listen, w.base), "--addr", "127.0.0.1:0")
	return w
}

// key creates a key.
func (w *remoteConsole) key(name string, flags ...string) string {
	w.t.Helper()
	args := append([]string{"gateway", "keys", "new", name, "--config", w.file, "--all-servers", "--json"}, flags...)
	var made struct{ Key string }
	if err := json.Unmarshal(must(exec.Command(w.binary, args...).Output())(w.t), &made); err != nil || made.Key == "" {
		w.t.Fatalf("keys new: %v", err)
	}
	return made.Key
}

// logIn opens the console in a tab and sends a key.
func (w *remoteConsole) logIn(p *watchedTab, key string) {
	w.t.Helper()
	p.open(w.base + "/")
	p.enter("#token", key)
	p.click("#login button")
}

// isAllowed reports whether a page may stop a server, by its button and by a request of its script.
func isAllowed(p *watchedTab) (button, request bool) {
	button = p.has("#server-demo form[action='/servers/stop']")
	p.read(chromedp.Evaluate[string](`(delete document.body.dataset.status, fetch("/servers/stop", {method: "POST",
		body: new URLSearchParams({server: "none"})}).then(r => document.body.dataset.status = r.status), "")`))
	p.waitFor("the response", `document.body.dataset.status !== undefined`)
	return button, p.read(chromedp.Evaluate[string](`document.body.dataset.status`)) == "404" // an unknown server
}

// TestConsoleRemote logs people in with keys and at the certified OpenID provider: their roles
// limit pages and requests, runs are theirs under the policy, and a revoked key ends its pages.
func TestConsoleRemote(t *testing.T) {
	browser := startBrowser(t)
	w := startRemoteConsole(t, map[string][]string{"carol": {"platform", "staff"}, "dave": {"staff"},
		"eve": {"guests"}})
	const live = `document.querySelector("#connection.live") !== null`

	ann := newWatchedTab(t, browser)
	w.logIn(ann, w.key("ann", "--console", "operator"))
	ann.waitFor("the stream of ann", live)
	ann.click("#server-demo form[action='/servers/restart'] button")
	ann.waitFor("the tools for ann", `document.querySelector("#server-demo.ok details.tools") !== null`)
	if button, request := isAllowed(ann); !button || !request {
		t.Errorf("ann, an operator, may stop servers: button %t, request %t", button, request)
	}

	bob := newWatchedTab(t, browser)
	w.logIn(bob, w.key("bob", "--console", "viewer"))
	bob.waitFor("the stream of bob", live)
	bob.waitForText("bob, viewer")
	if button, request := isAllowed(bob); button || request {
		t.Errorf("bob, a viewer, may stop servers: button %t, request %t", button, request)
	}

	client := newWatchedTab(t, browser)
	w.logIn(client, w.key("client"))
	client.waitForText("no role")
	if client.has("#server-demo") {
		t.Error("a key without a role opens the console")
	}

	for name, role := range map[string]string{"carol": "operator", "dave": "viewer", "eve": ""} {
		p := newWatchedTab(t, browser)
		p.open(w.base + "/")
		p.click("a[href^='/login/identity']")
		p.loginAtProvider(w.idp, name)
		if role == "" {
			p.waitForText("no role in this console")
			p.open(w.base + "/")
			p.waitForText("open the console")
			continue
		}
		p.waitFor("the stream of "+name, live)
		p.waitForText(name + ", " + role)
		if button, request := isAllowed(p); button != (role == "operator") || request != button {
			t.Errorf("%s, a %s, may stop servers: button %t, request %t", name, role, button, request)
		}
		if name == "carol" {
			p.open(w.base + "/explore?server=demo&kind=tools&name=add")
			p.waitFor("the form of carol", `document.querySelector("[id='f/a']") !== null`)
			p.enter(`[id='f/a']`, "20")
			p.enter(`[id='f/b']`, "22")
			p.do("press Ctrl+Enter", chromedp.KeyEvent("\r", chromedp.KeyModifiers(2)))
			p.waitForText("denied")
		}
		p.open(w.base + "/")
		p.click("form[action='/logout'] button")
		p.waitForText("open the console")
	}

	if out, err := exec.Command(w.binary, "gateway", "keys", "revoke", "ann").CombinedOutput(); err != nil {
		t.Fatalf("revoke: %v, %s", err, out)
	}
	ann.waitForText("the session has ended")
	ann.open(w.base + "/")
	ann.waitForText("open the console")
	if !bob.has("#connection.live") {
		t.Error("the end of another key ended the page of bob")
	}
}
