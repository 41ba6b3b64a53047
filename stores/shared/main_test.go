package shared_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

// patience limits how long a test waits for a server. A busy machine takes seconds.
const patience = 30 * time.Second

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// start starts a redis-server on a free port until the test ends, and returns the port.
func start(t *testing.T, args ...string) (port string) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil && (os.Getenv("CI") != "true" || runtime.GOOS != "linux") {
		t.Skip("redis-server is not installed")
	} else if err != nil {
		t.Fatal(err) // .ci/run installs the program
	}
	for attempt := 0; ; attempt++ { // another program may take the port first
		port = freePort(t)
		all := append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir(), "--save", ""}, args...)
		for i, arg := range all {
			if arg == "PORT" { // of TLS
				all[i], all[3] = port, "0"
			}
		}
		cmd := exec.Command(program, all...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { // ends with the process
			_ = cmd.Wait()
			close(ended)
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-ended
		})
		err := waitFor(port, ended)
		if err == nil {
			return port
		}
		if attempt == 3 {
			t.Fatal(err)
		}
	}
}

// waitFor waits until a server listens.
func waitFor(port string, ended <-chan struct{}) error {
	for deadline := time.Now().Add(patience); ; {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ended:
			return fmt.Errorf("redis-server ended: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// command sends a command to a server.
func command(t *testing.T, port string, args ...string) {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:" + port},
		ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Do(t.Context(), c.B().Arbitrary(args...).Build()).Error(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}
