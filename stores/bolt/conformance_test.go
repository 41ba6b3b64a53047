package bolt_test

import (
	"path/filepath"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/storetest"
)

func TestStateConforms(t *testing.T) {
	storetest.RunHostState(t, func(t *testing.T) (a, b state.Store) {
		path := filepath.Join(t.TempDir(), "state.db")
		return openState(t, path), openState(t, path)
	})
}
