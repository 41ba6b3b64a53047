package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// needProgram skips the test if a program is not installed, or fails it in CI.
func needProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed: conformance/run installs it", name)
	}
	if err != nil {
		t.Skipf("%s is not installed; conformance/run installs it", name)
	}
	return path
}

// A daemon is a process of a test. The test ends it.
type daemon struct {
	t    *testing.T
	args []string
	env  []string
	cmd  *exec.Cmd
}

func startDaemon(t *testing.T, env []string, args ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, args: args, env: append(os.Environ(), env...)}
	d.start()
	t.Cleanup(func() { // so that a gateway ends its servers
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		_ = d.cmd.Wait()
	})
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	d.cmd = exec.Command(d.args[0], d.args[1:]...)
	d.cmd.Env, d.cmd.Stderr = d.env, os.Stderr
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// eventually waits until done returns no error.
func eventually(t *testing.T, done func() error) {
	t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(time.Minute); ; <-look.C {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// get returns the body of a response of status 200.
func get(url string) (string, error) {
	res, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status + ": " + string(body))
	}
	return string(body), err
}

// A fleet is three processes of a server that share a Redis server, behind a load balancer.
type fleet struct {
	redis     *daemon
	processes []*daemon
	addrs     []string
	ops       []string
	url       string // of the load balancer
	store     string
	log       string       // of nginx: the addresses of the processes that served the requests
	opened    atomic.Int32 // sessions of the clients
}

// startFleet starts the processes of a command, which receives the flags --addr, --ops and --store.
// Each process has its own folder of state, as on a machine of its own.
func startFleet(t *testing.T, balancer string, args ...string) *fleet {
	t.Helper()
	needProgram(t, balancer)
	f := &fleet{}
	f.startRedis(t)
	for range 3 {
		addr, ops, dir := freeport.Addr(t), freeport.Addr(t), t.TempDir()
		f.addrs, f.ops = append(f.addrs, addr), append(f.ops, ops)
		f.processes = append(f.processes, startDaemon(t, []string{"PATCHBAY_STATE_DIR=" + dir,
			"PATCHBAY_VAULT_DIR=" + filepath.Join(dir, "vault")},
			append(args, "--addr", addr, "--ops", ops, "--store", f.store)...))
	}
	for _, ops := range f.ops {
		eventually(t, func() error { _, err := get("http://" + ops + "/readyz"); return err })
	}
	f.balance(t, balancer)
	return f
}

// startRedis starts the Redis server of the processes.
func (f *fleet) startRedis(t *testing.T) {
	t.Helper()
	address := freeport.Addr(t)
	_, port, _ := strings.Cut(address, ":")
	f.store = "redis://" + address
	f.redis = startDaemon(t, nil, needProgram(t, "redis-server"), "--bind", "127.0.0.1", "--port", port, "--save", "",
		"--appendonly", "yes", "--appendfsync", "always", "--dir", t.TempDir())
	eventually(t, func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// balance starts a load balancer with the configuration of docs/replicas.md.
func (f *fleet) balance(t *testing.T, balancer string) {
	t.Helper()
	front := freeport.Addr(t)
	guide := string(must(os.ReadFile("../docs/replicas.md"))(t))
	_, config, found := strings.Cut(guide, "```"+balancer+"\n")
	if !found {
		t.Fatalf("docs/replicas.md contains no configuration of %s", balancer)
	}
	config, _, _ = strings.Cut(config, "```")
	replace := []string{"127.0.0.1:7000", front}
	for i, addr := range f.addrs {
		replace = append(replace, fmt.Sprintf("127.0.0.1:700%d", i+1), addr)
	}
	for i, ops := range f.ops {
		_, port, _ := strings.Cut(ops, ":")
		replace = append(replace, fmt.Sprintf("port 710%d", i+1), "port "+port)
	}
	config = strings.NewReplacer(replace...).Replace(config)
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	f.log = filepath.Join(dir, "access")
	args := []string{"haproxy", "-db", "-f", file}
	if balancer == "nginx" {
		config = "daemon off; pid " + dir + "/pid; error_log stderr; events {} http { " +
			"log_format process '$upstream_addr'; " +
			"access_log " + f.log + " process; client_body_temp_path " + dir + "/body; proxy_temp_path " + dir +
			"/proxy; fastcgi_temp_path " + dir +
			"/fastcgi; uwsgi_temp_path " + dir + "/uwsgi; scgi_temp_path " + dir + "/scgi;\n" + config + "}\n"
		if os.Getuid() == 0 {
			config = "user root; " + config
		}
		args = []string{"nginx", "-p", dir, "-c", file}
	}
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	startDaemon(t, nil, args...)
	f.url = "http://" + front + "/mcp"
	eventually(t, func() error {
		conn, err := net.Dial("tcp", front)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// client connects to the load balancer in a revision, and answers questions with the name Ada.
func (f *fleet) client(t *testing.T, revision string) *mcp.Client {
	t.Helper()
	var c *mcp.Client
	eventually(t, func() (err error) {
		transport := mcphttp.NewTransport(f.url, nil)
		mcp.Trace(transport, func(frame mcp.Frame) {
			if frame.Sent && frame.Message != nil && frame.Message.Method == "initialize" {
				f.opened.Add(1)
			}
		})
		c, err = mcp.Connect(t.Context(), transport,
			&mcp.ClientOptions{Revision: revision, ElicitationsPerMinute: 10_000,
				Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
					content := json.RawMessage(`{"name":"Ada"}`)
					return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: content}, nil
				}})
		return err
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// greet calls a tool that asks a question: the answer reaches another process than the question. An answer that
// is lost with the connection to Redis ends the call after 10 seconds.
func greet(c *mcp.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	text, err := mcp.CallTool[string](ctx, c, "greet", map[string]any{})
	if err == nil && text != "Hello, Ada!" {
		err = errors.New("greet returned " + text)
	}
	return err
}

func greetTimes(t *testing.T, c *mcp.Client, n int) {
	t.Helper()
	for i := range n {
		if err := greet(c); err != nil {
			t.Fatalf("call %d: %v", i+1, err)
		}
	}
}

// TestProcessesServeEachRequestOfACall calls a tool that asks, so that the requests of each call
// reach different processes, ends a process and restarts Redis.
func TestProcessesServeEachRequestOfACall(t *testing.T) {
	patchbay := build(t, "..", "./gateway/cmd/patchbay")
	for _, balancer := range []string{"nginx", "haproxy"} {
		t.Run(balancer, func(t *testing.T) {
			f := startFleet(t, balancer, patchbay, "serve", "--insecure-no-auth", "--quiet")
			c := f.client(t, "2026-07-28")
			greetTimes(t, c, 20)

			f.processes[0].kill()
			if balancer == "haproxy" { // its checks must notice first
				eventually(t, func() error { return greet(c) })
			}
			eventually(t, func() error { return errors.Join(greet(c), greet(c), greet(c)) })
			greetTimes(t, c, 12)

			f.redis.kill()
			eventually(t, func() error {
				body, err := get("http://" + f.ops[1] + "/readyz?verbose")
				if err == nil && !strings.Contains(body, `"state":"unavailable"`) {
					err = errors.New("the readiness is " + body)
				}
				return err
			})
			sum, err := mcp.CallTool[int](t.Context(), c, "add", map[string]any{"a": 1, "b": 2})
			if err != nil || sum != 3 {
				t.Errorf("without Redis, add returned %d, %v", sum, err)
			}
			if err := greet(c); err == nil {
				t.Error("a request state was accepted although nothing can record its use")
			}
			f.redis.start()
			eventually(t, func() error { // each broken connection of a process fails once
				for range 12 {
					if err := greet(c); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// TestProcessesServeEachRequestOfASession calls the same tool in one session, ends a process, starts
// the process again, and restarts Redis. The client never opens another session.
func TestProcessesServeEachRequestOfASession(t *testing.T) {
	patchbay := build(t, "..", "./gateway/cmd/patchbay")
	for _, revision := range []string{"2025-06-18", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			f := startFleet(t, "nginx", patchbay, "serve", "--insecure-no-auth", "--quiet")
			c := f.client(t, revision)
			greetTimes(t, c, 20)
			opened := f.opened.Load()

			f.processes[0].kill()
			eventually(t, func() error { return errors.Join(greet(c), greet(c), greet(c)) })
			greetTimes(t, c, 12)
			f.processes[0].start()
			eventually(t, func() error { _, err := get("http://" + f.ops[0] + "/readyz"); return err })
			greetTimes(t, c, 12)

			f.redis.kill()
			f.redis.start()
			eventually(t, func() error { return errors.Join(greet(c), greet(c), greet(c)) })
			greetTimes(t, c, 12)
			if again := f.opened.Load(); opened == 0 || again != opened {
				t.Errorf("the client opened %d sessions, and then %d more", opened, again-opened)
			}
		})
	}
}
