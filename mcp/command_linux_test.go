package mcp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func init() {
	leaveGroup = func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
}

// isRunning reports whether a process runs. A zombie does not run.
func isRunning(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return len(state) > 0 && state[0] != 'Z' && state[0] != 'X'
}

// wantGone tests that processes end within the time.
func wantGone(t testing.TB, pids []string, within time.Duration) {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for begun := time.Now(); ; <-poll.C {
		running := ""
		for _, pid := range pids {
			if isRunning(pid) {
				running += " " + pid
			}
		}
		switch {
		case running == "":
			return
		case time.Since(begun) > within:
			t.Fatalf("processes still run after %v:%s", within, running)
		}
	}
}

// wantReaped waits until a child process is reaped. A zombie's pipes may still be open: its other
// threads may end later
// than the first one.
func wantReaped(t testing.TB, pid string) {
	t.Helper()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for begun := time.Now(); ; <-poll.C {
		if _, err := os.Stat("/proc/" + pid); err != nil {
			return
		}
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("process %s is not reaped after 10s", pid)
		}
	}
}

// wantNoZombies fails the test if this process has children that have ended and are not reaped.
func wantNoZombies(t testing.TB) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		_, rest, _ := bytes.Cut(stat, []byte(") "))
		if strings.HasPrefix(string(rest), fmt.Sprintf("Z %d ", os.Getpid())) {
			t.Errorf("zombie process: %s", stat)
		}
	}
}

// Requirement: STDIO-14
func TestCloseEndsAllProcesses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		roles    []string
		min, max time.Duration
	}{
		{"server and children ignore stdin", []string{"idle", "idle", "idle"}, 5 * time.Second, 8 * time.Second},
		{"only the children ignore stdin", []string{"echo", "idle", "idle"}, 0, 4500 * time.Millisecond},
		{"a child ignores SIGTERM", []string{"echo", "ignore-sigterm"}, 3 * time.Second, 7900 * time.Millisecond},
		{
			"all ignore SIGTERM", []string{"ignore-sigterm", "ignore-sigterm", "ignore-sigterm"},
			8 * time.Second, closeBound,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && test.min > 0 {
				t.Skip("waits for the grace periods of Close")
			}
			c := startServer(t, roleCommand(t, "spawn", test.roles...))
			pids := readWords(t, c, "pids")
			if len(pids) != len(test.roles) {
				t.Fatalf("got %d processes, want %d", len(pids), len(test.roles))
			}
			begun := time.Now()
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(begun); took < test.min || took > test.max {
				t.Errorf("Close took %v, want between %v and %v", took, test.min, test.max)
			}
			for _, pid := range pids {
				if isRunning(pid) {
					t.Errorf("process %s runs after Close", pid)
				}
			}
		})
	}
}

// Requirement: STDIO-17
func TestChildrenEndWithTheirServer(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"idle", "ignore-sigterm"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			c := startServer(t, roleCommand(t, "spawn", "abort", role, role))
			pids := readWords(t, c, "pids")
			if exit := wantExit(t, c); exit.Signal != "killed" {
				t.Errorf("got %v, want signal killed", exit)
			}
			wantGone(t, pids, 10*time.Second)
		})
	}
}

// A daemon that the server has started keeps the pipes open. The client detects the end of the
// server anyway.
//
// Requirement: STDIO-17
func TestEndIsDetectedWhileAnotherProcessHoldsThePipes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	c := startServer(t, roleCommand(t, "spawn", "idle", "daemon"))
	daemon := readWords(t, c, "pids")[1]
	defer exec.Command("kill", "-9", daemon).Run()
	kill := waitReady(t, c)
	blocked := make(chan error)
	go func() { blocked <- writeMuch(context.Background(), c) }()
	kill()
	wantExit(t, c)
	wantExit(t, c)
	if _, ok := errors.AsType[*mcp.ExitError](<-blocked); !ok {
		t.Error("Write: got another error, want an ExitError")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if !isRunning(daemon) {
		t.Error("the daemon has ended: the test is not valid")
	}
}

// The next request may detect the end of the server before the reader, which waits for the pipe.
//
// Requirement: STDIO-17
func TestRequestRestartsAServerThatWasKilled(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{"", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			client, err := mcp.Connect(t.Context(), roleCommand(t, "server"), &mcp.ClientOptions{Revision: revision})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			call := func(tool string) string {
				t.Helper()
				res, err := client.CallTool(t.Context(), tool, nil)
				if err != nil {
					t.Fatalf("%s: %v", tool, err)
				}
				return res.Text()
			}
			daemon, server := call("daemon"), call("pid")
			defer exec.Command("kill", "-9", daemon).Run()
			if err := exec.Command("kill", "-9", server).Run(); err != nil {
				t.Fatal(err)
			}
			wantReaped(t, server)
			if call("pid") == server {
				t.Error("got the process id of the killed server")
			}
		})
	}
}

// Requirement: STDIO-14
func TestCloseDoesNotWaitForOtherHoldersOfThePipes(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "spawn", "echo", "daemon"))
	daemon := readWords(t, c, "pids")[1]
	defer exec.Command("kill", "-9", daemon).Run()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if !isRunning(daemon) {
		t.Error("the daemon has ended: the test is not valid")
	}
}

// On Linux, a parent-death signal is sent when the parent's thread ends, as that of a locked
// goroutine.
//
// Requirement: STDIO-01, STL-04
func TestServerOutlivesTheThreadOfDial(t *testing.T) {
	t.Parallel()
	conns := make(chan mcp.Conn)
	thread := 0
	var c mcp.Conn
	for c == nil {
		go func() {
			runtime.LockOSThread()
			if thread = syscall.Gettid(); thread == os.Getpid() {
				runtime.UnlockOSThread() // the first thread never ends
				conns <- nil
				return
			}
			conns <- startServer(t, roleCommand(t, "echo"))
		}()
		c = <-conns
	}
	wantGone(t, []string{fmt.Sprintf("self/task/%d", thread)}, 10*time.Second)
	wantEcho(t, c)
}

// The host is killed, so it cannot end its servers.
//
// Requirement: STDIO-01
func TestProcessesEndWithTheHost(t *testing.T) {
	t.Parallel()
	for _, roles := range [][]string{
		{"echo"},
		{"ignore-sigterm", "ignore-sigterm", "ignore-sigterm"},
		{"echo", "idle", "ignore-sigterm"},
	} {
		t.Run(strings.Join(roles, " "), func(t *testing.T) {
			t.Parallel()
			kill, pids, guard := startHost(t, roles...)
			kill()
			wantGone(t, append(pids, guard), 30*time.Second)
		})
	}
	t.Run("the guard process was killed", func(t *testing.T) {
		t.Parallel()
		kill, pids, guard := startHost(t, "ignore-sigterm")
		if err := exec.Command("kill", "-9", guard).Run(); err != nil {
			t.Fatal(err)
		}
		wantGone(t, []string{guard}, 30*time.Second)
		kill()
		wantGone(t, pids, 30*time.Second)
	})
}

// startHost starts a host process, which starts a server with children. It returns a function that
// kills the host, the
// ids of the server and its children, and that of the host's guard process.
func startHost(t *testing.T, roles ...string) (kill func(), pids []string, guard string) {
	t.Helper()
	cmd := exec.Command(testBinary(t), roles...)
	cmd.Env = append(os.Environ(), roleVariable+"=host")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	pids = readWords(t, mcp.NewStreamConn(out, nil, nil), "pids")
	guards := guardProcesses(t, cmd.Process.Pid)
	if len(guards) != 1 {
		t.Fatalf("got %d guard processes, want 1", len(guards))
	}
	return func() { cmd.Process.Kill() }, pids, guards[0]
}

// guardProcesses returns the ids of the guard processes of a host.
func guardProcesses(t *testing.T, parent int) (pids []string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range lines {
		line, _ := os.ReadFile(name)
		pid := filepath.Base(filepath.Dir(name))
		stat, _ := os.ReadFile("/proc/" + pid + "/stat")
		_, rest, _ := bytes.Cut(stat, []byte(") "))
		if fields := bytes.Fields(rest); len(fields) > 1 && string(fields[1]) == strconv.Itoa(parent) &&
			bytes.Contains(line, []byte("mcp-guard")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Servers that end, fail, are killed or do not start must not leak descriptors, processes and
// goroutines.
//
// Requirement: STDIO-14
func TestServersReleaseTheirResources(t *testing.T) {
	mcptest.NoLeaks(t)
	descriptors := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	run := func(role string, args ...string) {
		c, err := roleCommand(t, role, args...).Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if role != "echo" {
			wantExit(t, c)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	run("echo") // opens descriptors that stay open
	before := descriptors()
	for range 5 {
		run("echo")
		run("fail", "x")
		run("abort")
		if c, err := mcp.Command("patchbay-no-such-program").Dial(t.Context()); err == nil {
			c.Close()
			t.Fatal("a program that does not exist was started")
		}
	}
	if after := descriptors(); after > before {
		t.Errorf("got %d open descriptors, want %d", after, before)
	}
	wantNoZombies(t)
	if guards := guardProcesses(t, os.Getpid()); len(guards) > 0 {
		t.Errorf("guard processes still run: %v", guards)
	}
}
