package proclimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/proclimit"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

// roleVariable makes the test binary a server, or an idle process.
const roleVariable = "PATCHBAY_TEST_LIMITS"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "server":
		serve()
		return
	case "idle":
		time.Sleep(time.Hour)
		return
	}
	os.Exit(testhome.Main(m, mcptest.Main))
}

// leaveGroup starts a process outside the process group of its parent, if the platform can do that.
var leaveGroup = func(*exec.Cmd) {}

func serve() {
	s := mcp.NewServer("limited", "1", nil)
	var held [][]byte
	mcp.AddTool(s, &mcp.Tool{Name: "allocate"}, func(_ context.Context, in struct{ MiB int }) (int, error) {
		for range in.MiB {
			held = append(held, bytes.Repeat([]byte{1}, 1<<20))
		}
		return len(held), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "read"}, func(_ context.Context, in struct{ File string }) (string, error) {
		text, err := os.ReadFile(in.File)
		return string(text), err
	})
	mcp.AddTool(s, &mcp.Tool{Name: "daemon"}, func(_ context.Context, _ struct{}) (int, error) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = []string{roleVariable + "=idle"}
		leaveGroup(cmd)
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	})
	if err := s.Run(context.Background(), mcp.Stdio()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// connect starts a server with the limits of a Limiter.
func connect(t *testing.T, l interface{ Prepare(*exec.Cmd) error }, opts *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := mcp.Command(name, "two words", "--", "-n")
	s.Env = []string{roleVariable + "=server", "GOMAXPROCS=2", "GORACE=atexit_sleep_ms=0"}
	s.Prepare = l.Prepare
	c, err := mcp.Connect(t.Context(), s, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func newLimiter(t *testing.T, l proclimit.Limits) *proclimit.Limiter {
	t.Helper()
	limiter, err := proclimit.New(l)
	if errors.Is(err, proclimit.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := limiter.Close(); err != nil {
			t.Error(err)
		}
	})
	return limiter
}

func TestMemoryIsLimited(t *testing.T) {
	for _, revision := range []string{"2024-11-05", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			c := connect(t, newLimiter(t, proclimit.Limits{Memory: 512 << 20}), &mcp.ClientOptions{Revision: revision})
			if n, err := mcp.CallTool[int](t.Context(), c, "allocate", map[string]any{"MiB": 10}); n != 10 || err != nil {
				t.Errorf("10 MiB: got %d, %v", n, err)
			}
			_, err := mcp.CallTool[int](t.Context(), c, "allocate", map[string]any{"MiB": 2048})
			if exit, ok := errors.AsType[*mcp.ExitError](err); !ok {
				t.Errorf("2 GiB: got %v, want the end of the server", err)
			} else if !strings.HasSuffix(exit.Command, "proclimit.test") {
				t.Errorf("got command %q, want that of the server", exit.Command)
			}
		})
	}
}

func TestOpenFilesAreLimited(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("/proc shows the limit")
	}
	c := connect(t, newLimiter(t, proclimit.Limits{OpenFiles: 77}), nil)
	limits, err := mcp.CallTool[string](t.Context(), c, "read", map[string]any{"File": "/proc/self/limits"})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(limits) {
		if f := strings.Fields(line); strings.HasPrefix(line, "Max open files") && (f[3] != "77" || f[4] != "77") {
			t.Errorf("got %s, want 77", line)
		}
	}
	args, err := mcp.CallTool[string](t.Context(), c, "read", map[string]any{"File": "/proc/self/cmdline"})
	if _, rest, _ := strings.Cut(args, "\x00"); err != nil || rest != "two words\x00--\x00-n\x00" {
		t.Errorf("got arguments %q, %v", rest, err)
	}
}

// A limit above the one in force needs no right to raise that.
func TestLargeLimitsChangeNothing(t *testing.T) {
	c := connect(t, newLimiter(t, proclimit.Limits{OpenFiles: math.MaxInt}), nil)
	if n, err := mcp.CallTool[int](t.Context(), c, "allocate", map[string]any{"MiB": 1}); n != 1 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

func TestInvalidLimitsAreRefused(t *testing.T) {
	for _, l := range []proclimit.Limits{
		{Memory: -1}, {Processes: -1}, {OpenFiles: -1}, {CPU: -1}, {CPU: math.NaN()}, {CPU: math.Inf(1), BestEffort: true},
	} {
		if _, err := proclimit.New(l); err == nil || errors.Is(err, proclimit.ErrUnsupported) {
			t.Errorf("%+v: got %v, want an invalid limit", l, err)
		}
	}
}

func TestBestEffortStartsWithoutALimit(t *testing.T) {
	l := proclimit.Limits{Memory: 1 << 30, Processes: 1000, OpenFiles: 100, CPU: 1.5}
	strict, err := proclimit.New(l)
	if err == nil {
		_ = strict.Close()
	} else if !errors.Is(err, proclimit.ErrUnsupported) || !strings.Contains(err.Error(), "processes, cpu") {
		t.Errorf("got %v, want the limits that the system cannot enforce", err)
	}
	l.BestEffort = true
	effort := newLimiter(t, l)
	if enforced := len(effort.Missing()) == 0; enforced != (err == nil) {
		t.Errorf("without BestEffort: %v; with it, %q is missing", err, effort.Missing())
	}
	if _, err := mcp.CallTool[int](t.Context(), connect(t, effort, nil), "allocate", map[string]any{"MiB": 1}); err != nil {
		t.Error(err)
	}
}

func TestAMissingProgramIsAStartError(t *testing.T) {
	s := mcp.Command("patchbay-no-such-program")
	s.Prepare = newLimiter(t, proclimit.Limits{OpenFiles: 50}).Prepare
	if _, err := mcp.Connect(t.Context(), s, nil); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v, want %v", err, exec.ErrNotFound)
	}
}
