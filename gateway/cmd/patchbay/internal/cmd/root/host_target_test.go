package root

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Every command works over all configured servers.
func TestHostIsATarget(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	freshState(t)
	file := threeServers(t, "mcp.json", "mcpServers")
	for _, revision := range mcptest.Revisions() {
		for _, c := range []struct {
			status int
			stdout string // contained
			stderr string // contained
			args   []string
		}{
			{exit.Incomplete, "two__add a=integer b=integer", "1 of 4 servers have failed: dead (unavailable)", []string{"tools", target.HostName}},
			{exit.OK, "42\n", "", []string{"call", target.HostName, "one__add", "a=40", "b=2"}},
			{exit.OK, "42\n", "", []string{"call", target.HostName, "web__add", "a=40", "b=2"}},
			{exit.OK, "counted to 2\n", "progress: 2/2", []string{"call", target.HostName, "two__count", "steps=2"}},
			{exit.NotFound, "", `unknown tool "one__ad": did you mean "one__add"?`, []string{"call", target.HostName, "one__ad", "a=1"}},
			{exit.Incomplete, "one__", "1 of 4 servers have failed: dead (unavailable)", []string{"prompts", target.HostName}},
			{exit.OK, "ms", "", []string{"ping", target.HostName}},
			{exit.Incomplete, `"name":"one__add"`, "1 of 4 servers have failed: dead (unavailable)", []string{"tools", "--json", target.HostName}},
			{exit.Incomplete, "→ ", "1 of 4 servers have failed: dead (unavailable)", []string{"tools", target.HostName}},
		} {
			args := append(c.args, "--config", file, "--revision", revision)
			if c.stdout == "→ " {
				args, c.stdout, c.stderr = append(args, "-v"), "", "→ tools/list"
			}
			var o outcome
			eventually(t, "the tools of all servers are listed", func() bool {
				o = patchbay(t, "", args...)
				return c.args[0] != "tools" || strings.Contains(o.stdout, c.stdout)
			})
			if o.status != c.status || !strings.Contains(o.stdout, c.stdout) || !strings.Contains(o.stderr, c.stderr) {
				t.Errorf("%q: %+v, want %d, %q, %q", args, o, c.status, c.stdout, c.stderr)
			}
		}
	}
}

func TestShellOverAllServers(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	freshState(t)
	file := threeServers(t, "mcp.json", "mcpServers")
	o := patchbay(t, "call one__add a=1 b=2\ncall web__add a=3 b=4\nresources\nread one__no://x\n", "shell", target.HostName, "--config", file,
		"--keep-going")
	if !strings.Contains(o.stdout, "3\n7\n") {
		t.Errorf("%+v, want 3 and 7", o)
	}
}

// Flags and commands of one server say that @host is several.
func TestHostIsSeveralServers(t *testing.T) {
	freshVault(t)
	file := oneServerFile(t)
	for _, args := range [][]string{
		{"tools", "--header", "A: b"}, {"tools", "--env", "A=b"}, {"tools", "--cwd", "."}, {"auth", "login"}, {"auth", "status"},
	} {
		o := patchbay(t, "", append(args, target.HostName, "--config", file)...)
		if o.status != exit.Usage || !strings.Contains(o.stderr, "@host") {
			t.Errorf("%q: %+v, want a usage error about @host", args, o)
		}
	}
	if o := patchbay(t, "", "tools", target.HostName, "--config", filepath.Join(t.TempDir(), "no.json")); o.status != exit.Usage {
		t.Errorf("without a configuration: %+v, want %d", o, exit.Usage)
	}
}

// Completion uses servers at URLs, and starts no command.
func TestHostIsCompleted(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	mark := filepath.Join(t.TempDir(), "mark")
	file := filepath.Join(t.TempDir(), "mcp.json")
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"touch": map[string]any{"command": "touch", "args": []string{mark}},
		"web":   map[string]any{"url": listenHTTP(t, newServer("demo"))},
	}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, string(text))
	t.Setenv("PATCHBAY_CONFIG", file)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"@host\n", []string{"call", "@"}},
		{"@host\n", []string{"gateway", "@h"}},
		{"web__add\n", []string{"call", target.HostName, "web__a"}},
		{"a=\n", []string{"call", target.HostName, "web__add", ""}},
	} {
		o := patchbay(t, "", append([]string{"__complete"}, c.args...)...)
		if !strings.Contains(o.stdout, c.want) {
			t.Errorf("%q: %+v, want %q", c.args, o, c.want)
		}
	}
	if o := patchbay(t, "", "__complete", "call", "we"); strings.Contains(o.stdout, target.HostName) {
		t.Errorf("another word: %s, want no @host", o.stdout)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("completion has started a command")
	}
}

// The servers of @host have the logins of their own: no other server gets the token. An error names the
// command that logs in.
//
// Requirement: HOST-35
func TestHostUsesTheLoginOfEachServer(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	freshState(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	var requests, tokens atomic.Int64 // of another server
	inner := mcphttp.NewHandler(newServer("demo"), nil)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("Authorization") != "" {
			tokens.Add(1)
		}
		inner.ServeHTTP(w, r)
	}))
	defer other.Close()
	defer inner.Shutdown(t.Context())
	writeFile(t, file, `{"mcpServers": {"demo": {"url": "`+protected(t)+`"}, "other": {"url": "`+other.URL+
		`"}, "open": `+demoEntry(t)+`}}`)
	ann := newUserBrowser(t)
	o := patchbay(t, "", "tools", target.HostName, "--config", file)
	if o.status != exit.OK || !strings.Contains(o.stdout, "open__add") || strings.Contains(o.stdout, "demo__") {
		t.Errorf("without a login: %+v, want the tools of the other server", o)
	}
	if o = atTerminal(t, "", nil, "tools", target.HostName, "--config", file); o.status != exit.OK { // opens no page
		t.Errorf("on a terminal: %+v, want the tools of the other server", o)
	}
	login := "patchbay auth login demo --config " + file
	o = patchbay(t, "", "rpc", target.HostName, "tools/call", `{"name": "demo__who_am_i"}`, "--config", file)
	single := startGateway(t, nil, "demo", "--config", file)
	direct := patchbay(t, "", append([]string{"rpc", single.url, "tools/list"}, single.header()...)...)
	end := single.stop()
	if !strings.Contains(o.stdout+o.stderr+direct.stdout+direct.stderr+end.stderr, login) {
		t.Errorf("no output has %q: %+v, %+v, %+v", login, o, direct, end)
	}
	if o = withBrowser(t, ann, "auth", "login", "demo", "--config", file); o.status != exit.OK {
		t.Fatalf("login: %+v", o)
	}
	o = patchbay(t, "", "call", target.HostName, "demo__who_am_i", "--config", file)
	if o.status != exit.OK || !strings.Contains(o.stdout, `"user":"ann"`) {
		t.Errorf("with the login: %+v, want ann", o)
	}
	if requests.Load() == 0 || tokens.Load() != 0 {
		t.Errorf("%d of %d requests to the other server had a token", tokens.Load(), requests.Load())
	}
}

// Servers that cannot be reached are named where their tools are missing.
func TestFailedServersAreNamed(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	freshState(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, []byte(`{"mcpServers": {"gone": {"command": "/no/such/program"}, "off": {"command": "/no/such"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"tools", target.HostName}, {"prompts", target.HostName, "--json"}, {"call", target.HostName, "gone__x"}} {
		o := patchbay(t, "", append(args, "--config", file)...)
		if !strings.Contains(o.stderr, `patchbay: server gone: backoff: start server "/no/such/program"`) {
			t.Errorf("%q: %+v, want the failure of the server", args, o)
		}
	}
	cobra := patchbay(t, "", "__complete", "call", target.HostName, "--config", file, "")
	if strings.Contains(cobra.stderr, "gone") {
		t.Errorf("completion: %+v", cobra)
	}
}
