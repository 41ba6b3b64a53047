package root

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A line about a server names it once.
func TestGatewayEventsNameTheServerOnce(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, `{"mcpServers": {"notes": {"command": "x", "env": {"A": "${NO_SUCH_VARIABLE}"}}, "open": `+demoEntry(t)+`}}`)
	g := startGateway(t, nil, "--config", file)
	patchbay(t, "", append([]string{"tools", g.url}, g.header()...)...)
	end := g.stop()
	found := false
	for line := range strings.Lines(end.stderr) {
		if strings.Contains(line, "NO_SUCH_VARIABLE") {
			found = true
			if strings.Count(line, "notes") != 1 || strings.Contains(line, "did not run") {
				t.Errorf("got %q, want the name of the server once, and nothing about a request", line)
			}
		}
	}
	if !found {
		t.Errorf("no line about the server: %+v", end)
	}
}

// A failure that repeats, here for each session, is printed once.
func TestGatewayEventsPrintAFailureOnce(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, `{"mcpServers": {"notes": {"command": "x", "env": {"A": "${NO_SUCH_VARIABLE}"}}, "open": `+demoEntry(t)+`},
		"patchbay": {"servers": {"notes": {"share": "session"}}}}`)
	g := startGateway(t, nil, "--config", file)
	for range 3 {
		c := gatewayClient(t, g, "2025-11-25", false)
		if _, err := mcp.Collect(c.Tools(t.Context())); err != nil {
			t.Error(err)
		}
		_ = c.Close()
	}
	if end := g.stop(); strings.Count(end.stderr, "NO_SUCH_VARIABLE") != 1 {
		t.Errorf("got %s, want one line about the variable", end.stderr)
	}
}
