package storetest_test

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook/storetest"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// TestStore is the test of the package comment.
func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) webhook.Store { return webhook.NewMemory() })
}
