package root

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

// waitForTools waits until a client sees exactly the tools.
func waitForTools(t *testing.T, c *mcp.Client, want ...string) {
	t.Helper()
	ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{NoCache: true})
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	var got []string
	for begun := time.Now(); time.Since(begun) < time.Minute; <-look.C {
		got = nil
		for tool, err := range c.Tools(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(tool.Name, "add") {
				got = append(got, tool.Name)
			}
		}
		if slices.Equal(got, want) {
			return
		}
	}
	t.Fatalf("tools: got %q, want %q", got, want)
}

// A messages keeps what the gateway prints on standard error.
type messages struct {
	io.Writer
	mu   sync.Mutex // guards text
	text string
}

func (m *messages) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text += string(b)
	return m.Writer.Write(b)
}

// wait waits until a message was printed a number of times.
func (m *messages) wait(t *testing.T, message string, times int) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for begun := time.Now(); ; <-look.C {
		m.mu.Lock()
		text := m.text
		m.mu.Unlock()
		if strings.Count(text, message) >= times {
			return
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("%q was not printed %d times:\n%s", message, times, text)
		}
	}
}

// demoServers returns a configuration of demo servers.
func demoServers(t *testing.T, names ...string) string {
	t.Helper()
	var entries []string
	for _, name := range names {
		entries = append(entries, fmt.Sprintf("%q: %s", name, demoEntry(t)))
	}
	return `{"mcpServers": {` + strings.Join(entries, ", ") + `}}`
}

// The gateway follows its file however an editor or a deployment replaces it. A file that is invalid, or
// missing for a while, changes nothing.
func TestGatewayFollowsItsFile(t *testing.T) {
	freshVault(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "mcp.json")
	writeFile(t, file, demoServers(t, "one", "two"))
	var printed messages
	g := startGateway(t, func(p *cmdutil.Factory) {
		printed.Writer = p.IO.Err.W
		p.IO.Err.W = &printed
	}, "--config", file)
	const kept = "kept the previous configuration"
	c := gatewayClient(t, g, "2026-07-28", false)
	waitForTools(t, c, "one__add", "two__add")

	replace := func(text string) { // as vim and most programs
		t.Helper()
		writeFile(t, file+".new", text)
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	replace(demoServers(t, "one", "two", "three"))
	waitForTools(t, c, "one__add", "two__add", "three__add")

	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0) // as nano, in two steps
	if err != nil {
		t.Fatal(err)
	}
	text := demoServers(t, "one", "three")
	fmt.Fprint(f, text[:10])
	printed.wait(t, kept, 1)
	waitForTools(t, c, "one__add", "two__add", "three__add")
	fmt.Fprint(f, text[10:])
	_ = f.Close()
	waitForTools(t, c, "one__add", "three__add")

	replace(`{"mcpServers": {`)
	printed.wait(t, kept, 2)
	if err := os.Rename(file, file+"~"); err != nil { // as emacs: a backup, then a new file
		t.Fatal(err)
	}
	printed.wait(t, kept, 3)
	writeFile(t, file, `{"mcpServers": {"one": {"url": "http://127.0.0.1:1"}}, "patchbay": {"unknown": 1}}`)
	printed.wait(t, kept, 4)
	waitForTools(t, c, "one__add", "three__add")

	for n, names := range [][]string{{"one", "four"}, {"one", "five"}} { // as Kubernetes: ..data is replaced
		version := filepath.Join(dir, fmt.Sprint("..version", n))
		if err := os.Mkdir(version, 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(version, "mcp.json"), demoServers(t, names...))
		link := func(to, name string) {
			t.Helper()
			if err := os.Symlink(to, name+".new"); err != nil {
				t.Skipf("symbolic links: %v", err)
			}
			if err := os.Rename(name+".new", name); err != nil {
				t.Fatal(err)
			}
		}
		link(filepath.Base(version), filepath.Join(dir, "..data"))
		if n == 0 {
			link(filepath.Join("..data", "mcp.json"), file)
		}
		waitForTools(t, c, names[0]+"__add", names[1]+"__add")
	}
	replace(demoServers(t, "one"))
	waitForTools(t, c, "add") // a gateway of one server does not change names
	o := g.stop()
	for _, want := range []string{"reloaded the configuration: added three", "removed two"} {
		if !strings.Contains(o.stderr, want) {
			t.Errorf("stderr without %q:\n%s", want, o.stderr)
		}
	}
}

// trustProject trusts all servers of the project file, as the user does with patchbay trust.
func trustProject(t *testing.T) {
	t.Helper()
	store, err := target.TrustStore()
	if err != nil {
		t.Fatal(err)
	}
	for f, err := range configs.Files("") {
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range f.Names() {
			s, err := f.Server(name)
			if err == nil {
				err = store.Trust(s)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// approveFound approves the definitions in quarantine, when the gateway has read some.
func approveFound(t *testing.T, c *mcp.Client) {
	t.Helper()
	dir, err := userdir.Dir("gateway")
	if err != nil {
		t.Fatal(err)
	}
	state, err := bolt.OpenState(filepath.Join(dir, "state.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for begun := time.Now(); ; <-look.C {
		_, err := mcp.Collect(c.Tools(mcp.WithCallOptions(t.Context(), mcp.CallOptions{NoCache: true})))
		if err != nil {
			t.Fatal(err)
		}
		all, err := pin.List(t.Context(), state)
		if err != nil {
			t.Fatal(err)
		}
		waiting := slices.DeleteFunc(all, func(p *pin.Pin) bool { return len(p.Pending) == 0 })
		if slices.ContainsFunc(waiting, func(p *pin.Pin) bool { return p.Kind == pin.Tool }) {
			if err := pin.Approve(t.Context(), state, waiting...); err == nil {
				return
			}
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("no definitions wait for approval")
		}
	}
}

// A changed server of a project file is not used until the user has trusted it again.
func TestGatewayReloadNeedsTrust(t *testing.T) {
	freshVault(t)
	t.Chdir(t.TempDir())
	writeFile(t, ".mcp.json", demoServers(t, "one", "two"))
	trustProject(t)
	g := startGateway(t, nil)
	c := gatewayClient(t, g, "2026-07-28", false)
	approveFound(t, c) // both have the same command line
	waitForTools(t, c, "one__add", "two__add")
	writeFile(t, ".mcp.json", strings.Replace(demoServers(t, "one", "two"), `"args":[]`, `"args":["changed"]`, 1))
	waitForTools(t, c, "add") // of two
	trustProject(t)
	approveFound(t, c) // another command line is another server, whose definitions are new
	waitForTools(t, c, "one__add", "two__add")
	if o := g.stop(); !strings.Contains(o.stderr, "not trusted") {
		t.Errorf("stderr: %s", o.stderr)
	}
}

// The address needs a restart of the program, and the message says so.
func TestGatewayReloadOfTheAddress(t *testing.T) {
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	text := demoServers(t, "one", "two")
	writeFile(t, file, text)
	g := startGateway(t, nil, "--config", file)
	c := gatewayClient(t, g, "2026-07-28", false)
	waitForTools(t, c, "one__add", "two__add")
	writeFile(t, file, strings.TrimSuffix(text, "}")+`, "patchbay": {"listen": "127.0.0.1:9",
		"servers": {"two": {"rename": {"add": "plusadd"}}}}}`)
	waitForTools(t, c, "one__add", "two__plusadd")
	o := g.stop()
	if !strings.Contains(o.stderr, "listen has changed: restart the gateway") ||
		!strings.Contains(o.stderr, "new settings of two") {
		t.Errorf("stderr: %s", o.stderr)
	}
}

// A reload that removes the rules says so, and names the misspelt member that has them. The audit log has
// which policy is in force.
func TestReloadThatRemovesThePolicy(t *testing.T) {
	a := newAttack(t, "", []string{"bank", "fs"}, "", payments)
	a.g.stop()
	text, err := os.ReadFile(a.config)
	if err != nil {
		t.Fatal(err)
	}
	var printed messages
	g := startGateway(t, func(p *cmdutil.Factory) {
		printed.Writer = p.IO.Err.W
		p.IO.Err.W = &printed
	}, "--config", a.config)
	writeFile(t, a.config, strings.Replace(string(text), `"patchbay":`, `"patchbuy":`, 1))
	printed.wait(t, "warning: removed settings: policy: requests are allowed without rules", 1)
	printed.wait(t, `unknown member "patchbuy" (did you mean "patchbay"?)`, 1)
	writeFile(t, a.config, string(text))
	printed.wait(t, "new settings: policy", 2)
	g.stop()
	policies := map[string]int{}
	for line := range strings.Lines(audited(t, a.config, "query", "--outcome", "config", "--json")) {
		var r struct{ Detail struct{ Policy string } }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		policies[r.Detail.Policy]++
	}
	if len(policies) != 2 || policies["none"] != 1 || policies[""] != 0 {
		t.Errorf("the log has the policies %v, want none once, and one other", policies)
	}
	writeFile(t, a.config, strings.Replace(string(text), `"patchbay":`, `"patchbuy":`, 1))
	if o := startGateway(t, nil, "--config", a.config).stop(); !strings.Contains(o.stderr, `unknown member "patchbuy"`) {
		t.Errorf("at the start: %+v", o)
	}
}
