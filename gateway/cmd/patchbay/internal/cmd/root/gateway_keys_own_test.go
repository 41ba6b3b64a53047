package root

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// toolsWith returns the names of the tools that a caller with a key can list, with spaces around them.
func toolsWith(t *testing.T, c *mcp.Client) string {
	t.Helper()
	names := " "
	for tool, err := range c.Tools(mcp.WithCallOptions(t.Context(), mcp.CallOptions{NoCache: true})) {
		if err != nil {
			t.Fatal(err)
		}
		names += tool.Name + " "
	}
	return names
}

// Only the local user can use the servers of other applications and of projects: no key opens such a server, even if
// it is added while the gateway runs.
func TestKeysOpenTheServersOfTheOwnFileOnly(t *testing.T) {
	mcptest.NoLeaks(t)
	home, project := editHome(t)
	cursor := filepath.Join(home, ".cursor", "mcp.json")
	writeConfig(t, ownPath(t), `{"mcpServers": {"one": `+demoEntry(t)+`},
		"patchbay": {"tools": {"mode": "list"}, "profiles": {"both": {"servers": ["one", "two"]}, "other": {"servers": ["two"]}}}}`)
	writeConfig(t, cursor, demoServers(t, "two"))
	writeConfig(t, filepath.Join(project, ".mcp.json"), demoServers(t, "four"))
	mustRun(t, "trust", "four", "--yes")

	o := patchbay(t, "", "gateway", "keys", "new", "ann")
	if o.status != exit.Usage || !strings.Contains(o.stderr, "--all-servers for all servers, now one\n") {
		t.Errorf("without servers: %+v, want the question", o)
	}
	for _, server := range []string{"two", "four"} {
		o := patchbay(t, "", "gateway", "keys", "new", "ann", "--server", server)
		if o.status != exit.Usage || !strings.Contains(o.stderr, "server "+server+" is not in your own file") {
			t.Errorf("--server %s: %+v, want a refusal", server, o)
		}
	}
	if o := mustRun(t, "gateway", "keys", "new", "ann", "--all-servers"); !strings.Contains(o.stdout,
		"It opens one, and those that you add to your own file:") {
		t.Errorf("got %+v, want what the key opens", o)
	}
	if o := mustRun(t, "gateway", "keys", "new", "none", "--profile", "other"); !strings.Contains(o.stdout, "It opens no server:") {
		t.Errorf("got %+v, want that the key opens nothing", o)
	}
	var all, both newKeyOutput
	for name, k := range map[string]*newKeyOutput{"--all-servers": &all, "--profile=both": &both} {
		o := mustRun(t, "gateway", "keys", "new", "--json", strings.Trim(name, "-")[:3], name)
		if err := json.Unmarshal([]byte(o.stdout), k); err != nil {
			t.Fatal(err)
		}
	}
	list := mustRun(t, "gateway", "list").stdout
	for _, want := range []string{"one\tenabled\tstdio\t", "\tyou, key all, key ann, key pro\n", "two\tenabled\tstdio\t",
		"four\tenabled\tstdio\t"} {
		if !strings.Contains(list, want) {
			t.Errorf("list has no %q:\n%s", want, list)
		}
	}
	if strings.Count(list, "\tyou\n") != 2 {
		t.Errorf("list:\n%s\nwant two servers for the user only", list)
	}

	g := startGateway(t, nil)
	local, err := keyClient(t, g.url, g.key)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	eventually(t, "the local user has all servers", func() bool {
		names := toolsWith(t, local)
		return strings.Contains(names, " one__add ") && strings.Contains(names, " two__add ")
	})
	writeConfig(t, cursor, demoServers(t, "two", "three"))
	eventually(t, "the local user has the new server", func() bool {
		return strings.Contains(toolsWith(t, local), " three__add ")
	})
	for _, key := range []string{all.Key, both.Key} {
		c, err := keyClient(t, g.url, key)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the key has its server", func() bool { return strings.Contains(toolsWith(t, c), " one__add ") })
		names := toolsWith(t, c)
		for _, other := range []string{"two", "three", "four"} {
			if strings.Contains(names, other+"__") {
				t.Errorf("the key lists %s, want no tool of %s", names, other)
			}
			if res, err := c.CallTool(t.Context(), other+"__add", map[string]any{"a": 1, "b": 2}); err == nil && !res.IsError {
				t.Errorf("the key has called %s: %s", other, res.Text())
			}
		}
		c.Close()
		for _, path := range []string{"/s/two", "/s/three", "/s/four"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+key)
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusNotFound {
				t.Errorf("%s: status %d, want 404", path, res.StatusCode)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
	g.stop()
}

// On a terminal, the commands ask which servers a new key opens, and whether to approve future requests.
func TestTerminalAsksWhatIsOpened(t *testing.T) {
	file := keysConfig(t)
	o := atTerminal(t, "three\n\ntwo\n", nil, "gateway", "keys", "new", "ann", "--config", file)
	if o.status != exit.OK || !strings.Contains(o.stderr, "of one, two; names with commas") ||
		!strings.Contains(o.stderr, `unknown server "three"`) || !strings.Contains(o.stderr, "no server was named") ||
		!strings.Contains(o.stdout, "Key of ann (servers two; expires ") || !strings.Contains(o.stdout, "It opens two:") {
		t.Errorf("two: %+v", o)
	}
	o = atTerminal(t, "all\n", nil, "gateway", "keys", "new", "bob", "--config", file)
	if o.status != exit.OK || !strings.Contains(o.stdout, "It opens one, two, and those that you add to your own file:") {
		t.Errorf("all: %+v", o)
	}
	o = atTerminal(t, "n\n", nil, "gateway", "approve", "x", "--always", "--config", file)
	if o.status != exit.Failure || !strings.Contains(o.stderr, "nothing was approved") {
		t.Errorf("no: %+v, want nothing approved", o)
	}
	o = atTerminal(t, "y\n", nil, "gateway", "approve", "x", "--always", "--config", file)
	if o.status == exit.OK || strings.Contains(o.stderr, "nothing was approved") {
		t.Errorf("yes: %+v, want that the request is looked for", o)
	}
}
