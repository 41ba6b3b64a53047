package root

import (
	"path/filepath"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
)

func freshState(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	t.Setenv(userdir.EnvState, dir)
	return dir
}

func noteIDs(t *testing.T, at *target.Target) (ids []string) {
	t.Helper()
	all, err := target.NotesOf(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		ids = append(ids, n.ID)
	}
	return ids
}
