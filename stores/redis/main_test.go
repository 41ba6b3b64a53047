package redis_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// patience limits how long a test waits for a server. A busy machine takes seconds.
const patience = 30 * time.Second

// shared is the server of the tests that do not stop it. It is nil if the program is missing.
var shared *server

func TestMain(m *testing.M) {
	if serveTasks() {
		return
	}
	if spec := os.Getenv(serveEnv); spec != "" {
		if err := serveMain(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(testhome.Main(m, func(m *testing.M) int {
		dir, err := os.MkdirTemp("", "patchbay-redis-")
		if err == nil {
			defer func() { _ = os.RemoveAll(dir) }()
			shared, err = newServer(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "redis-server:", err)
			return 1
		}
		if shared != nil {
			defer shared.kill()
		}
		return mcptest.Main(m)
	}))
}

// A server is a process of redis-server.
type server struct {
	program, dir, port string
	args               []string // besides those of every server
	command            []string // all arguments; replaces args
	process            *exec.Cmd
	output             bytes.Buffer
}

// newServer starts a server on a free port, with an append-only file. It returns nil if the program
// is missing, which is an error in CI on Linux: .ci/run installs the program.
func newServer(dir string, args ...string) (*server, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil && os.Getenv("CI") == "true" && runtime.GOOS == "linux" {
		return nil, err
	}
	if err != nil {
		return nil, nil
	}
	for attempt := 0; ; attempt++ { // another program may take the port first
		s := &server{program: program, dir: dir, port: freePort(), args: args}
		if err = s.start(); err == nil || attempt == 3 {
			return s, err
		}
	}
}

func freePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// start starts the server and waits until it accepts connections. Writes need not survive a failure
// of the machine. With appendfsync everysec, a slow disk would also delay writes that a killed
// server has confirmed.
func (s *server) start() error {
	s.output.Reset()
	if s.command == nil {
		s.command = append([]string{"--bind", "127.0.0.1", "--port", s.port, "--dir", s.dir,
			"--appendonly", "yes", "--appendfsync", "no", "--save", ""}, s.args...)
	}
	s.process = exec.Command(s.program, s.command...)
	s.process.Stdout, s.process.Stderr = &s.output, &s.output
	if err := s.process.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; {
		c, err := net.Dial("tcp", "127.0.0.1:"+s.port)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(deadline) {
			s.kill()
			return fmt.Errorf("no connection: %w: %s", err, s.output.String())
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (s *server) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

func (s *server) url() string { return "redis://127.0.0.1:" + s.port }

// need returns the shared server, or skips the test.
func need(t testing.TB) *server {
	t.Helper()
	if shared == nil {
		t.Skip("redis-server is not installed")
	}
	return shared
}

// startServer starts a server for one test.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	need(t)
	s, err := newServer(t.TempDir(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.kill() })
	return s
}

// calm are options for tests whose subject is not time: a busy machine must not make them fail.
func calm() *redis.Options { return &redis.Options{Timeout: patience} }

func open(t testing.TB, url string, opts *redis.Options) *redis.Store {
	t.Helper()
	s, err := redis.Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

var prefixes atomic.Int64

// openTwo opens two clients of a new store: its keys have a prefix of their own.
func openTwo(t testing.TB) (a, b *redis.Store) {
	t.Helper()
	return openTwoOf(t, need(t).url())
}

func openTwoOf(t testing.TB, url string) (a, b *redis.Store) {
	t.Helper()
	opts := calm()
	opts.Prefix = fmt.Sprint("test", prefixes.Add(1))
	return open(t, url, opts), open(t, url, opts)
}

// command sends a command to a server and returns its reply.
func command(t testing.TB, url string, args ...string) rueidis.RedisMessage {
	t.Helper()
	options, err := rueidis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	options.ForceSingleClient = true
	c, err := rueidis.NewClient(options)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	reply, err := c.Do(ctx, c.B().Arbitrary(args...).Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// await polls until done returns no error.
func await(t testing.TB, done func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for err := done(); err != nil; err = done() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// keysOf returns all keys below a prefix.
func keysOf(t testing.TB, prefix string) []string {
	t.Helper()
	reply := command(t, need(t).url(), "KEYS", cmp.Or(prefix, "*")+":*")
	keys, err := reply.AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}
