//go:build unix

package conformance_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// open lists the reports that still fail, with the reason. A report that passes must not be listed.
var open = map[string]string{}

// TestReports runs the reports in testdata/reports, which users of other programs have made. The
// README.md of a report describes the required behaviour; its script exits with 0 if the command
// behaves so.
func TestReports(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("python3 is not installed: apt-get install python3")
		}
		t.Skip("python3 is not installed; the servers of the reports need it")
	}
	scripts, err := filepath.Glob("testdata/reports/*/run")
	if err != nil || len(scripts) != 14 {
		t.Fatalf("got %d reports, %v, want 14", len(scripts), err)
	}
	for name := range open {
		if !slices.Contains(scripts, filepath.Join("testdata/reports", name, "run")) {
			t.Errorf("%s is listed as open, but there is no such report", name)
		}
	}
	binary := build(t, "..", "./gateway/cmd/patchbay")
	for _, script := range scripts {
		name := filepath.Base(filepath.Dir(script))
		t.Run(name, func(t *testing.T) {
			out, err := runReportScript(t, script, binary)
			reason, isOpen := open[name]
			switch {
			case err == nil && isOpen:
				t.Errorf("the report passes, but it is listed as open: %s", reason)
			case err != nil && isOpen:
				t.Logf("open: %s: %v\n%s", reason, err, out)
			case err != nil:
				t.Errorf("the report fails: %v\n%s", err, out)
			}
		})
	}
}

// runReportScript runs the script of a report in a temporary home, for at most two minutes. It ends
// the processes that the script leaves behind.
func runReportScript(t *testing.T, script, binary string) (output []byte, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, script, binary)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, ".config"),
		"XDG_STATE_HOME="+filepath.Join(home, ".local/state"), "XDG_DATA_HOME="+filepath.Join(home, ".local/share"),
		"PATCHBAY_STATE_DIR="+filepath.Join(home, "state"), "PATCHBAY_VAULT_DIR="+filepath.Join(home, "vault"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endGroup := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = endGroup
	cmd.WaitDelay = time.Second // a process that the script leaves behind keeps the output open
	output, err = cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = endGroup() // the group may have ended
	}
	return output, err
}
