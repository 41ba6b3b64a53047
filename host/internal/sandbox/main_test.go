package sandbox_test

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

// attemptVariable makes the test binary try to leave its sandbox in the way that its first argument names.
const attemptVariable = "PATCHBAY_TEST_ESCAPE"

// attempt tries a way out of the sandbox, and ends the process. It is set on Linux.
var attempt func(name string, args []string)

func TestMain(m *testing.M) {
	if os.Getenv(attemptVariable) != "" && attempt != nil {
		attempt(os.Args[1], os.Args[2:])
		return
	}
	os.Exit(testhome.Main(m, mcptest.Main))
}
