//go:build unix

// Package takeover tests that the tasks of a process that is killed or suspended run at another
// process that shares the store. Only tests use the package.
package takeover

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

const (
	// variable is set in a process that serves tasks instead of running tests. It contains the name of
	// the process, its directory, and the URL of the store.
	variable = "PATCHBAY_TEST_TAKEOVER"
	// lease is the shortest lease that a server accepts.
	lease = 6 * time.Second
	// patience limits how long a test waits. A busy machine takes seconds.
	patience = time.Minute
)

// Open opens the tasks of the server with a name.
type Open func(ctx context.Context, url, name string) (s tasks.SharedStore, end func(), err error)

// Main serves tasks until the input ends, if [Run] started the process. Otherwise it returns false.
func Main(open Open) bool {
	name, rest, found := strings.Cut(os.Getenv(variable), " ")
	if !found {
		return false
	}
	dir, url, _ := strings.Cut(rest, " ")
	if err := serve(&process{name: name, dir: dir}, url, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func serve(p *process, url string, open Open) error {
	ctx := context.Background()
	store, end, err := open(ctx, url, p.dir)
	if err != nil {
		return err
	}
	defer end()
	s := mcp.NewServer("tasks", "1.0.0", nil)
	t := tasks.NewServer(s, &tasks.Options{Store: store, Lease: lease, PollInterval: 100 * time.Millisecond})
	for tool, restartable := range map[string]bool{"again": true, "once": false, "deaf": true} {
		opts := &tasks.ToolOptions{Restartable: restartable}
		tasks.AddTool(t, &mcp.Tool{Name: tool}, opts, func(ctx context.Context, _ struct{}) (string, error) {
			return p.run(ctx, tool)
		})
	}
	if err := t.Recover(ctx); err != nil {
		return err
	}
	h := mcphttp.NewHandler(s, nil)
	server := httptest.NewServer(h)
	fmt.Println(server.URL)
	_, err = io.Copy(io.Discard, os.Stdin)
	server.CloseClientConnections()
	return errors.Join(err, h.Shutdown(ctx), t.Close(ctx))
}

// A process serves tasks. Its functions write to the log in its directory, which the processes of a
// test share, and return when the directory contains a file with the name of the process.
type process struct {
	name, dir string
	client    *mcp.Client
	command   *exec.Cmd
	end       func() error // ends the input of the process and waits for its end
}

// run runs a task. The tool deaf ignores the end of its context. The others hold a lock of the
// task, which the system releases when the process is killed.
func (p *process) run(ctx context.Context, tool string) (string, error) {
	if tool == "deaf" {
		ctx = context.WithoutCancel(ctx)
	} else {
		f, err := os.Create(filepath.Join(p.dir, tasks.IDFrom(ctx)+".lock"))
		if err != nil {
			return "", err
		}
		defer f.Close()
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return "", errors.Join(err, p.log(ctx, "overlaps"))
		}
	}
	if err := p.log(ctx, "starts"); err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(p.dir, p.name)); err == nil {
			return "done by " + p.name, p.log(ctx, "returns")
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return "", errors.Join(context.Cause(ctx), p.log(ctx, "ends"))
		}
	}
}

func (p *process) log(ctx context.Context, event string) error {
	f, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, tasks.IDFrom(ctx), event, p.name)
	return errors.Join(err, f.Close())
}

// release lets the functions of the process return.
func (p *process) release(t *testing.T) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(p.dir, p.name), nil, 0o600))
}

// begin starts a task.
func (p *process) begin(t *testing.T, tool string) string {
	t.Helper()
	h, err := tasks.Start(t.Context(), p.client, tool, nil)
	must(t, err)
	return h.ID()
}

func (p *process) status(t *testing.T, id string) tasks.Status {
	t.Helper()
	task, err := tasks.Resume(p.client, id).Get(t.Context())
	must(t, err)
	return task.Status
}

// wantResult waits for the result of a task.
func (p *process) wantResult(t *testing.T, id, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if r, err := tasks.Resume(p.client, id).Wait(ctx); err != nil || r.IsError || r.Text() != want {
		t.Errorf("process %s returned %+v, %v; want %q", p.name, r, err, want)
	}
}

func start(t *testing.T, name, dir, url string) *process {
	t.Helper()
	p := &process{name: name, dir: dir, command: exec.CommandContext(context.Background(), os.Args[0])}
	p.command.Env = append(os.Environ(), variable+"="+name+" "+dir+" "+url)
	p.command.Stderr = os.Stderr
	stdin, err1 := p.command.StdinPipe()
	stdout, err2 := p.command.StdoutPipe()
	must(t, errors.Join(err1, err2, p.command.Start()))
	p.end = sync.OnceValue(func() error {
		defer time.AfterFunc(patience, func() { _ = p.command.Process.Kill() }).Stop()
		_ = stdin.Close() // fails if the process was killed
		return p.command.Wait()
	})
	t.Cleanup(func() {
		_ = p.command.Process.Signal(syscall.SIGCONT)
		_ = p.end()
	})
	address, err := bufio.NewReader(stdout).ReadString('\n')
	must(t, err)
	transport := mcphttp.NewTransport(strings.TrimSpace(address), nil)
	p.client, err = mcp.Connect(t.Context(), transport, tasks.Declare(nil, nil))
	must(t, err)
	t.Cleanup(func() { _ = p.client.Close() }) // an error if the process was killed
	return p
}

// awaitLog waits until the log contains n lines with a text, and returns all lines with the text.
func awaitLog(t *testing.T, dir, text string, n int) (lines []string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		log, err := os.ReadFile(filepath.Join(dir, "log"))
		lines = nil
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, text) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		if len(lines) >= n {
			return lines
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log has %d lines with %q, want %d: %s, %v", len(lines), text, n, log, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Run tests that tasks in the store of a URL move to another process. The test program must call
// [Main].
func Run(t *testing.T, url string) {
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		testKilled(t, url)
	})
	t.Run("suspended", func(t *testing.T) {
		t.Parallel()
		testSuspended(t, url)
	})
}

// After SIGKILL of a process, two others take over its tasks: each task runs once more, and a task
// that may not run twice fails. All processes return the same result.
func testKilled(t *testing.T, url string) {
	const n = 5
	dir := t.TempDir()
	a, b, c := start(t, "a", dir, url), start(t, "b", dir, url), start(t, "c", dir, url)
	once := a.begin(t, "once")
	var again []string
	for range n {
		again = append(again, a.begin(t, "again"))
	}
	awaitLog(t, dir, "starts a", n+1)
	if status := b.status(t, again[0]); status != tasks.StatusWorking {
		t.Errorf("a task that runs at another process is %s", status)
	}
	killed := time.Now()
	must(t, a.command.Process.Kill())
	_ = a.end()
	awaitLog(t, dir, "starts", 2*n+1)
	t.Logf("other processes took over all tasks after %v", time.Since(killed))
	b.release(t)
	c.release(t)
	for _, id := range again {
		lines := awaitLog(t, dir, id, 3)
		name := lines[2][len(lines[2])-1:]
		want := []string{id + " starts a", id + " starts " + name, id + " returns " + name}
		if strings.Join(lines, ", ") != strings.Join(want, ", ") || name == "a" {
			t.Errorf("got the log %q, want %q", lines, want)
		}
		b.wantResult(t, id, "done by "+name)
		c.wantResult(t, id, "done by "+name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if r, err := tasks.Resume(b.client, once).Wait(ctx); err == nil || !strings.Contains(err.Error(), "restarted") {
		t.Errorf("a task that may not run twice returned %+v, %v; want an error", r, err)
	}
	must(t, errors.Join(b.end(), c.end()))
	if lines := awaitLog(t, dir, "", 3*n+1); len(lines) > 3*n+1 {
		t.Errorf("got the log %q, want %d lines", lines, 3*n+1)
	}
}

// A process that was suspended for longer than its lease does not store the result of its function,
// even though the function ignores the end of its context.
func testSuspended(t *testing.T, url string) {
	dir := t.TempDir()
	a, b := start(t, "a", dir, url), start(t, "b", dir, url)
	id := a.begin(t, "deaf")
	awaitLog(t, dir, "starts a", 1)
	must(t, a.command.Process.Signal(syscall.SIGSTOP))
	awaitLog(t, dir, "starts b", 1)
	a.release(t)
	must(t, a.command.Process.Signal(syscall.SIGCONT))
	awaitLog(t, dir, "returns a", 1)
	must(t, a.end()) // waits until the process has tried to store its result
	if status := b.status(t, id); status != tasks.StatusWorking {
		t.Errorf("after the late result of the suspended process, the task is %s", status)
	}
	b.release(t)
	b.wantResult(t, id, "done by b")
	must(t, b.end())
	want := []string{id + " starts a", id + " starts b", id + " returns a", id + " returns b"}
	if lines := awaitLog(t, dir, "", len(want)); strings.Join(lines, ", ") != strings.Join(want, ", ") {
		t.Errorf("got the log %q, want %q", lines, want)
	}
}
