package target

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

func noteIDs(t *testing.T, at *Target) (ids []string) {
	t.Helper()
	all, err := NotesOf(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		ids = append(ids, n.ID)
	}
	return ids
}
