//go:build unix

package config_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// A pipe in the place of a project file would block every command and completion.
func TestProjectFileMustBeARegularFile(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(config.PathEnv, "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Skip(err)
	}
	for name, target := range map[string]string{"pipe": "pipe", "directory": ".", "device": "/dev/null"} {
		_ = os.Remove(".mcp.json")
		if err := os.Symlink(target, ".mcp.json"); err != nil {
			t.Fatal(err)
		}
		if configs, err := config.LoadAll(""); err == nil || len(configs) != 0 {
			t.Errorf("%s: LoadConfigs returned %d configurations, %v, want an error", name, len(configs), err)
		}
	}
}
