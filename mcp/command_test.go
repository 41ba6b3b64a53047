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
)

// closeBound is within what a child's Close returns, whatever the child does.
const closeBound = 10500 * time.Millisecond

// start starts a server and closes it at the end of the test.
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

// heard returns the next message, which comes soon.
func readMessage(t testing.TB, c mcp.Conn) (*jsonrpc.Message, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	m, err := c.Read(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Fatal("Read hangs")
	}
	return m, err
}

// words reads a notification of a role.
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

// mercy waits until a server is ready, and gives what kills it: a Close that nobody wants to look at need not last.
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

// wantEcho tests that the server lives.
func wantEcho(t testing.TB, c mcp.Conn) {
	t.Helper()
	if err := c.Write(t.Context(), jsonrpc.NewNotification("hello", nil)); err != nil {
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
		t.Errorf("%v is not ErrDisconnected", err)
	}
	return exit
}

// A record is what a server wrote, or what was logged of it.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *logBuffer) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(p)
}

func (r *logBuffer) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

func (r *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestSTDIO01_TheServerIsAChildWithItsPipes(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "echo"))
	for range 100 {
		wantEcho(t, c)
	}
}

func TestSTDIO01_TheServerOfACommandAnswers(t *testing.T) {
	t.Parallel()
	client, err := mcp.Connect(t.Context(), roleCommand(t, "server"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if name := client.ServerInfo().Name; name != "child" {
		t.Errorf("the server is called %q, want child", name)
	}
}

func TestSTDIO17_AServerThatDiedIsStartedAgain(t *testing.T) {
	t.Parallel()
	client, err := mcp.Connect(t.Context(), roleCommand(t, "server"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	runs := filepath.Join(t.TempDir(), "runs")
	_, err = client.CallTool(t.Context(), "exit", map[string]any{"log": runs})
	if log, err := os.ReadFile(runs); strings.Count(string(log), "\n") != 1 {
		t.Errorf("the call that ended the server has run as often as %q says, %v", log, err)
	}
	lost, ok := errors.AsType[*mcp.TransportError](err)
	if !ok || !lost.MayHaveRun {
		t.Fatalf("got %v, want a TransportError: the call may have run", err)
	}
	if exit, ok := errors.AsType[*mcp.ExitError](err); !ok || exit.ExitCode != 7 || !strings.HasSuffix(exit.Stderr, "I was asked to") {
		t.Errorf("got %v, want the exit status and what the server said", err)
	}
	if _, err := client.CallTool(t.Context(), "pid", nil); err != nil {
		t.Errorf("after the end of the server: %v", err)
	}
}

func TestSTDIO14_CloseEndsAServerThatListens(t *testing.T) {
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
		t.Errorf("Close took %v", took)
	}
	if strings.Contains(log.String(), "terminating") {
		t.Errorf("the server was not given the time to end by itself: %s", log.String())
	}
	if _, err := c.Read(t.Context()); !errors.Is(err, mcp.ErrClosed) || errors.Is(err, mcp.ErrDisconnected) {
		t.Errorf("Read after Close: %v, want ErrClosed", err)
	}
	if err := c.Write(t.Context(), jsonrpc.NewNotification("x", nil)); !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("Write after Close: %v, want ErrClosed", err)
	}
}

// A server that writes answers until it ends would never end if nobody read them.
func TestSTDIO14_CloseReadsWhatTheServerStillWrites(t *testing.T) {
	t.Parallel()
	var log logBuffer
	s := roleCommand(t, "farewell")
	s.Logger = log.logger()
	c := startServer(t, s)
	wantEcho(t, c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "terminating") {
		t.Errorf("the server could not end by itself: %s", log.String())
	}
}

func TestSTDIO14_CloseEndsReadsAndWritesThatWait(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "deaf"))
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

// writeMuch writes more than a pipe holds, and gives the first error.
func writeMuch(ctx context.Context, c mcp.Conn) error {
	params := json.RawMessage(fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 1<<16)))
	for range 64 {
		if err := c.Write(ctx, jsonrpc.NewNotification("x", params)); err != nil {
			return err
		}
	}
	return errors.New("nothing stopped the writer")
}

// Rule 11 of security.md 7.3: a deaf child cannot hold a caller past its context.
func TestSTDIO01_AWriteToADeafServerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "deaf"))
	defer waitReady(t, c)()
	late := errors.New("too late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, late)
	defer cancel()
	if err := writeMuch(ctx, c); !errors.Is(err, late) {
		t.Errorf("got %v, want the cause of the context", err)
	}
}

func TestSTDIO07_TheEndOfAServerSaysWhy(t *testing.T) {
	t.Parallel()
	many := ""
	for i := range 100 {
		many += fmt.Sprintf("line %d\n", i)
	}
	for _, test := range []struct{ name, stderr, kept, text string }{
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
			if exit.ExitCode != 3 || exit.Signal != "" || exit.Stderr != test.kept {
				t.Errorf("got %+v, want status 3 and %q", exit, test.kept)
			}
			if want := fmt.Sprintf("server %q %s", s.Path, test.text); exit.Error() != want {
				t.Errorf("got  %s\nwant %s", exit, want)
			}
		})
	}
	t.Run("many lines", func(t *testing.T) {
		t.Parallel()
		exit := wantExit(t, startServer(t, roleCommand(t, "fail", many)))
		if lines := strings.Split(exit.Stderr, "\n"); len(lines) != 16 || lines[0] != "line 84" || lines[15] != "line 99" {
			t.Errorf("got %q, want the last 16 lines", lines)
		}
	})
	t.Run("long lines", func(t *testing.T) {
		t.Parallel()
		exit := wantExit(t, startServer(t, roleCommand(t, "fail", strings.Repeat(strings.Repeat("x", 1000)+"\n", 20))))
		if n := len(exit.Stderr); n > 4<<10 || n < 4000 {
			t.Errorf("kept %d bytes, want 4 KiB at most and nearly as much", n)
		}
	})
	t.Run("signal", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS == "windows" {
			t.Skip("there are no signals")
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

func TestSTDIO07_WritingToAServerThatEndedSaysWhy(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "fail", "because"))
	want := wantExit(t, c)
	err := c.Write(t.Context(), jsonrpc.NewNotification("x", nil))
	if got, ok := errors.AsType[*mcp.ExitError](err); !ok || *got != *want {
		t.Errorf("Write: %v, want %v", err, want)
	}
}

func TestSTDIO16_AServerMayCloseItsOutputAndStay(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "mute"))
	defer waitReady(t, c)()
	_, err := readMessage(t, c)
	if _, ok := errors.AsType[*mcp.ExitError](err); ok || !errors.Is(err, mcp.ErrDisconnected) {
		t.Errorf("got %v, want ErrDisconnected without an exit status", err)
	}
}

func TestSTDIO06_AServerIsNeverHeldUpByItsStandardError(t *testing.T) {
	t.Parallel()
	blocked := make(chan struct{})
	t.Cleanup(func() { close(blocked) })
	for _, test := range []struct {
		name   string
		size   string
		stderr io.Writer
	}{
		{"nobody listens", "100", nil},
		{"a fast writer", "20", io.Discard},
		{"a writer that blocks", "20", writerFunc(func([]byte) (int, error) { <-blocked; return 0, io.ErrClosedPipe })},
		{"a writer that fails", "20", writerFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe })},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := roleCommand(t, "flood", test.size)
			s.Stderr = test.stderr
			c := startServer(t, s)
			wantEcho(t, c)
		})
	}
}

// Lines that a writer is too slow for are counted, so that it is known how many there were.
func TestSTDIO06_LinesThatAreDroppedAreCounted(t *testing.T) {
	t.Parallel()
	const all = 20_001
	lines, dropped := 0, 0
	flooded := make(chan struct{})
	complete := make(chan struct{})
	s := roleCommand(t, "flood", "20")
	s.Stderr = writerFunc(func(p []byte) (int, error) {
		<-flooded
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
	close(flooded)
	select {
	case <-complete:
	case <-time.After(30 * time.Second):
		t.Error("not all lines were told")
	}
	c.Close()
	if lines+dropped != all || lines == 0 || dropped == 0 {
		t.Errorf("%d lines and %d that were dropped, want some of both and %d in all", lines, dropped, all)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestSTDIO06_StandardErrorGoesToTheWriterOrTheLog(t *testing.T) {
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
			t.Errorf("the log has no such line: %s", got)
		}
	})
}

func TestSTDIO03_GarbageOnTheOutputIsSurvived(t *testing.T) {
	t.Parallel()
	var log logBuffer
	s := roleCommand(t, "garbage")
	s.Logger = log.logger()
	c := startServer(t, s)
	refused := 0
	for {
		m, err := readMessage(t, c)
		if err == nil {
			if m.Method != "sense" {
				t.Errorf("got %+v", m)
			}
			break
		}
		if _, ok := errors.AsType[*jsonrpc.DecodeError](err); !ok {
			t.Fatal(err)
		}
		refused++
	}
	if refused != 1001 {
		t.Errorf("%d lines were refused, want 1001", refused)
	}
	wantEcho(t, c)
	c.Close()
	got := log.String()
	if n := strings.Count(got, "not a message"); n == 0 || n > 20 {
		t.Errorf("%d lines were logged, want a few", n)
	}
	if !strings.Contains(got, `Welcome to the`) || strings.Contains(got, "\x1b") || strings.Contains(got, strings.Repeat("y", 250)) {
		t.Errorf("want the beginning of each, quoted: %s", got)
	}
}

func TestSTDIO02_AnEndlessLineIsRefusedAndTheNextOneRead(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "long"))
	_, err := readMessage(t, c)
	if _, ok := errors.AsType[*jsonrpc.DecodeError](err); !ok {
		t.Fatalf("got %v, want a DecodeError", err)
	}
	readWords(t, c, "short")
	wantEcho(t, c)

	s := roleCommand(t, "long")
	s.MaxMessage = 21 << 20
	if m, err := readMessage(t, startServer(t, s)); err != nil || m.Method != "long" {
		t.Errorf("with a higher limit: %v, want the message", err)
	}
}

func TestSEC_TheEnvironmentIsAnAllowList(t *testing.T) {
	t.Setenv("PATCHBAY_TEST_SECRET", "s3cret")
	t.Setenv("HTTPS_PROXY", "http://user:s3cret@proxy")
	t.Setenv("LC_TIME", "C")
	t.Setenv("LC_ALL", "() { s3cret; }")
	t.Setenv("LANG", "C")

	s := roleCommand(t, "env")
	s.Env = append(s.Env, "TOKEN=mine", "LANG=C.UTF-8")
	env := readWords(t, startServer(t, s), "env")
	if all := strings.Join(env, "\n"); strings.Contains(all, "s3cret") {
		t.Errorf("a secret is in the environment: %q", env)
	}
	for _, want := range []string{"TOKEN=mine", "LANG=C.UTF-8", "PATH=" + os.Getenv("PATH")} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is not in the environment %q", want, env)
		}
	}
	if runtime.GOOS != "windows" && !slices.Contains(env, "LC_TIME=C") {
		t.Errorf("LC_TIME is not in the environment %q", env)
	}

	s = roleCommand(t, "env")
	s.InsecureInheritEnv = true
	if env := readWords(t, startServer(t, s), "env"); !slices.Contains(env, "PATCHBAY_TEST_SECRET=s3cret") {
		t.Errorf("not all of the environment was inherited: %q", env)
	}
}

func TestSTDIO01_ArgumentsArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	want := []string{"", "a b", `"`, "$HOME", "; exit 1", "`id`", "*", "-v"}
	if got := readWords(t, startServer(t, roleCommand(t, "args", want...)), "args"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSTDIO01_TheServerRunsInItsDirectory(t *testing.T) {
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

func TestSTDIO01_AServerThatCannotBeStarted(t *testing.T) {
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
		{"in the current directory by accident", mcp.Command("local-server"), exec.ErrDot},
		{"no name", mcp.Command(""), nil},
		{"a NUL in an argument", mcp.Command(testBinary(t), "a\x00b"), nil},
		{"a NUL in the environment", func() *mcp.CommandTransport { s := mcp.Command(testBinary(t)); s.Env = []string{"A=\x00"}; return s }(), nil},
		{"no such directory", func() *mcp.CommandTransport {
			s := roleCommand(t, "echo")
			s.Dir = filepath.Join(dir, "nowhere")
			return s
		}(), nil},
		{"no program", mcp.Command(filepath.Join(dir, "plain")), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := test.s.Dial(t.Context())
			if err == nil {
				c.Close()
				t.Fatal("it was started")
			}
			if c != nil {
				t.Error("got a Conn with the error")
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if !strings.HasPrefix(err.Error(), fmt.Sprintf("start server %q: ", test.s.Path)) {
				t.Errorf("%v does not say what was started", err)
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

func TestSTDIO01_TheLifeOfAServerIsNotThatOfItsStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c, err := roleCommand(t, "echo").Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cancel()
	wantEcho(t, c)
}

// Pipes without deadlines, as those of Windows, hold nobody past the context either.
func TestSTDIO01_AWriteToAPipeWithoutDeadlinesEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		c := mcp.NewStreamConn(r, mcp.WithDeadline(w), nil)
		defer c.Close()
		hello := jsonrpc.NewNotification("hello", nil)

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
			t.Errorf("got %q", line)
		}

		late := errors.New("too late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, late)
		defer cancel()
		if err := c.Write(ctx, hello); !errors.Is(err, late) {
			t.Errorf("got %v, want the cause of the context", err)
		}
		if err := c.Write(t.Context(), hello); !errors.Is(err, mcp.ErrDisconnected) {
			t.Errorf("got %v, want ErrDisconnected: the message before may still come", err)
		}
	})
}
