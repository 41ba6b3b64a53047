package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/freeport"
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

// mustRun runs a command and fails the test unless it succeeds.
func mustRun(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	stdout, stderr, status := run(t, args...)
	if status != 0 {
		t.Fatalf("%q: exit code %d, want 0: %s", args, status, stderr)
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
	p := start(t, append([]string{"serve", "--insecure-no-auth", "--addr", addr}, args...)...)
	for !strings.Contains(p.readLine(), "Ctrl-C") {
	}
	return p
}

// waitForStatus waits until a task has a status.
func waitForStatus(t *testing.T, url, id, status string) {
	t.Helper()
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		if strings.Contains(mustRun(t, "task", "get", url, id), "status   "+status+"\n") {
			return
		}
	}
	t.Fatalf("task status is not %s after %v: %s", status, timeout, mustRun(t, "task", "get", url, id))
}

// A server that was killed recovers its tasks at the same address: tasks that wait for input keep
// waiting, results are kept, and running tasks restart or fail, as their tool says.
func TestKilledServerRecoversTasks(t *testing.T) {
	freshState(t)
	addr := freeport.Addr(t)
	url := "http://" + addr + endpoint
	p := serveAt(t, addr)
	waiting := mustRun(t, "call", "--task", url, "publish", "title=Waiting")
	done := mustRun(t, "call", "--task", url, "crunch", "seconds=1")
	mustRun(t, "task", "watch", url, done)
	waitForStatus(t, url, waiting, "input_required")
	asked := mustRun(t, "task", "get", url, waiting)
	restarted := mustRun(t, "call", "--task", url, "crunch", "seconds=1")
	interrupted := ""
	for range 10 {
		interrupted = mustRun(t, "call", "--task", url, "publish", "title=Cut") // last: it asks after a second
		p.signal(syscall.SIGKILL)
		<-p.exited
		p.exited <- nil
		p = serveAt(t, addr)
		if !strings.Contains(mustRun(t, "task", "get", url, interrupted), "input_required") {
			break // else the machine was busy for that second, and the task was not running
		}
	}
	if got := mustRun(t, "task", "get", url, waiting); got != asked {
		t.Errorf("the waiting task after the restart: got\n%s\nwant\n%s", got, asked)
	}
	mustRun(t, "task", "answer", url, waiting, "publish=true", "note=late")
	if got := mustRun(t, "task", "watch", url, waiting); !strings.Contains(got, `"note":"late"`) {
		t.Errorf("the answered task: got %s, want the note", got)
	}
	for _, id := range []string{done, restarted} {
		if got := mustRun(t, "task", "watch", url, id); !strings.Contains(got, `"answer":42`) {
			t.Errorf("the computation: got %s, want 42", got)
		}
	}
	if _, stderr, status := run(t, "task", "watch", url, interrupted); status != 1 ||
		!strings.Contains(stderr, "restarted") {
		t.Errorf("the interrupted task: exit code %d, want 1; standard error %s", status, stderr)
	}
	listed := mustRun(t, "task", "list", url)
	for _, id := range []string{waiting, done, interrupted, restarted} {
		if !strings.Contains(listed, id) {
			t.Errorf("task list does not contain %s: %s", id, listed)
		}
	}
	signalled := p.signal(syscall.SIGTERM)
	p.readRest()
	p.checkExit(0, signalled, 3*time.Second)
}

// A server that is shut down stops its tasks, including a running one.
func TestShutdownStopsTasks(t *testing.T) {
	freshState(t)
	addr := freeport.Addr(t)
	url := "http://" + addr + endpoint
	p := serveAt(t, addr)
	id := mustRun(t, "call", "--task", url, "crunch", "seconds=600")
	signalled := p.signal(syscall.SIGTERM)
	p.readRest()
	p.checkExit(0, signalled, 3*time.Second)
	serveAt(t, addr)
	waitForStatus(t, url, id, "working")
	mustRun(t, "task", "cancel", url, id)
	waitForStatus(t, url, id, "cancelled")
}

// Concurrent servers on stdio use different files.
func TestStdioServersUseDifferentFiles(t *testing.T) {
	dir := freshState(t)
	first, second := start(t, "serve", "--stdio"), start(t, "serve", "--stdio")
	for _, p := range []*process{first, second} {
		p.send(call(modern, 1, "add", `"a":1,"b":2`))
		if got := p.readLine(); !strings.Contains(got, `"text":"3"`) {
			t.Errorf("got %s, want 3", got)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "serve", "*"))
	if want := []string{filepath.Join(dir, "serve", "tasks-1.db"),
		filepath.Join(dir, "serve", "tasks-2.db")}; err != nil || !slices.Equal(files, want) {
		t.Errorf("files %q, %v, want %q", files, err, want)
	}
}

func TestTasksFlagSelectsTheFile(t *testing.T) {
	dir := freshState(t)
	file := filepath.Join(t.TempDir(), "my.db")
	for _, test := range []struct{ flag, file string }{{file, file}, {"memory", ""}} {
		p := serveAt(t, "127.0.0.1:0", "--tasks", test.flag)
		if _, err := os.Stat(test.file); test.file != "" && err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "serve")); err == nil {
			t.Errorf("--tasks %s: the server created its default file too", test.flag)
		}
		p.signal(syscall.SIGTERM)
		p.readRest()
	}
	damaged := filepath.Join(t.TempDir(), "damaged.db")
	if err := os.WriteFile(damaged, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := run(t, "serve", "--addr", "127.0.0.1:0", "--tasks", damaged); status != 1 ||
		!strings.Contains(stderr, "--tasks") {
		t.Errorf("a damaged file: exit code %d, want 1; standard error %s", status, stderr)
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
	if got := p.readLine(); !strings.Contains(got, `"text":"3"`) {
		t.Errorf("got %s, want 3", got)
	}
	p.stdin.Close()
	p.readRest()
	p.checkExit(0, time.Now(), timeout)
	if !strings.Contains(p.stderr.String(), "tasks are kept in memory only") {
		t.Errorf("standard error %q, want a message that tasks are in memory", &p.stderr)
	}
}
