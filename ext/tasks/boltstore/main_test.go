package boltstore_test

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
)

// writerVariable makes the test binary write to the store that it names until it is killed.
const writerVariable = "PATCHBAY_TEST_WRITER"

// serverVariable makes it serve tasks from the folder that it names until it is killed.
const serverVariable = "PATCHBAY_TEST_TASKS"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerVariable); path != "" {
		writeUntilKilled(path)
		return
	}
	if dir := os.Getenv(serverVariable); dir != "" {
		serveUntilKilled(dir)
		return
	}
	os.Exit(mcptest.Main(m))
}
