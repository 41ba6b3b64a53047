package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// closeBound is the longest time that Close of a command takes.
const closeBound = 10500 * time.Millisecond

// startServer starts a server and closes it at the end of the test.
func startServer(t testing.TB, s *mcp.CommandTransport) mcp.Conn {
	t.Helper()
	if s.Logger == nil {
		s.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	c, err := s.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		begun := time.Now()
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(begun); took > closeBound {
			t.Errorf("Close took %v, want at most %v", took, closeBound)
		}
	})
	return c
}

// readMessage returns the next message or error. It fails the test if there is none within 30s.
func readMessage(t testing.TB, c mcp.Conn) (*jsonrpc.Message, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	m, err := c.Read(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Fatal("Read has not returned after 30s")
	}
	return m, err
}

// readWords returns the words of the next message, a notification of a role.
func readWords(t testing.TB, c mcp.Conn, method string) []string {
	t.Helper()
	m, err := readMessage(t, c)
	if err != nil {
		t.Fatal(err)
	}
	if m.Method != method {
		t.Fatalf("got a message of method %q, want %q", m.Method, method)
	}
	var params struct{ Words []string }
	if err := json.Unmarshal(m.Params, &params); err != nil {
		t.Fatal(err)
	}
	return params.Words
}

// waitReady waits until a server is ready, and returns a function that kills it, so that Close need
// not wait.
func waitReady(t testing.TB, c mcp.Conn) func() {
	t.Helper()
	pid, err := strconv.Atoi(readWords(t, c, "ready")[0])
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	return func() { p.Kill() }
}

// wantEcho tests that the server responds.
func wantEcho(t testing.TB, c mcp.Conn) {
	t.Helper()
	if err := c.Write(t.Context(), &jsonrpc.Message{Method: "hello"}); err != nil {
		t.Fatal(err)
	}
	if m, err := readMessage(t, c); err != nil || m.Method != "hello" {
		t.Fatalf("got %+v, %v; want the message back", m, err)
	}
}

// wantExit reads until the server has ended.
func wantExit(t testing.TB, c mcp.Conn) *mcp.ExitError {
	t.Helper()
	m, err := readMessage(t, c)
	exit, ok := errors.AsType[*mcp.ExitError](err)
	if !ok {
		t.Fatalf("Read = %+v, %v; want an ExitError", m, err)
	}
	if !errors.Is(err, mcp.ErrDisconnected) || !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("got %v, want ErrDisconnected and ErrClosed", err)
	}
	return exit
}

// A logBuffer is a buffer for concurrent writers.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) has(text string) bool { return strings.Contains(b.String(), text) }

func (b *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Requirement: STDIO-01
func TestCommandConnectsToThePipesOfAChild(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "echo"))
	for range 100 {
		wantEcho(t, c)
	}
}

// Requirement: STDIO-01, STDIO-08
func TestCommandSupportsEveryRevision(t *testing.T) {
	t.Parallel()
	for _, revision := range mcptest.Revisions() {
		client, err := mcp.Connect(t.Context(), roleCommand(t, "server"), &mcp.ClientOptions{Revision: revision})
		if err != nil {
			t.Fatalf("%s: %v", revision, err)
		}
		defer client.Close()
		if got := client.ServerInfo().Name; got != "child" {
			t.Errorf("%s: got server %q, want child", revision, got)
		}
		if _, err := client.CallTool(t.Context(), "pid", nil); err != nil {
			t.Errorf("%s: %v", revision, err)
		}
	}
}

// Requirement: STDIO-17, LIFE-23
func TestCommandRestartsAServerThatExited(t *testing.T) {
	t.Parallel()
	client, err := mcp.Connect(t.Context(), roleCommand(t, "server"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	runs := filepath.Join(t.TempDir(), "runs")
	_, err = client.CallTool(t.Context(), "exit", map[string]any{"log": runs})
	if log, err := os.ReadFile(runs); strings.Count(string(log), "\n") != 1 {
		t.Errorf("got runs %q, %v, want one of the call that ended the server", log, err)
	}
	lost, ok := errors.AsType[*mcp.TransportError](err)
	if !ok || !lost.MayHaveRun {
		t.Fatalf("got %v, want a TransportError with MayHaveRun", err)
	}
	if exit, ok := errors.AsType[*mcp.ExitError](err); !ok || exit.ExitCode != 7 ||
		!strings.HasSuffix(exit.Stderr, "exit requested") {
		t.Errorf("got %v, want status 7 and the standard error of the server", err)
	}
	if _, err := client.CallTool(t.Context(), "pid", nil); err != nil {
		t.Errorf("call after the exit: %v", err)
	}
}

// Run of a server returns when standard input ends, so Close need not terminate it.
//
// Requirement: STDIO-14, STDIO-15
func TestServerExitsWhenStdinEnds(t *testing.T) {
	t.Parallel()
	var log logBuffer
	s := roleCommand(t, "server")
	s.Logger = log.logger()
	client, err := mcp.Connect(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("Close took %v, want at most 4s", took)
	}
	if strings.Contains(log.String(), "terminating") {
		t.Errorf("the server was terminated before it exited: %s", log.String())
	}
}

// Requirement: STDIO-14, LIFE-22
func TestCloseClosesStdin(t *testing.T) {
	t.Parallel()
	var log logBuffer
	s := roleCommand(t, "echo")
	s.Logger = log.logger()
	c := startServer(t, s)
	wantEcho(t, c)
	begun := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("Close took %v, want at most 4s", took)
	}
	if strings.Contains(log.String(), "terminating") {
		t.Errorf("the server was terminated before it exited: %s", log.String())
	}
	if _, err := c.Read(t.Context()); !errors.Is(err, mcp.ErrClosed) || errors.Is(err, mcp.ErrDisconnected) {
		t.Errorf("Read after Close: %v, want ErrClosed", err)
	}
	if err := c.Write(t.Context(), &jsonrpc.Message{Method: "x"}); !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("Write after Close: %v, want ErrClosed", err)
	}
}

// A server that writes while it exits would block if its output were not read.
//
// Requirement: STDIO-14
func TestCloseReadsTheRemainingOutput(t *testing.T) {
	t.Parallel()
	var log logBuffer
	s := roleCommand(t, "write-at-end")
	s.Logger = log.logger()
	c := startServer(t, s)
	wantEcho(t, c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "terminating") {
		t.Errorf("the server was terminated before it exited: %s", log.String())
	}
}

// Requirement: STDIO-14
func TestCloseEndsBlockedReadsAndWrites(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "idle"))
	kill := waitReady(t, c)
	errs := make(chan error, 2)
	go func() {
		_, err := c.Read(context.Background())
		errs <- err
	}()
	go func() { errs <- writeMuch(context.Background(), c) }()
	done := make(chan error)
	go func() { done <- c.Close() }()
	for range 2 {
		if err := <-errs; !errors.Is(err, mcp.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
	kill()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// writeMuch writes more than a pipe holds, and returns the first error.
func writeMuch(ctx context.Context, c mcp.Conn) error {
	params := json.RawMessage(fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 1<<16)))
	for range 64 {
		if err := c.Write(ctx, &jsonrpc.Message{Method: "x", Params: params}); err != nil {
			return err
		}
	}
	return errors.New("all messages were written")
}

// Requirement: STDIO-01
func TestWriteToAServerThatDoesNotReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "idle"))
	defer waitReady(t, c)()
	late := errors.New("too late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, late)
	defer cancel()
	if err := writeMuch(ctx, c); !errors.Is(err, late) {
		t.Errorf("got %v, want the cause of the context", err)
	}
}

// Requirement: STDIO-06, STDIO-07
func TestExitErrorHasStatusAndStandardError(t *testing.T) {
	t.Parallel()
	many := ""
	for i := range 100 {
		many += fmt.Sprintf("line %d\n", i)
	}
	for _, test := range []struct{ name, stderr, want, text string }{
		{"silent", "", "", "exited with status 3"},
		{"one line", "no such package\n", "no such package", "exited with status 3: no such package"},
		{"no newline", "no such package", "no such package", "exited with status 3: no such package"},
		{"two lines", "a\r\n\nb\n", "a\nb", "exited with status 3:\n\ta\n\tb"},
		{"escapes", "\x1b[31mred\a\xff\n", "\x1b[31mred\a\uFFFD", "exited with status 3: [31mred\uFFFD"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := roleCommand(t, "fail", test.stderr)
			exit := wantExit(t, startServer(t, s))
			if exit.ExitCode != 3 || exit.Signal != "" || exit.Stderr != test.want {
				t.Errorf("got %+v, want status 3 and %q", exit, test.want)
			}
			if want := fmt.Sprintf("server %q %s", s.Path, test.text); exit.Error() != want {
				t.Errorf("got  %s\nwant %s", exit, want)
			}
		})
	}
	t.Run("many lines", func(t *testing.T) {
		t.Parallel()
		exit := wantExit(t, startServer(t, roleCommand(t, "fail", many)))
		if lines := strings.Split(exit.Stderr, "\n"); len(lines) != 16 || lines[0] != "line 84" ||
			lines[15] != "line 99" {
			t.Errorf("got %q, want the last 16 lines", lines)
		}
	})
	t.Run("long lines", func(t *testing.T) {
		t.Parallel()
		exit := wantExit(t, startServer(t, roleCommand(t, "fail", strings.Repeat(strings.Repeat("x", 1000)+"\n", 20))))
		if n := len(exit.Stderr); n > 4<<10 || n < 4000 {
			t.Errorf("got %d bytes of standard error, want 4000 to 4096", n)
		}
	})
	t.Run("signal", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS == "windows" {
			t.Skip("Windows has no signals")
		}
		s := roleCommand(t, "abort")
		exit := wantExit(t, startServer(t, s))
		if exit.ExitCode != -1 || exit.Signal != "killed" {
			t.Errorf("got %+v, want the signal", exit)
		}
		if want := fmt.Sprintf("server %q was ended by a signal: killed", s.Path); exit.Error() != want {
			t.Errorf("got  %s\nwant %s", exit, want)
		}
	})
}

// Requirement: STDIO-07
func TestWriteAfterTheExitReturnsTheExitError(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "fail", "because"))
	want := wantExit(t, c)
	err := c.Write(t.Context(), &jsonrpc.Message{Method: "x"})
	if got, ok := errors.AsType[*mcp.ExitError](err); !ok || *got != *want {
		t.Errorf("Write: %v, want %v", err, want)
	}
}

// Requirement: STDIO-16
func TestServerMayCloseStdoutWithoutExiting(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "close-stdout"))
	defer waitReady(t, c)()
	_, err := readMessage(t, c)
	if _, ok := errors.AsType[*mcp.ExitError](err); ok || !errors.Is(err, mcp.ErrDisconnected) {
		t.Errorf("got %v, want ErrDisconnected without an exit status", err)
	}
}

// Requirement: STDIO-05, STDIO-06
func TestWritingToStderrDoesNotBlockTheServer(t *testing.T) {
	t.Parallel()
	blocked := make(chan struct{})
	t.Cleanup(func() { close(blocked) })
	for _, test := range []struct {
		name   string
		size   string
		stderr io.Writer
	}{
		{"no writer", "100", nil},
		{"a fast writer", "20", io.Discard},
		{"a writer that blocks", "20", writerFunc(func([]byte) (int, error) { <-blocked; return 0, io.ErrClosedPipe })},
		{"a writer that fails", "20", writerFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe })},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := roleCommand(t, "write-stderr", test.size)
			s.Stderr = test.stderr
			c := startServer(t, s)
			wantEcho(t, c)
		})
	}
}

// Lines are dropped if the writer is too slow.
//
// Requirement: STDIO-06
func TestDroppedLinesAreCounted(t *testing.T) {
	t.Parallel()
	const all = 20_001
	lines, dropped := 0, 0
	written := make(chan struct{})
	complete := make(chan struct{})
	s := roleCommand(t, "write-stderr", "20")
	s.Stderr = writerFunc(func(p []byte) (int, error) {
		<-written
		n := 0
		if p[0] != '[' {
			lines++
		} else if _, err := fmt.Sscanf(string(p), "[%d lines dropped", &n); err == nil {
			dropped += n
		}
		if lines+dropped == all {
			close(complete)
		}
		return len(p), nil
	})
	c := startServer(t, s)
	wantEcho(t, c)
	close(written)
	select {
	case <-complete:
	case <-time.After(30 * time.Second):
		t.Error("not all lines arrived within 30s")
	}
	c.Close()
	if lines+dropped != all || lines == 0 || dropped == 0 {
		t.Errorf("got %d lines and %d dropped ones, want some of both and %d in all", lines, dropped, all)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Requirement: STDIO-05, STDIO-06
func TestStandardErrorGoesToTheWriterOrTheLog(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100<<10)
	t.Run("writer", func(t *testing.T) {
		t.Parallel()
		var out, log logBuffer
		s := roleCommand(t, "fail", "one\r\n\n"+long+"\nend")
		s.Stderr, s.Logger = &out, log.logger()
		c := startServer(t, s)
		wantExit(t, c)
		c.Close()
		if want := "one\n\n" + long[:64<<10] + "\nend\n"; out.String() != want {
			t.Errorf("got %d bytes %.40q, want %d", len(out.String()), out.String(), len(want))
		}
		if strings.Contains(log.String(), "one") {
			t.Error("the line is in the log too")
		}
	})
	t.Run("log", func(t *testing.T) {
		t.Parallel()
		var log logBuffer
		s := roleCommand(t, "fail", "hello you\n")
		s.Logger = log.logger()
		c := startServer(t, s)
		wantExit(t, c)
		c.Close()
		if got := log.String(); !strings.Contains(got, `level=DEBUG`) || !strings.Contains(got, `stderr="hello you"`) {
			t.Errorf("got log %s, want the line at level DEBUG", got)
		}
	})
}

// Requirement: STDIO-03
func TestInvalidLinesOnStdoutAreSkipped(t *testing.T) {
	t.Parallel()
	var log logBuffer
	s := roleCommand(t, "write-invalid")
	s.Logger = log.logger()
	c := startServer(t, s)
	invalid := 0
	for {
		m, err := readMessage(t, c)
		if err == nil {
			if m.Method != "valid" {
				t.Errorf("got %+v, want method valid", m)
			}
			break
		}
		if _, ok := errors.AsType[*jsonrpc.DecodeError](err); !ok {
			t.Fatal(err)
		}
		invalid++
	}
	if invalid != 1001 {
		t.Errorf("got %d decode errors, want 1001", invalid)
	}
	wantEcho(t, c)
	c.Close()
	got := log.String()
	if n := strings.Count(got, "not a message"); n == 0 || n > 20 {
		t.Errorf("%d lines were logged, want 1 to 20", n)
	}
	if !strings.Contains(got, `Welcome to the`) || strings.Contains(got, "\x1b") ||
		strings.Contains(got, strings.Repeat("y", 250)) {
		t.Errorf("got log %s, want the start of each line, quoted", got)
	}
}

// Requirement: STDIO-02
func TestTooLongLineIsSkipped(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "write-long"))
	_, err := readMessage(t, c)
	if _, ok := errors.AsType[*jsonrpc.DecodeError](err); !ok {
		t.Fatalf("got %v, want a DecodeError", err)
	}
	readWords(t, c, "short")
	wantEcho(t, c)

	s := roleCommand(t, "write-long")
	s.MaxMessage = 21 << 20
	if m, err := readMessage(t, startServer(t, s)); err != nil || m.Method != "long" {
		t.Errorf("with a higher limit: %v, want the message", err)
	}
}

// Requirement: STDIO-20
func TestServersGetOnlyAllowedEnvironmentVariables(t *testing.T) {
	t.Setenv("PATCHBAY_TEST_SECRET", "s3cret")
	t.Setenv("HTTPS_PROXY", "http://user:s3cret@proxy")
	t.Setenv("LC_TIME", "C")
	t.Setenv("LC_ALL", "() { s3cret; }")
	t.Setenv("LANG", "C")

	s := roleCommand(t, "env")
	s.Env = append(s.Env, "TOKEN=mine", "LANG=C.UTF-8")
	env := readWords(t, startServer(t, s), "env")
	if all := strings.Join(env, "\n"); strings.Contains(all, "s3cret") {
		t.Errorf("got environment %q, want no secret", env)
	}
	for _, want := range []string{"TOKEN=mine", "LANG=C.UTF-8", "PATH=" + os.Getenv("PATH")} {
		if !slices.Contains(env, want) {
			t.Errorf("got environment %q, want %s in it", env, want)
		}
	}
	if runtime.GOOS != "windows" && !slices.Contains(env, "LC_TIME=C") {
		t.Errorf("got environment %q, want LC_TIME in it", env)
	}

	s = roleCommand(t, "env")
	s.InsecureInheritEnv = true
	if env := readWords(t, startServer(t, s), "env"); !slices.Contains(env, "PATCHBAY_TEST_SECRET=s3cret") {
		t.Errorf("InsecureInheritEnv: got environment %q, want all variables", env)
	}
}

// Requirement: STDIO-01
func TestArgumentsAreNotInterpreted(t *testing.T) {
	t.Parallel()
	want := []string{"", "a b", `"`, "$HOME", "; exit 1", "`id`", "*", "-v"}
	if got := readWords(t, startServer(t, roleCommand(t, "args", want...)), "args"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Requirement: STDIO-01
func TestServerRunsInDir(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := roleCommand(t, "cwd")
	s.Dir = dir
	got := readWords(t, startServer(t, s), "cwd")
	if got[0] != dir || runtime.GOOS != "windows" && got[1] != dir {
		t.Errorf("got %q, want %s", got, dir)
	}
}

// Requirement: STDIO-01
func TestStartErrorNamesTheProgram(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("PATH", "."+string(os.PathListSeparator)+os.Getenv("PATH"))
	name := "local-server"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("plain", []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		s    *mcp.CommandTransport
		want error
	}{
		{"not in PATH", mcp.Command("patchbay-no-such-program"), exec.ErrNotFound},
		{"no such file", mcp.Command(filepath.Join(dir, "nothing")), os.ErrNotExist},
		{"in the current directory", mcp.Command("local-server"), exec.ErrDot},
		{"no name", mcp.Command(""), nil},
		{"a NUL in an argument", mcp.Command(testBinary(t), "a\x00b"), nil},
		{"a NUL in the environment", &mcp.CommandTransport{Path: testBinary(t), Env: []string{"A=\x00"}}, nil},
		{"no such directory", &mcp.CommandTransport{Path: testBinary(t), Dir: filepath.Join(dir, "missing")}, nil},
		{"not executable", mcp.Command(filepath.Join(dir, "plain")), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := test.s.Dial(t.Context())
			if err == nil {
				c.Close()
				t.Fatal("Dial: got no error")
			}
			if c != nil {
				t.Error("Dial returned a Conn with the error")
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if !strings.HasPrefix(err.Error(), fmt.Sprintf("start server %q: ", test.s.Path)) {
				t.Errorf("got %v, want the path of the program", err)
			}
		})
	}
	t.Run("context has ended", func(t *testing.T) {
		late := errors.New("too late")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(late)
		if _, err := roleCommand(t, "echo").Dial(ctx); !errors.Is(err, late) {
			t.Errorf("got %v, want the cause", err)
		}
	})
}

// The contexts of Connect and of calls end, and the server process continues.
//
// Requirement: STDIO-01, STL-04
func TestServerOutlivesContexts(t *testing.T) {
	t.Parallel()
	for _, revision := range mcptest.Revisions() {
		ctx, cancel := context.WithCancel(t.Context())
		c, err := mcp.Connect(ctx, roleCommand(t, "server"), &mcp.ClientOptions{Revision: revision})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		pids := map[string]bool{}
		for range 3 {
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			res, err := c.CallTool(ctx, "pid", nil)
			if err != nil {
				t.Fatalf("%s: %v", revision, err)
			}
			pids[res.Text()] = true
		}
		cancel()
		if len(pids) != 1 {
			t.Errorf("%s: got calls by %d processes, want 1", revision, len(pids))
		}
	}
}

// The process of a server ends while a subscription is open. The client restarts it and subscribes
// again.
//
// Requirement: STDIO-18, SUB-13
func TestListenIsSentAgainAfterARestart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	client, err := mcp.Connect(t.Context(), roleCommand(t, "server"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []mcp.EventKind
	for e, err := range client.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.Kind); len(got) == 2 {
			if !e.Filter.ToolsListChanged {
				t.Errorf("got filter %+v after the restart, want tools", e.Filter)
			}
			break
		}
		if _, err := client.CallTool(ctx, "exit", nil); err == nil {
			t.Fatal("the call that ends the server: got no error")
		}
	}
	if want := []mcp.EventKind{mcp.EventListening, mcp.EventChangesMissed}; !slices.Equal(got, want) {
		t.Errorf("got events %v, want %v", got, want)
	}
}

// Pipes of Windows have no deadlines.
//
// Requirement: STDIO-01
func TestWriteToAPipeWithoutDeadlinesEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		c := mcp.NewStreamConn(r, mcp.WithDeadline(w), nil)
		defer c.Close()
		hello := &jsonrpc.Message{Method: "hello"}

		got := make(chan string)
		go func() {
			line := make([]byte, 1000)
			n, _ := r.Read(line)
			got <- string(line[:n])
		}()
		if err := c.Write(t.Context(), hello); err != nil {
			t.Fatal(err)
		}
		if line := <-got; line != `{"jsonrpc":"2.0","method":"hello"}`+"\n" {
			t.Errorf("got %q, want the message on one line", line)
		}

		late := errors.New("too late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, late)
		defer cancel()
		if err := c.Write(ctx, hello); !errors.Is(err, late) {
			t.Errorf("got %v, want the cause of the context", err)
		}
		if err := c.Write(t.Context(), hello); !errors.Is(err, mcp.ErrDisconnected) {
			t.Errorf("got %v, want ErrDisconnected, since the earlier message may be written in part", err)
		}
	})
}
