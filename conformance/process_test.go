package conformance_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// nodeBinary is the Node version that package.json pins: the suites need 22 or later.
const nodeBinary = "node_modules/node/bin/node"

// needNode skips the test if the npm packages are not installed, or fails it in CI.
func needNode(t *testing.T) string {
	t.Helper()
	node, err := filepath.Abs(nodeBinary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(node); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("the npm packages are not installed: %v", err)
		}
		t.Skip("the npm packages are not installed: run conformance/run")
	}
	return node
}

// builds are the binaries that were built, by their folder and package. TestMain removes them.
var builds struct {
	mu   sync.Mutex // guards done
	dir  string
	done map[[2]string]string
}

// build compiles one of our packages, once, and returns the path of the binary.
func build(t *testing.T, dir, pkg string) string {
	t.Helper()
	builds.mu.Lock()
	defer builds.mu.Unlock()
	key := [2]string{dir, pkg}
	if binary := builds.done[key]; binary != "" {
		return binary
	}
	binary := filepath.Join(must(os.MkdirTemp(builds.dir, "build"))(t), filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-o", binary, pkg)
	cmd.Dir = dir
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil && dir != ".." && dir != "." { // a module outside the workspace
		cmd.Env = append(os.Environ(), "GOWORK=off")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	if builds.done == nil {
		builds.done = map[[2]string]string{}
	}
	builds.done[key] = binary
	return binary
}

// start runs one of our servers until the test ends and returns the first URL in its output.
func start(t *testing.T, command string, args ...string) string {
	t.Helper()
	cmd := exec.Command(command, args...)
	cmd.Stderr = os.Stderr
	url, end := launch(t, cmd)
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Errorf("the server exited with an error: %v", err)
		}
	})
	return url
}

// startPeer is like start, for a server of another project. It ignores the exit status.
func startPeer(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	url, end := launch(t, cmd)
	t.Cleanup(func() { _ = end() })
	return url
}

// launch starts a server and waits until its output has a URL or a message that it listens on its
// port. It reads the streams that are not redirected. end terminates the server and waits for its
// exit.
func launch(t *testing.T, cmd *exec.Cmd) (url string, end func() error) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if cmd.Stderr == nil {
		cmd.Stderr = cmd.Stdout
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return cmd.Wait()
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		for _, word := range strings.Fields(lines.Text()) {
			if strings.HasPrefix(word, "http://") || word == "port" {
				go drain(lines)
				return word, end
			}
		}
	}
	t.Fatalf("the server printed no address: %v", end())
	return "", nil
}

// drain keeps a server's output from filling its pipe; it ends with the server.
func drain(lines *bufio.Scanner) {
	for lines.Scan() {
	}
}

// node runs a script and returns its output.
func node(t *testing.T, limit time.Duration, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, needNode(t), args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out) + string(exit.Stderr), err
	}
	return string(out), err
}
