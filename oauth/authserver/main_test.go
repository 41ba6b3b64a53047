package authserver_test

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnv); path != "" {
		writeUntilKilled(path)
		return
	}
	os.Exit(mcptest.Main(m))
}
