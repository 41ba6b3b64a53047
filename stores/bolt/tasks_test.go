package bolt_test

import (
	"path/filepath"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/ext/tasks/storetest"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

func TestTaskStore(t *testing.T) {
	storetest.RunLasting(t, func(t *testing.T, dir string) tasks.Store {
		return open(t, filepath.Join(dir, "tasks.db"))
	})
}

func open(t testing.TB, path string) *bolt.TaskStore {
	t.Helper()
	s, err := bolt.OpenTasks(path, nil)
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
