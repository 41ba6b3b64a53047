package config_test

import (
	"os"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// TestDocLoad runs the code of the package comment.
func TestDocConfig(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("FILES_DIR", "/data")
	ctx := t.Context()
	const text = `{"mcpServers": {"files": {"command": "files-server", "args": ["${FILES_DIR}"]}}}`
	if err := os.WriteFile(".mcp.json", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := config.Load(".mcp.json")
	server, err := file.Server("files")
	server, err = server.Expand(ctx, os.LookupEnv)
	if err != nil || server.Command != "files-server" || !slices.Equal(server.Args, []string{"/data"}) {
		t.Errorf("got %+v, %v", server, err)
	}
}
