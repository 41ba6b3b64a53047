package spell_test

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/internal/spell"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

func TestNearest(t *testing.T) {
	names := []string{"mcpServers", "inputs", "patchbay", "read_file"}
	for name, want := range map[string]string{
		"mcpServer": "mcpServers", "mcp-servers": "mcpServers", "input": "inputs", "pathcbay": "patchbay", "readfile": "read_file",
		"": "", "x": "", "weather": "", "servers_of_mcp": "",
	} {
		if got := spell.Nearest(name, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}
