// Package bubblewrap tells tests whether sandboxes work on this machine.
package bubblewrap

import (
	"os"
	"os/exec"
	"testing"
)

// Need skips a test without bubblewrap, which must be installed in CI, and on a machine that forbids the namespaces
// of a sandbox, as many containers do. It starts bwrap with fewer options than a sandbox, so that an error of the
// sandbox fails the test.
func Need(t testing.TB) {
	t.Helper()
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	out, err := exec.CommandContext(t.Context(), bwrap, "--unshare-user", "--unshare-pid", "--unshare-net",
		"--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "/bin/true").CombinedOutput()
	if err != nil {
		t.Skipf("this machine forbids sandboxes: %v: %s", err, out)
	}
}
