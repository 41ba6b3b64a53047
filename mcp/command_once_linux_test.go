package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// startedOnce returns a server that is not restarted, and the ids of its processes.
func startedOnce(t *testing.T, role string, args ...string) (s *mcp.CommandTransport, pids func() []int) {
	t.Helper()
	var mu sync.Mutex
	var started []int
	s = roleCommand(t, role, args...)
	s.Once = true
	s.Started = func(pid int) {
		mu.Lock()
		defer mu.Unlock()
		started = append(started, pid)
	}
	return s, func() []int {
		mu.Lock()
		defer mu.Unlock()
		return started
	}
}

// Requirement: STDIO-17, LIFE-23
func TestOnceCommandIsNotRestarted(t *testing.T) {
	mcptest.NoLeaks(t)
	for _, revision := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", ""} {
		t.Run("revision "+revision, func(t *testing.T) {
			s, pids := startedOnce(t, "server")
			c, err := mcp.Connect(t.Context(), s, &mcp.ClientOptions{Revision: revision})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if pid, err := mcp.CallTool[string](t.Context(), c, "pid", nil); fmt.Sprintf("[%s]", pid) != fmt.Sprint(pids()) || err != nil {
				t.Errorf("got processes %v started, want %s; %v", pids(), pid, err)
			}
			if err := s.Err(); err != nil {
				t.Errorf("running server: got %v", err)
			}
			_, err = c.CallTool(t.Context(), "exit", nil)
			wantExitOnce(t, err, true)
			select {
			case <-s.Done():
			case <-time.After(30 * time.Second):
				t.Fatal("the end is not reported")
			}
			if exit, ok := errors.AsType[*mcp.ExitError](s.Err()); !ok || exit.ExitCode != 7 {
				t.Errorf("got %v as the reason of the end, want status 7", s.Err())
			}
			for range 2 {
				_, err = c.CallTool(t.Context(), "pid", nil)
				wantExitOnce(t, err, false)
			}
			if len(pids()) != 1 {
				t.Errorf("got processes %v started, want one", pids())
			}
			wantGone(t, []string{fmt.Sprint(pids()[0])}, 10*time.Second)
		})
	}
}

// wantExitOnce tests for the error of a server that has exited with status 7.
func wantExitOnce(t *testing.T, err error, mayHaveRun bool) {
	t.Helper()
	failed, ok := errors.AsType[*mcp.TransportError](err)
	if !ok || failed.MayHaveRun != mayHaveRun {
		t.Errorf("got %v, want a TransportError with MayHaveRun %t", err, mayHaveRun)
	}
	if exit, ok := errors.AsType[*mcp.ExitError](err); !ok || exit.ExitCode != 7 || !strings.Contains(exit.Stderr, "exit requested") {
		t.Errorf("got %v, want status 7 and the standard error", err)
	}
}

// A server of an older revision may exit when it is asked for its revision.
//
// Requirement: STDIO-17
func TestOnceCommandIsRestartedBeforeItsFirstResponse(t *testing.T) {
	s, pids := startedOnce(t, "session-only")
	c, err := mcp.Connect(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Revision() != "2025-11-25" || len(pids()) != 2 {
		t.Errorf("got revision %s and processes %v, want 2025-11-25 and two", c.Revision(), pids())
	}
}

// Requirement: STDIO-17
func TestOnceCommandThatFailsToStartIsAnExitError(t *testing.T) {
	s, _ := startedOnce(t, "fail", "no configuration")
	_, err := mcp.Connect(t.Context(), s, &mcp.ClientOptions{Revision: "2026-07-28"})
	if exit, ok := errors.AsType[*mcp.ExitError](err); !ok || exit.ExitCode != 3 || exit.Stderr != "no configuration" {
		t.Errorf("got %v, want status 3", err)
	}
}

// The process has started, and has had no message.
//
// Requirement: STDIO-01
func TestStartedIsCalledBeforeTheFirstMessage(t *testing.T) {
	mcptest.NoLeaks(t)
	var pids []int
	s := roleCommand(t, "server")
	s.Started = func(pid int) {
		pids = append(pids, pid)
		if !isRunning(fmt.Sprint(pid)) {
			t.Errorf("process %d does not run", pid)
		}
	}
	c, err := mcp.Connect(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.CallTool(t.Context(), "exit", nil)
	wantExitOnce(t, err, true)
	pid, err := mcp.CallTool[string](t.Context(), c, "pid", nil)
	if len(pids) != 2 || pid != fmt.Sprint(pids[1]) || err != nil {
		t.Errorf("got processes %v started, want two, the second one %s; %v", pids, pid, err)
	}
}

// Requirement: STDIO-01
func TestPanicInStartedEndsTheProcess(t *testing.T) {
	mcptest.NoLeaks(t)
	var pid int
	s := roleCommand(t, "server")
	s.Logger = discardLogger()
	s.Started = func(p int) { pid = p; panic("on purpose") }
	if _, err := mcp.Connect(t.Context(), s, nil); err == nil || strings.Contains(err.Error(), "on purpose") {
		t.Errorf("got %v, want an internal error", err)
	}
	wantGone(t, []string{fmt.Sprint(pid)}, 10*time.Second)
}

// Requirement: STDIO-01
func TestPrepareChangesTheStart(t *testing.T) {
	s := roleCommand(t, "env")
	s.Prepare = func(cmd *exec.Cmd) error {
		cmd.Env = append(cmd.Env, "PREPARED=yes")
		return nil
	}
	if env := readWords(t, startServer(t, s), "env"); !strings.Contains(strings.Join(env, " "), "PREPARED=yes") {
		t.Errorf("got environment %q", env)
	}
	refused := roleCommand(t, "env")
	refused.Prepare = func(*exec.Cmd) error { return os.ErrPermission }
	if _, err := refused.Dial(context.Background()); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "start server") {
		t.Errorf("got %v, want the error of prepare", err)
	}
}
