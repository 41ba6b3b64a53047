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

// lives reports whether a process runs. A zombie does not.
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
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for begun := time.Now(); ; <-look.C {
		left := ""
		for _, pid := range pids {
			if isRunning(pid) {
				left += " " + pid
			}
		}
		switch {
		case left == "":
			return
		case time.Since(begun) > within:
			t.Fatalf("processes are left after %v:%s", within, left)
		}
	}
}

// wantReaped waits until nothing is left of a child. A zombie is not enough where its pipes matter: other threads than the
// first may hold them a little longer.
func wantReaped(t testing.TB, pid string) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for begun := time.Now(); ; <-look.C {
		if _, err := os.Stat("/proc/" + pid); err != nil {
			return
		}
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("process %s is left", pid)
		}
	}
}

// wantNoZombies tests that this process has reaped all its children that have ended.
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
			t.Errorf("a zombie is left: %s", stat)
		}
	}
}

func TestSTDIO14_NothingOfATreeSurvivesClose(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		roles  []string
		at, by time.Duration
	}{
		{"the server and its children listen to signals", []string{"deaf", "deaf", "deaf"}, 5 * time.Second, 8 * time.Second},
		{"the server ends, its children listen", []string{"echo", "deaf", "deaf"}, 0, 4500 * time.Millisecond},
		{"the server ends, its children are stubborn", []string{"echo", "stubborn"}, 3 * time.Second, 4900 * time.Millisecond},
		{"all are stubborn", []string{"stubborn", "stubborn", "stubborn"}, 8 * time.Second, closeBound},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && test.at > 0 {
				t.Skip("it takes as long as the server has")
			}
			c := startServer(t, roleCommand(t, "tree", test.roles...))
			pids := readWords(t, c, "pids")
			if len(pids) != len(test.roles) {
				t.Fatalf("got %d processes, want %d", len(pids), len(test.roles))
			}
			begun := time.Now()
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(begun); took < test.at || took > test.by {
				t.Errorf("Close took %v, want between %v and %v", took, test.at, test.by)
			}
			for _, pid := range pids {
				if isRunning(pid) {
					t.Errorf("process %s is left", pid)
				}
			}
		})
	}
}

// A server that ends by itself takes along what it has started.
func TestSTDIO17_NothingOfATreeSurvivesItsServer(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"deaf", "stubborn"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			c := startServer(t, roleCommand(t, "tree", "abort", role, role))
			pids := readWords(t, c, "pids")
			if exit := wantExit(t, c); exit.Signal != "killed" {
				t.Errorf("got %v", exit)
			}
			wantGone(t, pids, 10*time.Second)
		})
	}
}

// Whoever holds the pipes of a server that has ended, for ever, hides neither that nor what the server said before.
func TestSTDIO17_TheEndOfAServerIsToldThoughOthersHoldItsPipes(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "tree", "deaf", "daemon"))
	daemon := readWords(t, c, "pids")[1]
	defer exec.Command("kill", "-9", daemon).Run()
	kill := waitReady(t, c)
	blocked := make(chan error)
	go func() { blocked <- writeMuch(context.Background(), c) }()
	kill()
	wantExit(t, c)
	wantExit(t, c)
	if _, ok := errors.AsType[*mcp.ExitError](<-blocked); !ok {
		t.Error("the writer has no ExitError")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if !isRunning(daemon) {
		t.Error("the daemon does not live: this test tests nothing")
	}
}

// The first to notice the end of a server may be the next request, while the reader still waits for whoever holds the pipe.
func TestSTDIO17_AServerWhoseEndTheNextRequestNoticesIsStartedAgain(t *testing.T) {
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
				t.Error("the server that was killed answers")
			}
		})
	}
}

func TestSTDIO14_CloseDoesNotWaitForWhoeverHoldsThePipes(t *testing.T) {
	t.Parallel()
	c := startServer(t, roleCommand(t, "tree", "echo", "daemon"))
	daemon := readWords(t, c, "pids")[1]
	defer exec.Command("kill", "-9", daemon).Run()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if !isRunning(daemon) {
		t.Error("the daemon does not live: this test tests nothing")
	}
}

// On Linux a child can die with the thread that has started it, which ends when a goroutine ends that has locked it.
func TestSTDIO01_TheServerOutlivesTheThreadThatAskedForIt(t *testing.T) {
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

// Rule 11 of security.md 7.3: no child outlives its host, not even one that was killed.
func TestSTDIO01_NothingOfATreeSurvivesTheHost(t *testing.T) {
	t.Parallel()
	for _, roles := range [][]string{
		{"echo"},
		{"stubborn", "stubborn", "stubborn"},
		{"echo", "deaf", "stubborn"},
	} {
		t.Run(strings.Join(roles, " "), func(t *testing.T) {
			t.Parallel()
			kill, pids, guard := startHost(t, roles...)
			kill()
			wantGone(t, append(pids, guard), 5*time.Second)
		})
	}
	t.Run("a server without a guard", func(t *testing.T) {
		t.Parallel()
		kill, pids, guard := startHost(t, "stubborn")
		if err := exec.Command("kill", "-9", guard).Run(); err != nil {
			t.Fatal(err)
		}
		wantGone(t, []string{guard}, 5*time.Second)
		kill()
		wantGone(t, pids, 5*time.Second)
	})
}

// host starts a process that starts a tree of servers. It gives what kills the process, and whom that has started.
func startHost(t *testing.T, roles ...string) (kill func(), pids []string, guard string) {
	t.Helper()
	cmd := exec.Command(testBinary(t), roles...)
	cmd.Env = append(os.Environ(), roleVariable+"=middle")
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
		t.Fatalf("%d processes guard the tree, want one", len(guards))
	}
	return func() { cmd.Process.Kill() }, pids, guards[0]
}

// guardsOf returns the processes that a process has started to guard its servers.
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
		if fields := bytes.Fields(rest); len(fields) > 1 && string(fields[1]) == strconv.Itoa(parent) && bytes.Contains(line, []byte("mcp-guard")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Everything that a server costs is given back, also by those that never started or were killed.
func TestSTDIO14_NothingIsLeftOfAServer(t *testing.T) {
	mcptest.NoLeaks(t)
	descriptors := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	one := func(role string, args ...string) {
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
	one("echo") // what is opened once and for all is open now
	before := descriptors()
	for range 5 {
		one("echo")
		one("fail", "x")
		one("abort")
		if c, err := mcp.Command("patchbay-no-such-program").Dial(t.Context()); err == nil {
			c.Close()
			t.Fatal("it was started")
		}
	}
	if after := descriptors(); after > before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
	wantNoZombies(t)
	if guards := guardProcesses(t, os.Getpid()); len(guards) > 0 {
		t.Errorf("guards are left: %v", guards)
	}
}
