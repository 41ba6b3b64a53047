package conformance_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

// TestMain isolates the tests from the state of the user: every command that is started here
// inherits temporary directories for state and keys.
func TestMain(m *testing.M) { os.Exit(testhome.Main(m, run)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "patchbay-conformance")
	if err == nil {
		defer os.RemoveAll(dir)
		builds.dir = dir
		err = errors.Join(os.Setenv("PATCHBAY_STATE_DIR", dir), os.Setenv("PATCHBAY_VAULT_DIR", filepath.Join(dir, "vault")))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
