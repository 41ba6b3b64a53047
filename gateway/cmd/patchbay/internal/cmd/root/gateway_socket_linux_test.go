package root

import (
	"bufio"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/gatewayclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
)

// The next gateway replaces the socket of one that was killed.
func TestSocketOfAKilledGatewayIsReplaced(t *testing.T) {
	freshVault(t)
	killed := newGatewayProcess(t, "--addr", "127.0.0.1:0")
	file := killed.cmd.Args[3]
	stdout, err := killed.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v: %s", line, err, killed.stderr.String())
	}
	socket, err := gatewayclient.SocketPath(factoryFor(file))
	if err != nil {
		t.Fatal(err)
	}
	o := mustRun(t, "gateway", "status", "--config", file)
	if !strings.Contains(o.stdout, "process "+strconv.Itoa(killed.cmd.Process.Pid)+",") {
		t.Errorf("status: %+v", o)
	}
	for path, mode := range map[string]fs.FileMode{filepath.Dir(socket): 0o700, socket: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want mode %v", path, info, err, mode)
		}
	}
	if err := killed.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = killed.cmd.Wait()
	if _, err := os.Stat(socket); err != nil {
		t.Fatalf("the killed gateway has left no socket: %v", err)
	}
	if o := patchbay(t, "", "gateway", "status", "--config", file); o.status != exit.Unreachable {
		t.Errorf("after kill -9: %+v", o)
	}
	g := startGateway(t, nil, "--config", file)
	o = mustRun(t, "gateway", "status", "--config", file)
	if !strings.Contains(o.stdout, "process "+strconv.Itoa(os.Getpid())+",") {
		t.Errorf("status of the next gateway: %+v", o)
	}
	if o := g.stop(); strings.Contains(o.stderr, "running already") {
		t.Errorf("the next gateway: %+v", o)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket exists after the end of the gateway")
	}
}

// Of gateways that start at the same time, one has the socket.
func TestOneOfSeveralGatewaysHasTheSocket(t *testing.T) {
	t.Setenv(userdir.EnvState, t.TempDir())
	socket, err := gatewayclient.SocketPath(factoryFor("mcp.json"))
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		var listeners [4]net.Listener
		var wait sync.WaitGroup
		for n := range listeners {
			wait.Go(func() {
				l, err := gatewayclient.Listen(socket)
				if err == nil {
					listeners[n] = l
				}
			})
		}
		wait.Wait()
		open := 0
		for _, l := range listeners {
			if l != nil {
				open++
				conn, err := gatewayclient.Dial(t.Context(), socket)
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.Close()
				_ = l.Close()
			}
		}
		if open != 1 {
			t.Fatalf("%d of the gateways listen on the socket, want 1", open)
		}
	}
}

// A directory for sockets that others can write, or that is a link, is refused.
func TestDirectoryOfSocketsIsPrivate(t *testing.T) {
	state := t.TempDir()
	t.Setenv(userdir.EnvState, state)
	p := factoryFor("mcp.json")
	path, err := gatewayclient.SocketPath(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o770); err != nil {
		t.Fatal(err)
	}
	if _, err := gatewayclient.SocketPath(p); err == nil || !strings.Contains(err.Error(), "accessible to other users") {
		t.Errorf("mode 0770: got %v", err)
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if _, err := gatewayclient.SocketPath(p); err == nil || !strings.Contains(err.Error(), "no link") {
		t.Errorf("link: got %v", err)
	}
	t.Setenv(userdir.EnvState, filepath.Join(state, strings.Repeat("long", 30)))
	if path, err = gatewayclient.SocketPath(p); err != nil || len(path) > gatewayclient.MaxSocketPath {
		t.Errorf("a long directory: got %q, %v", path, err)
	}
}

// underRace reports whether the race detector is on, which needs memory of its own.
func underRace() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// An attached client is small: the code that only the start of the program needs is not counted.
func TestAttachedClientIsSmall(t *testing.T) {
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, demoServers(t, "one"))
	startGateway(t, nil, "--config", file)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "gateway", "--stdio", "--config", file)
	cmd.Env = append(os.Environ(), mainEnv+"=1", "GORACE=atexit_sleep_ms=0")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = in.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}` + "\n"))
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "result") {
		t.Fatalf("%q, %v", line, err)
	}
	const most = 20 << 10
	size := 0
	for begun := time.Now(); time.Since(begun) < 30*time.Second; { // memory of the start is released after it
		if size = residentKB(t, cmd.Process.Pid); size <= most || underRace() {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if size > most && !underRace() {
		t.Errorf("%d kB are resident, want at most %d", size, most)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// residentKB returns the resident memory of a process, in units of 1,024 bytes.
func residentKB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); fields[0] == "VmRSS:" {
			size, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return size
		}
	}
	t.Fatalf("no VmRSS in %s", status)
	return 0
}

// A state directory that another user owns or can write is refused, because that user may have made its files.
func TestStateDirectoriesOfOtherUsersAreRefused(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"written by the group": func(dir string) error { return os.Chmod(dir, 0o770) },
		"of another user":      func(dir string) error { return os.Chown(dir, 12345, -1) },
	} {
		if name == "of another user" && os.Geteuid() != 0 {
			continue // only root can give a directory to another user
		}
		base := filepath.Join(t.TempDir(), "state")
		t.Setenv(userdir.EnvState, base)
		dir, err := userdir.Dir("run")
		if err != nil {
			t.Fatal(err)
		}
		for _, changed := range []string{dir, base} {
			if err := change(changed); err != nil {
				t.Fatal(err)
			}
			if _, err := userdir.Dir("run"); err == nil || !strings.Contains(err.Error(), changed+": accessible to other users") {
				t.Errorf("%s, %s: %v, want a refusal that names it", changed, name, err)
			}
		}
	}
}
