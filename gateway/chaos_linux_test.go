package gateway_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A short run of bench/chaos: a gateway process and four servers under faults, three principals. The
// program is described in bench/README.md.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes for some seconds")
	}
	const bench = "../bench"
	if _, err := os.Stat(bench + "/chaos"); err != nil {
		t.Skip("needs the repository: ", err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "./chaos", "-gateway", "-rounds", "5", "-seed", "1", "-dir", t.TempDir())
	cmd.Dir = bench
	cmd.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=") // its own workspace
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "violations: 0\n") {
		t.Errorf("%v:\n%s", err, out)
	}
}
