package otelmcp_test

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestMain(m *testing.M) { os.Exit(mcptest.Main(m)) }
