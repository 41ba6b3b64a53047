package boltstore_test

import (
	"path/filepath"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/ext/tasks/boltstore"
	"github.com/patchbay-mcp/patchbay/ext/tasks/storetest"
)

func TestStore(t *testing.T) {
	storetest.RunLasting(t, func(t *testing.T, dir string) tasks.Store { return open(t, filepath.Join(dir, "tasks.db")) })
}

func open(t testing.TB, path string) *boltstore.Store {
	t.Helper()
	s, err := boltstore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
