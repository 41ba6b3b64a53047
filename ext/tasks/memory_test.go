package tasks_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/ext/tasks/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) tasks.Store { return tasks.NewMemory() })
}
