package root

import (
	"path/filepath"
	"strings"
	"testing"
)

// A command that connects directly would start the server without its sandbox.
func TestServersWithASandboxAreNotStartedDirectly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, `{"mcpServers": {"a": `+demoEntry(t)+`}, "patchbay": {"servers": {"a": {"sandbox": {}}}}}`)
	for _, command := range []string{"tools", "doctor"} {
		o := patchbay(t, "", command, "a", "--config", file)
		if !strings.Contains(o.stderr, `server "a" runs in a sandbox`) || !strings.Contains(o.stderr, "@host") {
			t.Errorf("%s: got %q", command, o.stderr)
		}
	}
}
