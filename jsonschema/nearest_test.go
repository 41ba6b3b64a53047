package jsonschema_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonschema"
)

func TestNearest(t *testing.T) {
	names := []string{"mcpServers", "inputs", "patchbay", "read_file"}
	for name, want := range map[string]string{
		"mcpServer": "mcpServers", "mcp-servers": "mcpServers", "input": "inputs", "pathcbay": "patchbay", "readfile": "read_file",
		"": "", "x": "", "weather": "", "servers_of_mcp": "",
	} {
		if got := jsonschema.Nearest(name, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}
