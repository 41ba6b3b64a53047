package shell

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
)

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func freshState(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	t.Setenv(userdir.EnvState, dir)
	return dir
}

func readText(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
