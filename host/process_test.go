//go:build unix

package host_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// roleVariable makes the test binary run a role, such as a server, instead of tests. startsVariable
// names a file to which each start appends its process id.
const (
	roleVariable   = "PATCHBAY_HOST_TEST_ROLE"
	startsVariable = "PATCHBAY_HOST_TEST_STARTS"
	// revisionVariable is the revision of a server.
	revisionVariable = "PATCHBAY_HOST_TEST_REVISION"
)

func init() {
	role := os.Getenv(roleVariable)
	if role == "" {
		return
	}
	if role != "sleep" {
		recordStart(fmt.Sprint(os.Getpid()))
	}
	switch role {
	case "server":
		serveProcess()
	case "lurker":
		serveLurker(os.Getenv(revisionVariable), os.Stdin, os.Stdout)
	case "turning":
		serveTurning()
	case "exit":
		fmt.Fprint(os.Stderr, "cannot read \x1b[31mthe key\n")
		os.Exit(3)
	case "silent":
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "linger":
		serveProcess()
		time.Sleep(500 * time.Millisecond)
		recordStart("end")
	case "ignore":
		signal.Ignore(syscall.SIGTERM)
		serveProcess()
		time.Sleep(time.Hour)
	case "sleep":
		time.Sleep(time.Hour)
	}
	os.Exit(0)
}

// recordStart appends a line to the file of starts.
func recordStart(line string) {
	name := os.Getenv(startsVariable)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, line)
}

func serveProcess() {
	s := simpleServer("child")
	mcp.AddTool(s, &mcp.Tool{Name: "pid"}, func(context.Context, struct{}) (string, error) {
		return fmt.Sprint(os.Getpid()), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "exit"}, func(context.Context, struct{}) (string, error) {
		fmt.Fprintln(os.Stderr, "exit requested")
		os.Exit(7)
		return "", nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "files"}, func(context.Context, struct{}) (string, error) {
		var limit syscall.Rlimit
		err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
		return fmt.Sprint(limit.Max), err
	})
	mcp.AddTool(s, &mcp.Tool{Name: "spawn"}, func(context.Context, struct{}) (string, error) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"=sleep")
		if err := cmd.Start(); err != nil {
			return "", err
		}
		return fmt.Sprint(cmd.Process.Pid), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "daemon"}, func(context.Context, struct{}) (string, error) {
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Stdout = append(os.Environ(), roleVariable+"=sleep"), os.Stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return "", err
		}
		return fmt.Sprint(cmd.Process.Pid), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "write"}, func(_ context.Context, in struct{ Lines int }) (string, error) {
		out := bufio.NewWriter(os.Stderr)
		defer out.Flush()
		for n := range in.Lines {
			fmt.Fprintf(out, "line %d \x1b]0;title\x07 \u202e\n", n)
		}
		return "", nil
	})
	if err := s.Run(context.Background(), mcp.Stdio()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// processEntry returns the entry of a server that runs a role in a process. starts is the name of the
// file with the ids of its processes.
func processEntry(t *testing.T, role string) (entry map[string]any, starts func() []string) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "starts")
	env := map[string]string{roleVariable: role, startsVariable: name, "GORACE": "atexit_sleep_ms=0"}
	return map[string]any{"command": binary, "env": env}, func() []string {
		text, _ := os.ReadFile(name)
		return strings.Fields(string(text))
	}
}

// callProcess calls a tool of a process. A call waits a few seconds for a process that is starting, which may
// take longer on a loaded machine. It has not run then, and is sent again.
func callProcess(t *testing.T, c *mcp.Client, tool string, args any) (*mcp.CallToolResult, error) {
	t.Helper()
	for begun := time.Now(); ; {
		res, err := c.CallTool(t.Context(), tool, args)
		if err != nil || time.Since(begun) > time.Minute {
			return res, err
		}
		if f, _ := failureIn(t, res); f == nil || f.Code != hosterr.CodeStarting || f.MayHaveRun {
			return res, nil
		}
	}
}

// failureOfProcess is failureOf for a process that may be starting; see callProcess.
func failureOfProcess(t *testing.T, c *mcp.Client, tool string) (*failure, string) {
	t.Helper()
	res, err := callProcess(t, c, tool, nil)
	if err != nil {
		t.Fatalf("call of %s: %v", tool, err)
	}
	return failureIn(t, res)
}

// isRunning reports whether a process runs. A zombie does not run.
func isRunning(pid string) bool {
	var id int
	if _, err := fmt.Sscan(pid, &id); err != nil || syscall.Kill(id, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return true // without /proc
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return len(state) == 0 || state[0] != 'Z' && state[0] != 'X'
}

// waitUntil waits for a condition.
func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for begun := time.Now(); !is(); <-poll.C {
		if time.Since(begun) > time.Minute { // a loaded machine takes long to start a process
			t.Fatalf("timeout: %s", what)
		}
	}
}

// openFiles returns the number of descriptors of this process, zero if it is unknown.
func openFiles() int {
	all, _ := os.ReadDir("/proc/self/fd")
	return len(all)
}

func TestNoOrphansNoDuplicateProcesses(t *testing.T) {
	mcptest.NoLeaks(t)
	files := openFiles()
	entry, starts := processEntry(t, "server")
	h := openFile(t, map[string]any{"s": entry}, "{}", &host.Options{})
	var wait sync.WaitGroup
	var mu sync.Mutex
	var spawned []string
	for range 20 {
		wait.Go(func() {
			c, err := mcp.Connect(t.Context(), mcp.InMemory(h.For(&policy.Caller{})), nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			res, err := callProcess(t, c, "s__spawn", nil)
			if err != nil || res.IsError {
				t.Errorf("got %+v, %v", res, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			spawned = append(spawned, res.Text())
		})
	}
	wait.Wait()
	pids := starts()
	if len(pids) != 1 || len(spawned) != 20 {
		t.Fatalf("got processes %v with %d children, want one with 20", pids, len(spawned))
	}
	begun := time.Now()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 12*time.Second {
		t.Errorf("Close took %v, want at most 12s", took)
	}
	for _, pid := range append(pids, spawned...) {
		if isRunning(pid) {
			t.Errorf("process %s runs after Close", pid)
		}
	}
	waitUntil(t, "descriptors are closed", func() bool { return openFiles() <= files })
}

// A process that does not exit is killed.
func TestCloseKillsProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the grace periods of a process")
	}
	t.Parallel()
	entry, starts := processEntry(t, "ignore")
	h := openFile(t, map[string]any{"s": entry}, "{}", &host.Options{})
	if f, text := failureOfProcess(t, client(t, h, &policy.Caller{}), "s__name"); f != nil {
		t.Fatalf("got %+v, %q", f, text)
	}
	begun := time.Now()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 12*time.Second {
		t.Errorf("Close took %v, want at most 12s", took)
	}
	if pid := starts()[0]; isRunning(pid) {
		t.Errorf("process %s runs after Close", pid)
	}
}

// A stopped process may take long to exit. The next one starts only then, since both may use the same
// files.
func TestProcessesDoNotOverlap(t *testing.T) {
	entry, starts := processEntry(t, "linger")
	h := openFile(t, map[string]any{"s": entry}, `{"servers": {"s": {"idle": "50ms"}}}`, &host.Options{})
	c := client(t, h, &policy.Caller{})
	u := upstream(t, h, "s")
	waitUntil(t, "the server is idle", func() bool { return u.Status().State == status.Stopped })
	f, pid := failureOfProcess(t, c, "s__pid")
	all := starts()
	if f != nil || len(all) < 3 || !slices.Contains(all[2:], pid) {
		t.Errorf("got %+v, %q after %v, want a second process", f, pid, all)
	}
	for n, line := range all { // there may be more than two: the server is idle soon between two requests
		if (line == "end") != (n%2 == 1) {
			t.Fatalf("got %v, want the end of each process before the start of the next", all)
		}
	}
}

// The limits of the configuration count for the process, which has the id that the status shows.
func TestLimitsOfProcesses(t *testing.T) {
	entry, starts := processEntry(t, "server")
	settings := `{"servers": {"s": {"limits": {"openFiles": 99}}}}`
	h := openFile(t, map[string]any{"s": entry}, settings, &host.Options{})
	if f, text := failureOfProcess(t, client(t, h, &policy.Caller{}), "s__files"); f != nil || text != "99" {
		t.Errorf("got %+v, %q, want 99 files", f, text)
	}
	in := upstream(t, h, "s").Status().Instances
	if len(in) != 1 || fmt.Sprint(in[0].PID) != starts()[0] {
		t.Errorf("got %+v, want process %s", in, starts()[0])
	}
}

// Close also ends processes that are starting.
func TestCloseEndsAStart(t *testing.T) {
	mcptest.NoLeaks(t)
	entry, starts := processEntry(t, "silent")
	h := openFile(t, map[string]any{"s": entry}, "{}", &host.Options{})
	done := make(chan error, 1)
	go func() { done <- h.Start(context.Background()) }()
	waitUntil(t, "the process starts", func() bool { return len(starts()) == 1 })
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("Start: got no error")
	}
	if pid := starts()[0]; isRunning(pid) {
		t.Errorf("process %s runs after Close", pid)
	}
}

// The failure of a process has its exit status, and its status has its last output, which callers do
// not see. The call is not sent again.
//
// Requirement: HOST-42
func TestExitDuringACall(t *testing.T) {
	entry, starts := processEntry(t, "server")
	h := openFile(t, map[string]any{"s": entry}, "{}", &host.Options{})
	u := upstream(t, h, "s")
	c := client(t, h, &policy.Caller{})
	f, text := failureOfProcess(t, c, "s__exit")
	if f == nil || f.Code != hosterr.CodeUnavailable || !f.MayHaveRun || f.Server != "s" {
		t.Errorf("got %+v, want unavailable that may have run", f)
	}
	for _, want := range []string{`server "s"`, "status 7", "may have run"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %q, want %q in it", text, want)
		}
	}
	waitUntil(t, "the exit is noticed", func() bool { return u.Status().State == status.Backoff })
	st := u.Status()
	if strings.Contains(text, "exit requested") {
		t.Errorf("got %q, with the output of the process", text)
	}
	if st.Exit == nil || st.Exit.ExitCode != 7 || !strings.Contains(st.Exit.Stderr, "exit requested") {
		t.Errorf("got %+v, want exit status 7", st)
	}
	first := starts()
	if f, text := failureOfProcess(t, c, "s__pid"); f != nil || text == first[0] {
		t.Errorf("after the exit: got %+v, %q", f, text)
	}
	if n := len(starts()); n != 2 {
		t.Errorf("got %d starts, want 2", n)
	}
}

// Between two requests the process is killed. The next request runs once, on a new process. A daemon
// holds the output of the first one open, so that only the write of the request shows the end.
func TestExitBetweenCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, era := range []string{"session", "modern"} {
		t.Run(era, func(t *testing.T) {
			entry, starts := processEntry(t, "server")
			o := &host.Options{Client: mcp.ClientOptions{ProbeTimeout: time.Minute}} // for a loaded machine: no other era is tried
			h := openFile(t, map[string]any{"s": entry}, `{"servers": {"s": {"era": "`+era+`"}}}`, o)
			u := upstream(t, h, "s")
			c := client(t, h, &policy.Caller{})
			f, pid := failureOfProcess(t, c, "s__pid")
			if f != nil || !slices.Contains(starts(), pid) {
				t.Fatalf("got %+v, %q", f, pid)
			}
			f, daemon := failureOfProcess(t, c, "s__daemon")
			if f != nil {
				t.Fatalf("got %+v, %q", f, daemon)
			}
			defer exec.Command("kill", "-9", daemon).Run()
			if err := exec.Command("kill", "-9", pid).Run(); err != nil {
				t.Fatal(err)
			}
			var id int
			fmt.Sscan(pid, &id)
			waitUntil(t, "the process is reaped", func() bool { return syscall.Kill(id, 0) != nil })
			if f, text := failureOfProcess(t, c, "s__pid"); f != nil || text == pid {
				t.Errorf("after the exit: got %+v, %q", f, text)
			}
			if all := starts(); len(all) != 2 || u.Status().Starts != 2 {
				t.Errorf("got starts %v, %+v, want 2", all, u.Status())
			}
		})
	}
}

// The reason of a crash loop has the exit status and the last output.
func TestCrashLoopOfAProcess(t *testing.T) {
	entry, starts := processEntry(t, "exit")
	h := openFile(t, map[string]any{"s": entry}, "{}", &host.Options{})
	u := upstream(t, h, "s")
	for range 5 {
		err := h.Start(t.Context())
		var failed *hosterr.Error
		if !errors.As(err, &failed) || failed.MayHaveRun {
			t.Fatalf("got %v, want an error of a request that has not run", err)
		}
		host.EndBackoff(u)
	}
	n := len(starts())
	err := h.Start(t.Context())
	var failed *hosterr.Error
	var exit *mcp.ExitError
	if !errors.As(err, &failed) || failed.Code != hosterr.CodeCrashLoop || !errors.As(err, &exit) || exit.ExitCode != 3 {
		t.Errorf("got %v, want a crash loop with exit status 3", err)
	}
	if !strings.Contains(err.Error(), "the key") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("got %q, want the last output without control characters", err)
	}
	if len(starts()) != n {
		t.Error("the server was started in a crash loop")
	}
	lines := u.Stderr()
	if len(lines) == 0 || lines[0].Text != `cannot read \x1b[31mthe key` || lines[0].Instance == "" {
		t.Errorf("got %+v", lines)
	}
}

// A lineWriter passes on what is written, as far as there is room.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	select {
	case w <- string(p):
	default:
	}
	return len(p), nil
}

// The writer of a transport receives the lines that the host keeps.
func TestStderrOfTransportWithWriter(t *testing.T) {
	entry, _ := processEntry(t, "server")
	lines := make(lineWriter, 100)
	h := openFile(t, map[string]any{"s": entry}, "{}", &host.Options{
		Dial: func(ctx context.Context, s *config.Server) (mcp.Transport, error) {
			transport, err := host.Dial(ctx, s)
			transport.(*mcp.CommandTransport).Stderr = lines
			return transport, err
		}})
	u := upstream(t, h, "s")
	if res, err := callProcess(t, client(t, h, &policy.Caller{}), "s__write", map[string]any{"Lines": 1}); err != nil || res.IsError {
		t.Fatalf("got %+v, %v", res, err)
	}
	if got := <-lines; !strings.HasPrefix(got, "line 0 ") {
		t.Errorf("got %q, want the line", got)
	}
	if all := u.Stderr(); len(all) != 1 || !strings.HasPrefix(all[0].Text, "line 0 ") {
		t.Errorf("the host keeps %+v, want the line", all)
	}
}

// The host keeps the last 256 KiB of standard error, with visible characters only.
func TestStderr(t *testing.T) {
	entry, _ := processEntry(t, "server")
	h := openFile(t, map[string]any{"s": entry}, "{}", &host.Options{})
	u := upstream(t, h, "s")
	c := client(t, h, &policy.Caller{})
	var all []status.StderrLine
	last, lines := -1, 1000
	for ; lines < 1009; lines++ { // of more at once, those that no reader has read in time would be dropped
		if res, err := callProcess(t, c, "s__write", map[string]any{"Lines": lines}); err != nil || res.IsError {
			t.Fatalf("got %+v, %v", res, err)
		}
		waitUntil(t, "the last line arrives", func() bool {
			all = u.Stderr()
			last = slices.IndexFunc(all, func(l status.StderrLine) bool {
				return strings.HasPrefix(l.Text, fmt.Sprintf("line %d ", lines-1))
			})
			return last >= 0
		})
	}
	lines--
	size := 0
	for _, l := range all {
		size += len(l.Text) + 64 // what a line needs besides
	}
	if size > 256<<10 || len(all) < 1000 {
		t.Errorf("got %d lines of %d bytes, want at most 256 KiB", len(all), size)
	}
	if got, want := all[last], u.Status().Instances[0].ID; got.Instance != want ||
		got.Text != fmt.Sprintf(`line %d \x1b]0;title\x07 \u202e`, lines-1) {
		t.Errorf("got %+v, want instance %s", got, want)
	}
}

func TestOneFailedServerDoesNotFailListsOrInitialize(t *testing.T) {
	good, _ := processEntry(t, "server")
	bad, _ := processEntry(t, "exit")
	servers := map[string]any{"good": good, "bad": bad, "missing": map[string]any{"command": "/no/such/program"},
		"unset": map[string]any{"command": "x", "args": []string{"${NO_SUCH_VARIABLE}"}}}
	h := openFile(t, servers, "{}", &host.Options{})
	if err := h.Start(t.Context(), "good"); err != nil { // lists wait a few seconds for it, which may not be enough
		t.Fatal(err)
	}
	for _, revision := range mcptest.Revisions() {
		c := clientWith(t, h, &policy.Caller{}, &mcp.ClientOptions{Revision: revision})
		tools, err := mcp.Collect(c.Tools(t.Context()))
		if err != nil || len(tools) != 10 {
			t.Fatalf("tools: got %d, %v, want those of the good server", len(tools), err)
		}
		if f, text := failureOfProcess(t, c, "good__name"); f != nil || text != "child" {
			t.Errorf("got %+v, %q", f, text)
		}
	}
	for name, want := range map[string]status.State{"good": status.Ready, "unset": status.Config} {
		if st := upstream(t, h, name).Status(); st.State != want {
			t.Errorf("%s: got %+v, want %s", name, st, want)
		}
	}
	err := h.Start(t.Context(), "unset")
	var failed *hosterr.Error
	if !errors.As(err, &failed) || failed.Code != hosterr.CodeConfigError ||
		!strings.Contains(err.Error(), "NO_SUCH_VARIABLE") {
		t.Errorf("got %v, want config_error with the variable", err)
	}
}
