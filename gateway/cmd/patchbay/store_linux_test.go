package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// startRedis starts a Redis server, which the test may kill and start again.
func startRedis(t *testing.T, args ...string) (s *process, store string) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip("redis-server is not installed")
	}
	for {
		addr := freeport.Addr(t)
		_, port, _ := strings.Cut(addr, ":")
		s = startCommand(t, exec.Command(program, append([]string{"--bind", "127.0.0.1", "--port", port,
			"--dir", t.TempDir(), "--appendonly", "yes", "--appendfsync", "always", "--save", ""}, args...)...))
		line := ""
		for !strings.Contains(line, "Ready to accept connections") && !strings.Contains(line, "bind: Address") {
			line = s.readLine()
		}
		if strings.Contains(line, "Ready") { // else another program was faster
			return s, "redis://" + addr
		}
	}
}

func dial(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		err = conn.Close()
	}
	return err
}

// again starts the command of a process that was killed again.
func (p *process) again() *process {
	p.t.Helper()
	return startCommand(p.t, exec.Command(p.Args[0], p.Args[1:]...))
}

func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.exited
	p.exited <- nil
}

// eventually waits until done returns no error.
func eventually(t *testing.T, done func() error) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(timeout); ; <-look.C {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// A fleet is three processes that share a store, behind a proxy that sends each request to the next
// process.
type fleet struct {
	processes  []*process
	addrs, ops []string
	url        string
	next       atomic.Int64
	served     [3]atomic.Int64 // requests by process
}

// startFleet starts processes of a command, such as "serve", and waits until they are ready.
func startFleet(t *testing.T, args ...string) *fleet {
	t.Helper()
	f := &fleet{}
	t.Cleanup(func() {
		for i := range f.processes {
			if t.Failed() {
				t.Logf("standard error of process %d: %s", i, &f.processes[i].stderr)
			}
		}
	})
	for range 3 {
		addr, ops := freeport.Addr(t), freeport.Addr(t)
		f.addrs, f.ops = append(f.addrs, addr), append(f.ops, ops)
		f.processes = append(f.processes, start(t, append(args, "--addr", addr, "--ops", ops)...))
	}
	for i := range f.ops {
		f.waitReady(t, i)
	}
	proxy := &http.Server{Handler: &httputil.ReverseProxy{FlushInterval: -1, Transport: f,
		Rewrite: func(*httputil.ProxyRequest) {}}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = proxy.Serve(l) }()
	t.Cleanup(func() { _ = proxy.Close() })
	f.url = "http://" + l.Addr().String() + endpoint
	return f
}

func (f *fleet) waitReady(t *testing.T, i int) {
	t.Helper()
	eventually(t, func() error {
		_, err := getURL("http://" + f.ops[i] + "/readyz")
		if err != nil {
			err = fmt.Errorf("process %d: %w", i, err)
		}
		return err
	})
}

// RoundTrip sends a request to the next process, or to the process after it if no connection is
// possible.
func (f *fleet) RoundTrip(req *http.Request) (res *http.Response, err error) {
	for range f.addrs {
		i := int(f.next.Add(1)) % len(f.addrs)
		if dial(f.addrs[i]) != nil {
			continue
		}
		out := req.Clone(req.Context())
		out.URL = &url.URL{Scheme: "http", Host: f.addrs[i], Path: req.URL.Path, RawQuery: req.URL.RawQuery}
		f.served[i].Add(1)
		return http.DefaultTransport.RoundTrip(out)
	}
	return nil, errors.New("no process listens")
}

func getURL(url string) (string, error) {
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

// hasStore returns an error unless /readyz?verbose of a process contains a state of the store.
func (f *fleet) hasStore(i int, state string) error {
	body, err := getURL("http://" + f.ops[i] + "/readyz?verbose")
	if err == nil && !strings.Contains(body, `"stores":[{"kind":"redis","state":"`+state+`"}]`) {
		err = fmt.Errorf("the readiness is %s, want the store %s", body, state)
	}
	return err
}

// A fleetClient is a client of all processes.
type fleetClient struct {
	*mcp.Client
	opened atomic.Int32 // sessions
}

func (f *fleet) client(t *testing.T, revision string, header http.Header) *fleetClient {
	t.Helper()
	c := &fleetClient{}
	transport := mcphttp.NewTransport(f.url, &mcphttp.TransportOptions{Header: header})
	mcp.Trace(transport, func(frame mcp.Frame) {
		if frame.Sent && frame.Message != nil && frame.Message.Method == "initialize" {
			c.opened.Add(1)
		}
	})
	var err error
	c.Client, err = mcp.Connect(t.Context(), transport, &mcp.ClientOptions{
		Revision: revision, ElicitationsPerMinute: 10_000,
		Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"name":"Ada"}`)}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// greet calls a tool that asks for a name, in revisions with questions. The answer reaches another process than
// the call. A response that was lost with a process ends the call after 10 seconds.
func (c *fleetClient) greet() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	args := map[string]any{}
	if c.Revision() < "2025-06-18" {
		args["name"] = "Ada"
	}
	text, err := mcp.CallTool[string](ctx, c.Client, "greet", args)
	if err == nil && text != "Hello, Ada!" {
		err = errors.New("greet returned " + text)
	}
	return err
}

func (c *fleetClient) greetTimes(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		if err := c.greet(); err != nil {
			t.Fatalf("call %d: %v", i+1, err)
		}
	}
}

// Each request of a client of any revision reaches another process. A process is killed and started again,
// and Redis is restarted, and no client opens another session.
func TestProcessesWithAStoreServeEachRequest(t *testing.T) {
	freshState(t)
	redis, store := startRedis(t)
	f := startFleet(t, "serve", "--insecure-no-auth", "--quiet", "--store", store)
	var clients []*fleetClient
	for _, revision := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		c := f.client(t, revision, nil)
		if got := c.Revision(); got != revision {
			t.Fatalf("got the revision %s, want %s", got, revision)
		}
		clients = append(clients, c)
	}
	all := func(n int) {
		t.Helper()
		for _, c := range clients {
			eventually(t, c.greet) // a connection of each process may fail once after a restart
			c.greetTimes(t, n)
		}
	}
	all(12)
	n := 0
	for _, c := range clients {
		for range 4 { // the number is in the store
			got, err := mcp.CallTool[int](t.Context(), c.Client, "increment", map[string]any{})
			if n++; err != nil || got != n {
				t.Errorf("%s: increment returned %d, %v, want %d", c.Revision(), got, err, n)
			}
		}
	}
	f.processes[0].kill()
	all(12)
	f.processes[0] = f.processes[0].again()
	f.waitReady(t, 0)
	all(12)

	redis.kill()
	eventually(t, func() error { return f.hasStore(1, "unavailable") })
	for _, c := range clients { // a known session, or a request of 2026-07-28, goes on
		eventually(t, func() error {
			_, err := mcp.CallTool[int](t.Context(), c.Client, "add", map[string]any{"a": 1, "b": 2})
			return err
		})
	}
	redis.again()
	for i := range f.ops {
		eventually(t, func() error { return f.hasStore(i, "available") })
	}
	all(12)
	for _, c := range clients {
		if n := c.opened.Load(); c.Revision() != "2026-07-28" && n != 1 {
			t.Errorf("%s: the client opened %d sessions, want 1", c.Revision(), n)
		}
	}
	for i := range f.served {
		if f.served[i].Load() < 100 {
			t.Errorf("process %d served %d requests", i, f.served[i].Load())
		}
	}
}

// A process that is told to end is not ready any more, and serves the requests that still arrive.
func TestProcessesWithAStoreServeWhileTheyEnd(t *testing.T) {
	freshState(t)
	_, store := startRedis(t)
	f := startFleet(t, "serve", "--insecure-no-auth", "--quiet", "--store", store)
	var clients []*fleetClient
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		clients = append(clients, f.client(t, revision, nil))
	}
	for i, p := range f.processes {
		p.signal(syscall.SIGTERM)
		eventually(t, func() error {
			if _, err := getURL("http://" + f.ops[i] + "/readyz"); err == nil {
				return errors.New("the process is ready although it ends")
			}
			return nil
		})
		before := f.served[i].Load()
		for _, c := range clients {
			c.greetTimes(t, 4)
		}
		if f.served[i].Load() == before {
			t.Errorf("process %d served no request after the signal", i)
		}
		<-p.exited
		p.exited <- nil
		for _, c := range clients {
			c.greetTimes(t, 4)
		}
		f.processes[i] = p.again()
		f.waitReady(t, i)
	}
	if n := clients[0].opened.Load(); n != 1 {
		t.Errorf("the client opened %d sessions, want 1", n)
	}
}

// A process that waits for the end of a call refuses connections, so that a load balancer uses another process.
func TestProcessWithAStoreRefusesConnectionsBeforeItsEnd(t *testing.T) {
	freshState(t)
	_, store := startRedis(t)
	f := startFleet(t, "serve", "--insecure-no-auth", "--quiet", "--store", store)
	asked := make(chan struct{})
	c, err := mcp.Connect(t.Context(), mcphttp.NewTransport("http://"+f.addrs[0]+endpoint, nil), &mcp.ClientOptions{
		Revision: "2025-11-25",
		Elicit: func(ctx context.Context, _ *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			close(asked)
			<-ctx.Done() // no answer
			return nil, ctx.Err()
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	called := make(chan error, 1)
	go func() {
		_, err := mcp.CallTool[string](t.Context(), c, "greet", map[string]any{})
		called <- err
	}()
	<-asked
	f.processes[0].signal(syscall.SIGTERM)
	eventually(t, func() error {
		if dial(f.addrs[0]) == nil {
			return errors.New("the process accepts connections")
		}
		return nil
	})
	select {
	case err := <-called:
		t.Errorf("the call ended before the connections were refused: %v", err)
	default:
	}
	<-f.processes[0].exited
	f.processes[0].exited <- nil
	if err := <-called; err == nil {
		t.Error("the call that nobody answered succeeded")
	}
}

// A change in one process notifies the clients of all processes, and tasks run in one process only.
func TestProcessesWithAStoreShareChangesAndTasks(t *testing.T) {
	freshState(t)
	_, store := startRedis(t)
	f := startFleet(t, "serve", "--insecure-no-auth", "--quiet", "--store", store)
	for _, revision := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		c := f.client(t, revision, nil)
		updated := make(chan error, 1)
		filter := mcp.SubscriptionFilter{ResourceSubscriptions: []string{"demo://counter"}}
		ready := make(chan struct{})
		go func() {
			for event, err := range c.Listen(t.Context(), filter) {
				switch {
				case err != nil, event.Kind == mcp.EventResourceUpdated:
					updated <- err
					return
				case event.Kind == mcp.EventListening:
					close(ready)
				}
			}
		}()
		<-ready
		for range 3 { // by each process
			if _, err := mcp.CallTool[int](t.Context(), c.Client, "increment", map[string]any{}); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case err := <-updated:
			if err != nil {
				t.Errorf("%s: %v", revision, err)
			}
		case <-time.After(timeout):
			t.Errorf("%s: no notification of the changed counter", revision)
		}
	}
	id := mustRun(t, "call", "--task", f.url, "crunch", "seconds=1")
	if out := mustRun(t, "task", "watch", f.url, id); !strings.Contains(out, "42") {
		t.Errorf("the result of the task is %s", out)
	}
	waiting := mustRun(t, "call", "--task", f.url, "crunch", "seconds=3600")
	for range f.addrs {
		if out := mustRun(t, "task", "get", f.url, waiting); !strings.Contains(out, "working") {
			t.Errorf("the task is %s, want working", out)
		}
	}
	mustRun(t, "task", "cancel", f.url, waiting)
	waitForStatus(t, f.url, waiting, "cancelled")
}

// A gateway shares keys, sessions and its configuration of secrets with the other processes.
func TestGatewaysWithAStoreServeEachRequest(t *testing.T) {
	dir := freshState(t)
	redis, store := startRedis(t, "--requirepass", "p@ss/w:rd")
	t.Setenv("REDIS_PASSWORD", "p@ss/w:rd")
	store = strings.Replace(store, "redis://", "redis://:${REDIS_PASSWORD}@", 1)
	server := freeport.Addr(t)
	serveAt(t, server, "--tasks", "memory") // one process: an answer reaches the process that asked
	file := filepath.Join(t.TempDir(), "mcp.json")
	config := fmt.Sprintf(`{"mcpServers": {"demo": {"url": "http://%s/mcp"}}, "patchbay": {"store": [%q]}}`,
		server, store)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	f := startFleet(t, "gateway", "--config", file)
	for line := ""; !strings.Contains(line, "keys new me --all-servers --config "+file); {
		line = f.processes[0].readLine() // the hint contains the configuration, which names the store
	}
	key := func(name string) http.Header {
		var created struct{ Key string }
		out := mustRun(t, "gateway", "keys", "new", name, "--all-servers", "--json", "--config", file)
		if err := json.Unmarshal([]byte(out), &created); err != nil {
			t.Fatal(err)
		}
		return http.Header{"Authorization": {"Bearer " + created.Key}}
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "gateway", "state.db")); len(found) > 0 {
		t.Errorf("the gateways created %q beside the store", found)
	}
	ann, others := key("ann"), key("others")
	var clients []*fleetClient
	for _, revision := range []string{"2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		clients = append(clients, f.client(t, revision, ann))
	}
	for _, c := range clients {
		c.greetTimes(t, 9)
	}
	f.processes[1].kill()
	for _, c := range clients {
		eventually(t, c.greet)
		c.greetTimes(t, 4)
	}
	redis.kill()
	redis.again()
	for _, c := range clients {
		eventually(t, c.greet)
		c.greetTimes(t, 4)
		if n := c.opened.Load(); c.Revision() != "2026-07-28" && n != 1 {
			t.Errorf("%s: the client opened %d sessions, want 1", c.Revision(), n)
		}
	}
	mustRun(t, "gateway", "keys", "revoke", "ann", "--config", file)
	for _, c := range clients {
		eventually(t, func() error { // each process reads the keys again after a second
			if err := errors.Join(c.greet(), c.greet()); err == nil {
				return errors.New("a revoked key was accepted")
			}
			return nil
		})
	}
	f.client(t, "2025-11-25", others).greetTimes(t, 4)
}

// The command line refuses passwords and stores that the program cannot open, without printing them.
func TestStoresAreRefused(t *testing.T) {
	freshState(t)
	_, stderr, status := run(t, "serve", "--store", "bolt:a.db", "--store", "postgres://127.0.0.1:1/patchbay")
	if status != 2 || !strings.Contains(stderr, "want at most") {
		t.Errorf("two stores of durable state: status %d, %s", status, stderr)
	}
	t.Setenv("STORE", "postgres://app:hunter2@127.0.0.1:1/patchbay")
	for _, test := range []struct{ store, want string }{
		{"redis://:hunter2@127.0.0.1:1", "got a URL with a password"},
		{"${STORE}", "patchbay doctor store '${STORE}'"},
		{"postgres://app:hunter2@127.0.0.1/patchbay", "got a URL with a password"},
		{"redis://:%3${STORE}@127.0.0.1:1", "invalid percent escape"},
		{"redis://:${HUNTER2}@127.0.0.1:1", "HUNTER2"},
		{"redis://127.0.0.1:1", "patchbay doctor store redis://127.0.0.1:1"},
		{"hunter2", "want redis://HOST:PORT"},
	} {
		for _, command := range [][]string{{"serve"}, {"gateway", "--", built, "serve", "--stdio"}} {
			args := slices.Insert(slices.Clone(command), 1, "--store", test.store)
			_, stderr, status := run(t, args...)
			if status == 0 || !strings.Contains(stderr, test.want) || strings.Contains(stderr, "hunter2") {
				t.Errorf("%q: status %d, %s, want %q without the password", args, status, stderr, test.want)
			}
		}
	}
}

func TestDoctorExaminesAStore(t *testing.T) {
	freshState(t)
	_, healthy := startRedis(t, "--maxmemory", "1gb", "--requirepass", "hunter2")
	_, evicting := startRedis(t, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")
	t.Setenv("REDIS_PASSWORD", "hunter2")
	healthy = strings.Replace(healthy, "redis://", "redis://:${REDIS_PASSWORD}@", 1)
	out := mustRun(t, "doctor", "store", healthy)
	if !strings.Contains(out, "ok    eviction") || strings.Contains(out, "FAIL") || strings.Contains(out, "hunter2") {
		t.Errorf("a healthy store: %s", out)
	}
	out, _, status := run(t, "doctor", "store", "--json", evicting)
	var report struct {
		Checks []struct{ Name, Status, Next string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, c := range report.Checks {
		if c.Status != "fail" {
			continue
		}
		if failed++; c.Name != "eviction" || !strings.Contains(c.Next, "noeviction") {
			t.Errorf("got the failure %+v", c)
		}
	}
	if status != 3 || failed != 1 || len(report.Checks) != 10 {
		t.Errorf("status %d, %d failures in %d checks, want 3, 1 and 10: %s", status, failed, len(report.Checks), out)
	}
	_, stderr, status := run(t, "serve", "--store", evicting)
	if status != 3 || !strings.Contains(stderr, "noeviction") {
		t.Errorf("serve with a store that evicts: status %d, %s", status, stderr)
	}
}
