package root

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/run"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// markEnv is a variable of server processes, by which a test finds them.
const markEnv = "PATCHBAY_TEST_MARK"

// marked returns the processes with a mark in their environment.
func marked(t *testing.T, mark string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte(markEnv+"="+mark)) {
			continue // it has exited, or belongs to another user
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// A gatewayProcess is `patchbay gateway` in a process of its own.
type gatewayProcess struct {
	cmd    *exec.Cmd
	mark   string // of its servers
	stderr bytes.Buffer
}

// newGatewayProcess returns a gateway of two marked servers, which is not started.
func newGatewayProcess(t *testing.T, args ...string) *gatewayProcess {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	g := &gatewayProcess{mark: rand.Text()}
	entry := map[string]any{"command": exe,
		"env": map[string]string{serveEnv: "1", markEnv: g.mark, "GORACE": "atexit_sleep_ms=0"}}
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"one": entry, "two": entry}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, string(text))
	g.cmd = exec.Command(exe, append([]string{"gateway", "--config", file}, args...)...)
	g.cmd.Env = append(os.Environ(), mainEnv+"=1", "GORACE=atexit_sleep_ms=0")
	g.cmd.Stderr = &g.stderr
	return g
}

// No process of a server is left when the gateway ends by a signal, also while a call runs.
func TestGatewayLeavesNoProcess(t *testing.T) {
	freshVault(t)
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		g := newGatewayProcess(t, "--addr", "127.0.0.1:0")
		stdout, err := g.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := g.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer g.cmd.Process.Kill() // if the test fails
		lines := bufio.NewReader(stdout)
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%v: %s", err, g.stderr.String())
		}
		key, err := run.GatewayKey(t.Context(), newRun(strings.NewReader(""), io.Discard, io.Discard))
		if err != nil {
			t.Fatal(err)
		}
		c := gatewayClient(t, &runningGateway{url: gatewayURL.FindString(line), key: key}, "2025-11-25", false)
		began := make(chan struct{}, 100)
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) { began <- struct{}{} }})
		called := make(chan error, 1)
		go func() {
			_, err := c.CallTool(ctx, "one__count", map[string]any{"steps": 20})
			called <- err
		}()
		<-began
		if res, err := c.CallTool(t.Context(), "two__add", map[string]any{"a": 1, "b": 2}); err != nil || res.Text() != "3" {
			t.Errorf("two__add: %+v, %v", res, err)
		}
		if n := len(marked(t, g.mark)); n < 2 {
			t.Errorf("%d processes of servers, want at least 2", n)
		}
		if err := g.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, lines)
		if err := g.cmd.Wait(); err != nil {
			t.Errorf("%v: the gateway has ended with %v: %s", signal, err, g.stderr.String())
		}
		<-called // answered or cancelled
		_ = c.Close()
		if left := marked(t, g.mark); len(left) > 0 {
			t.Errorf("%v: processes %v are left", signal, left)
		}
	}
}

// On stdio the gateway has no sockets, and ends with its input.
//
// Requirement: SEC-14
func TestGatewayOnStdioOpensNoSocket(t *testing.T) {
	freshVault(t)
	g := newGatewayProcess(t, "--stdio")
	stdin, err := g.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := g.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(mcp.NewStreamConn(stdout, stdin, nil)), nil)
	if err != nil {
		t.Fatal(err, g.stderr.String())
	}
	for _, tool := range []string{"one__add", "two__add"} {
		if res, err := c.CallTool(t.Context(), tool, map[string]any{"a": 1, "b": 2}); err != nil || res.Text() != "3" {
			t.Errorf("%s: %+v, %v", tool, res, err)
		}
	}
	files, err := filepath.Glob("/proc/" + strconv.Itoa(g.cmd.Process.Pid) + "/fd/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && strings.HasPrefix(to, "socket:") {
			t.Errorf("the process has %s", to)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := g.cmd.Wait(); err != nil {
		t.Errorf("end: %v: %s", err, g.stderr.String())
	}
	if left := marked(t, g.mark); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// No process is left after a command over all servers, also if it is interrupted.
func TestHostLeavesNoProcess(t *testing.T) {
	freshVault(t)
	for _, interrupted := range []bool{false, true} {
		g := newGatewayProcess(t)
		file := g.cmd.Args[len(g.cmd.Args)-1]
		ctx, cancel := context.WithCancel(t.Context())
		var stdout, stderr bytes.Buffer
		args := []string{"call", target.HostName, "one__add", "a=1", "b=2", "--config", file}
		want := exit.OK
		if interrupted {
			args, want = []string{"call", target.HostName, "one__count", "steps=50", "--config", file}, exit.Interrupted
		}
		status := Run(ctx, args, strings.NewReader(""), &stdout, writerFunc(func(b []byte) (int, error) {
			if interrupted && strings.Contains(string(b), "progress") {
				cancel()
			}
			return stderr.Write(b)
		}))
		cancel()
		if status != want {
			t.Errorf("%q: %d, want %d: %s%s", args, status, want, stdout.String(), stderr.String())
		}
		if left := marked(t, g.mark); len(left) > 0 {
			t.Errorf("%q: processes %v are left", args, left)
		}
	}
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// On a real terminal the key is printed.
func TestGatewayOnAPseudoTerminal(t *testing.T) {
	freshVault(t)
	file := oneServerFile(t)
	p := newPTY(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	status := make(chan int, 1)
	go func() {
		status <- Run(ctx, []string{"gateway", "--config", file, "--addr", "127.0.0.1:0"}, p.replica, p.replica, p.replica)
	}()
	key, err := run.GatewayKey(ctx, newRun(strings.NewReader(""), io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	if !p.await("Bearer "+key, "") {
		t.Error("the key is not printed")
	}
	cancel()
	if got := <-status; got != exit.OK {
		t.Errorf("exit code %d, want %d", got, exit.OK)
	}
}
