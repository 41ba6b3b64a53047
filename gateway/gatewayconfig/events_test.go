package gatewayconfig_test

import (
	"path/filepath"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
)

func TestStoreOfEventsIsRelativeToTheFile(t *testing.T) {
	f := parse(t, `{"events": {"store": "hooks.db", "allowedHosts": ["hooks.internal:8443"]}}`)
	f.Path = filepath.FromSlash("/etc/servers.json")
	s, err := gatewayconfig.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.FromSlash("/etc/hooks.db"); s.Events.Store != want {
		t.Errorf("got %q, want %q", s.Events.Store, want)
	}
	checkProblem(t, `{"events": {"allowedHosts": ["http://hooks.internal/"]}}`,
		`patchbay.events.allowedHosts: got "http://hooks.internal/", want a name with or without a port, such as "mcp.example.com"`)
}
