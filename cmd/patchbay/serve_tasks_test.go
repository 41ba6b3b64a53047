package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// run runs the command and returns its output.
func run(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), built, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errs, timeout
	_ = cmd.Run() // the exit code is checked
	return strings.TrimSpace(out.String()), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs a command and fails the test unless it succeeds.
func must(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	stdout, stderr, status := run(t, args...)
	if status != 0 {
		t.Fatalf("%q ends with %d: %s", args, status, stderr)
	}
	return stdout
}

// freshState sets a state directory for the test.
func freshState(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	t.Setenv("PATCHBAY_STATE_DIR", dir)
	return dir
}

// serveAt starts a server at an address and waits until it is ready.
func serveAt(t *testing.T, addr string, args ...string) *process {
	t.Helper()
	p := start(t, append([]string{"serve", "--addr", addr}, args...)...)
	for !strings.Contains(p.line(), "Ctrl-C") {
	}
	return p
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// becomes waits until a task has a status.
func becomes(t *testing.T, url, id, status string) {
	t.Helper()
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		if strings.Contains(must(t, "task", "get", url, id), "status   "+status+"\n") {
			return
		}
	}
	t.Fatalf("the task does not become %s: %s", status, must(t, "task", "get", url, id))
}

// A server that was killed recovers its tasks at the same address: tasks that wait for input keep
// waiting, results are kept, and running tasks restart or fail, as their tool says.
func TestKilledServerRecoversTasks(t *testing.T) {
	freshState(t)
	addr := freeAddr(t)
	url := "http://" + addr + endpoint
	p := serveAt(t, addr)
	waiting := must(t, "call", "--task", url, "publish", "title=Waiting")
	done := must(t, "call", "--task", url, "crunch", "seconds=1")
	must(t, "task", "watch", url, done)
	becomes(t, url, waiting, "input_required")
	asked := must(t, "task", "get", url, waiting)
	cut := must(t, "call", "--task", url, "publish", "title=Cut")
	again := must(t, "call", "--task", url, "crunch", "seconds=1")
	p.signal(syscall.SIGKILL)
	<-p.exited
	p.exited <- nil

	p = serveAt(t, addr)
	if got := must(t, "task", "get", url, waiting); got != asked {
		t.Errorf("what waits has become\n%s\nand was\n%s", got, asked)
	}
	must(t, "task", "answer", url, waiting, "publish=true", "note=late")
	if got := must(t, "task", "watch", url, waiting); !strings.Contains(got, `"note":"late"`) {
		t.Errorf("got %s", got)
	}
	for _, id := range []string{done, again} {
		if got := must(t, "task", "watch", url, id); !strings.Contains(got, `"answer":42`) {
			t.Errorf("result of a computation: %s", got)
		}
	}
	if _, stderr, status := run(t, "task", "watch", url, cut); status != 1 || !strings.Contains(stderr, "restarted") {
		t.Errorf("what was cut off ends with %d, %s", status, stderr)
	}
	listed := must(t, "task", "list", url)
	for _, id := range []string{waiting, done, cut, again} {
		if !strings.Contains(listed, id) {
			t.Errorf("%s is not in the list: %s", id, listed)
		}
	}
	told := p.signal(syscall.SIGTERM)
	p.rest()
	p.ends(0, told, 3*time.Second)
}

// A server that is shut down stops its tasks, including a running one.
func TestShutdownStopsTasks(t *testing.T) {
	freshState(t)
	addr := freeAddr(t)
	url := "http://" + addr + endpoint
	p := serveAt(t, addr)
	id := must(t, "call", "--task", url, "crunch", "seconds=600")
	told := p.signal(syscall.SIGTERM)
	p.rest()
	p.ends(0, told, 3*time.Second)
	serveAt(t, addr)
	becomes(t, url, id, "working")
	must(t, "task", "cancel", url, id)
	becomes(t, url, id, "cancelled")
}

// Concurrent servers on stdio use different files.
func TestStdioServersUseDifferentFiles(t *testing.T) {
	dir := freshState(t)
	first, second := start(t, "serve", "--stdio"), start(t, "serve", "--stdio")
	for _, p := range []*process{first, second} {
		p.send(call(modern, 1, "add", `"a":1,"b":2`))
		if got := p.line(); !strings.Contains(got, `"text":"3"`) {
			t.Errorf("it answers %s", got)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "serve", "*"))
	if want := []string{filepath.Join(dir, "serve", "tasks-1.db"),
		filepath.Join(dir, "serve", "tasks-2.db")}; err != nil || !slices.Equal(files, want) {
		t.Errorf("there are %q, %v, want %q", files, err, want)
	}
}

func TestTasksFlagSelectsTheFile(t *testing.T) {
	dir := freshState(t)
	file := filepath.Join(t.TempDir(), "my.db")
	for _, test := range []struct{ where, target string }{{file, file}, {"memory", ""}} {
		p := serveAt(t, "127.0.0.1:0", "--tasks", test.where)
		if _, err := os.Stat(test.target); test.target != "" && err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "serve")); err == nil {
			t.Errorf("--tasks %s: there is a file of its own besides", test.where)
		}
		p.signal(syscall.SIGTERM)
		p.rest()
	}
	damaged := filepath.Join(t.TempDir(), "damaged.db")
	if err := os.WriteFile(damaged, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := run(t, "serve", "--addr", "127.0.0.1:0", "--tasks", damaged); status != 1 ||
		!strings.Contains(stderr, "--tasks") {
		t.Errorf("a damaged file: %d, %s", status, stderr)
	}
}

// If the state directory cannot be used, tasks are kept in memory, with a message.
func TestTasksWithoutStateDirectoryAreInMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATCHBAY_STATE_DIR", file)
	p := start(t, "serve", "--stdio")
	p.send(call(modern, 1, "add", `"a":1,"b":2`))
	if got := p.line(); !strings.Contains(got, `"text":"3"`) {
		t.Errorf("it answers %s", got)
	}
	p.stdin.Close()
	p.rest()
	p.ends(0, time.Now(), 3*time.Second)
	if !strings.Contains(p.stderr.String(), "tasks are kept in memory only") {
		t.Errorf("got %q", &p.stderr)
	}
}
