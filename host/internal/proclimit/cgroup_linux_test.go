package proclimit_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/proclimit"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func init() {
	leaveGroup = func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
}

// A server starts in its cgroup, and nothing of it is left: neither a process that has left the
// process group, nor the cgroup, nor one that a server has made in it.
func TestProcessesStartInACgroupAndEndWithIt(t *testing.T) {
	parent, _ := proclimit.CgroupMount("/proc/self/mountinfo")
	l, err := proclimit.InCgroup(parent, proclimit.Limits{}, nil)
	if err != nil {
		t.Skipf("this process may not make cgroups: %v", err)
	}
	c := connect(t, l, nil)
	own, err := mcp.CallTool[string](t.Context(), c, "read", map[string]any{"File": "/proc/self/cgroup"})
	if err != nil || !strings.Contains(own, "/"+filepath.Base(l.Dir())+"\n") {
		t.Errorf("got cgroups %q, %v, want %s", own, err, l.Dir())
	}
	daemon, err := mcp.CallTool[int](t.Context(), c, "daemon", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(l.Dir(), "nested"), 0o755); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(l.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want no cgroup", err)
	}
	for begun := time.Now(); isRunning(daemon); time.Sleep(time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("process %d still runs", daemon)
		}
	}
}

// isRunning reports whether a process runs. A zombie does not run.
func isRunning(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return state != "" && state[0] != 'Z' && state[0] != 'X'
}

// fakeCgroup returns a directory with the files of a cgroup.
func fakeCgroup(t *testing.T, offered, enabled string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"cgroup.controllers": offered, "cgroup.subtree_control": enabled} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestControllersAreEnabled(t *testing.T) {
	wanted := []string{"memory", "pids", "cpu"}
	for name, test := range map[string]struct{ offered, enabled, want, written string }{
		"none":            {"", "", "", ""},
		"all are enabled": {"cpu memory pids", "cpu memory pids\n", "memory pids cpu", "cpu memory pids\n"},
		"some":            {"cpuset pids\n", "cpuset\n", "pids", "+pids"},
	} {
		dir := fakeCgroup(t, test.offered, test.enabled)
		got := proclimit.Enable(dir, wanted)
		if !slices.Equal(got, strings.Fields(test.want)) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
		if text, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control")); string(text) != test.written {
			t.Errorf("%s: wrote %q, want %q", name, text, test.written)
		}
	}
}

func TestLimitsAreWritten(t *testing.T) {
	dir := t.TempDir()
	files := []string{"memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max"}
	for _, name := range files {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := proclimit.Write(dir, proclimit.Limits{Memory: 1 << 29, Processes: 40, CPU: 1.5}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"536870912", "0", "1", "40", "150000 100000"} {
		if got, _ := os.ReadFile(filepath.Join(dir, files[i])); string(got) != want {
			t.Errorf("%s: got %q, want %q", files[i], got, want)
		}
	}
	if err := proclimit.Write(t.TempDir(), proclimit.Limits{CPU: 1}); err == nil {
		t.Error("without the file: got no error")
	}
}

func TestOldCgroupsAreRemoved(t *testing.T) {
	dead := exec.Command("/bin/sh", "-c", ":")
	if err := dead.Run(); err != nil {
		t.Skip(err)
	}
	parent := t.TempDir()
	names := map[string]bool{ // whether they stay
		fmt.Sprintf("patchbay-%d-A", dead.Process.Pid): false,
		fmt.Sprintf("patchbay-%d-A", os.Getpid()):      true,
		"patchbay-x": true, "other-1-A": true, "patchbay-1-A": true,
	}
	for name := range names {
		if err := os.Mkdir(filepath.Join(parent, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	proclimit.RemoveOld(parent)
	for name, stays := range names {
		if _, err := os.Stat(filepath.Join(parent, name)); (err == nil) != stays {
			t.Errorf("%s: got %v, want it to stay: %t", name, err, stays)
		}
	}
}

func TestCgroupMountIsFound(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		"30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n41 30 0:37 / /sys/fs/cgroup/unified rw shared:1 - cgroup2 cgroup2 rw\n": "/sys/fs/cgroup/unified /",
		"41 30 0:37 /system.slice /sys/fs/cgroup rw - cgroup2 none rw\n":                                                          "/sys/fs/cgroup /system.slice",
		"41 30 0:37 / /a\\040b rw - cgroup2 none rw\n":                                                                            "",
	} {
		file := filepath.Join(t.TempDir(), "mountinfo")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		mount, root := proclimit.CgroupMount(file)
		if got := strings.TrimSpace(mount + " " + root); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
