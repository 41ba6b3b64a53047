package storetest_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/ext/tasks/storetest"
)

// TestStore is the test of the package comment.
func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) tasks.Store { return tasks.NewMemory() })
}
