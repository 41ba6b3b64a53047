package driver_test

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/testhome"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }
