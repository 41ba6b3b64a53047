package testhome_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

func TestUserDirectoriesAreTemporary(t *testing.T) {
	for name, find := range map[string]func() (string, error){
		"home": os.UserHomeDir, "configuration": os.UserConfigDir, "cache": os.UserCacheDir,
	} {
		dir, err := find()
		if err != nil || !strings.HasPrefix(dir, filepath.Clean(os.TempDir())) {
			t.Errorf("%s: got %q, %v, want a directory below %s", name, dir, err, os.TempDir())
		}
	}
}
