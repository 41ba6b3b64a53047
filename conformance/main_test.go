package conformance_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain keeps the tests from what belongs to whoever runs them: every command that is started here inherits the
// directory for what lasts.
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
