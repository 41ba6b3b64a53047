package root

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/pins"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// When a client of gateway --stdio cancels its list and goes, before a server has started, the definitions of
// the server are recorded.
func TestDefinitionsAreRecordedAfterTheClientHasGone(t *testing.T) {
	editHome(t)
	entry, err := config.Parse([]byte(`{"mcpServers": {"demo": ` + demoEntry(t) + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	s, err := entry.Server("demo")
	if err != nil {
		t.Fatal(err)
	}
	slow, err := json.Marshal(map[string]any{"command": "sh", "env": s.Env,
		"args": append([]string{"-c", `sleep 1; exec "$0" "$@"`, s.Command}, s.Args...)})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "servers.json")
	writeFile(t, file, `{"mcpServers": {"demo": `+string(slow)+`}}`)
	o := patchbay(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
		`"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`+"\n"+
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"+
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n"+
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`+"\n", "gateway", "--stdio", "--own", "--config", file)
	var list struct{ Pins []pins.PinReport }
	if err := json.Unmarshal([]byte(mustRun(t, "--json", "gateway", "pins", "--config", file).stdout), &list); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list.Pins, func(p pins.PinReport) bool { return p.Server == "demo" && p.Kind == "tool" }) {
		t.Errorf("got %+v, want the tools of the server; the gateway: %+v", list.Pins, o)
	}
}
