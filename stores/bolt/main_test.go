package bolt_test

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Each of these environment variables makes the test binary run as a child process of a test until
// it is killed.
const (
	writerVariable      = "PATCHBAY_TEST_WRITER"       // writes to the task store at this path
	grantWriterVariable = "PATCHBAY_TEST_GRANT_WRITER" // writes to the authorization store at this path
	serverVariable      = "PATCHBAY_TEST_TASKS"        // serves tasks from this folder
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerVariable); path != "" {
		writeUntilKilled(path)
		return
	}
	if path := os.Getenv(grantWriterVariable); path != "" {
		writeGrantsUntilKilled(path)
		return
	}
	if dir := os.Getenv(serverVariable); dir != "" {
		serveUntilKilled(dir)
		return
	}
	os.Exit(mcptest.Main(m))
}
