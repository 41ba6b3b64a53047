package https_test

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }
