package gatewayconfig_test

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// TestDocConfig runs the code of the package comment.
func TestDocConfig(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("mcp.json", []byte(`{"mcpServers": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := config.Load("mcp.json")
	settings, err := gatewayconfig.Read(file)
	if err != nil || settings.Listen != "127.0.0.1:7777" {
		t.Errorf("got %+v, %v", settings, err)
	}
}
