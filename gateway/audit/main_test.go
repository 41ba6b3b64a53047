package audit_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

// Variables with which the test program is a child process of a test.
const (
	writerVariable = "PATCHBAY_AUDIT_WRITER" // the folder that it writes to until it is killed
	modeVariable   = "PATCHBAY_AUDIT_MODE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerVariable); dir != "" {
		fmt.Println(writeUntilKilled(dir, os.Getenv(modeVariable)))
		os.Exit(1)
	}
	os.Exit(testhome.Main(m, mcptest.Main))
}
