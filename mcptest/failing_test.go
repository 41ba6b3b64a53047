package mcptest

import (
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// failing is the variable with the name of the test that TestFailing runs.
const failing = "MCPTEST_FAILING"

// failingTests returns tests that are expected to fail, or whose output matters.
func failingTests() map[string]func(t *testing.T) {
	all := maps.Clone(leaks)
	all["schemas"] = listTools
	return all
}

// TestFailing runs a test in the process that another test has started.
func TestFailing(t *testing.T) {
	if test := failingTests()[os.Getenv(failing)]; test != nil {
		test(t)
	}
}

// runFailing returns the output of TestFailing in a process of its own.
func runFailing(t *testing.T, name string, env ...string) string {
	t.Helper()
	timeout := "30s"
	if strings.Contains(name, "outside") {
		timeout = "12s" // half of it is used; the rest is for the start of the test on a busy machine
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFailing$", "-test.timeout="+timeout)
	cmd.Env = append(append(os.Environ(), env...), failing+"="+name)
	cmd.Dir = t.TempDir()
	out, _ := cmd.CombinedOutput()
	return string(out)
}
