package conformance_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain isolates the tests from the state of the user: every command that is started here
// inherits a temporary state directory.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "patchbay-conformance")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Setenv("PATCHBAY_STATE_DIR", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
