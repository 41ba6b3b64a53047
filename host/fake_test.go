package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// simpleServer returns a server with a tool that returns its name, one that is slow and one that
// asks.
func simpleServer(name string) *mcp.Server {
	s := newServer(name)
	mcp.AddTool(s, &mcp.Tool{Name: "name"}, func(context.Context, struct{}) (string, error) { return name, nil })
	mcp.AddTool(s, &mcp.Tool{Name: "slow"}, func(ctx context.Context, _ struct{}) (string, error) {
		select {
		case <-time.After(50 * time.Second):
			return "slow", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
	return s
}

// A fakeProcess is a server in this process that behaves like a command: each connection is a stream
// that its end closes.
type fakeProcess struct {
	handler mcp.Handler
	startup time.Duration // how long it takes to connect
	frozen  atomic.Bool   // messages are not read

	mu     sync.Mutex // guards the fields below
	fail   error      // of the next starts
	starts []time.Time
	conns  []mcp.Conn // of the server
	work   sync.WaitGroup
}

func (p *fakeProcess) dial(ctx context.Context) (mcp.Transport, error) {
	p.mu.Lock()
	p.starts = append(p.starts, time.Now())
	fail, startup := p.fail, p.startup
	p.mu.Unlock()
	select {
	case <-time.After(startup):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if fail != nil {
		return nil, fail
	}
	client, server := mcp.Pipe()
	p.mu.Lock()
	p.conns = append(p.conns, server)
	p.mu.Unlock()
	p.work.Go(func() {
		_ = mcp.Serve(context.Background(), p.handler, &freezable{server, p}, &mcp.ServeOptions{Logger: noLog})
	})
	return mcp.NewConnTransport(client), nil
}

// A freezable Conn can stop to read, like a process that hangs.
type freezable struct {
	mcp.Conn
	process *fakeProcess
}

func (c *freezable) Read(ctx context.Context) (*jsonrpc.Message, error) {
	for {
		m, err := c.Conn.Read(ctx)
		if err != nil || !c.process.frozen.Load() {
			return m, err
		}
	}
}

// exit ends the last connection.
func (p *fakeProcess) exit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.conns[len(p.conns)-1].Close()
}

func (p *fakeProcess) setFail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

func (p *fakeProcess) setStartup(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.startup = d
}

func (p *fakeProcess) started() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Time(nil), p.starts...)
}

var noLog = slog.New(slog.NewTextHandler(io.Discard, nil))

// openFakes returns a host of fake processes. Its settings are the member "patchbay" of the file.
func openFakes(t *testing.T, servers map[string]*fakeProcess, settings string) *host.Host {
	t.Helper()
	entries := map[string]any{}
	for name := range servers {
		entries[name] = map[string]string{"command": name}
	}
	h := openFile(t, entries, settings, &host.Options{
		Dial: func(ctx context.Context, s *config.Server) (mcp.Transport, error) {
			return servers[s.Command].dial(ctx)
		},
	})
	t.Cleanup(func() {
		_ = h.Close()
		for _, p := range servers {
			p.work.Wait()
		}
	})
	return h
}

// openFile returns a host of a configuration.
func openFile(t *testing.T, servers map[string]any, settings string, opts *host.Options) *host.Host {
	t.Helper()
	text, err := json.Marshal(map[string]any{"mcpServers": servers, "patchbay": json.RawMessage(settings)})
	if err != nil {
		t.Fatal(err)
	}
	f, err := config.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	opts.Logger = noLog
	h, err := host.Open(t.Context(), f, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// client returns a client of the view of a caller.
func client(t *testing.T, h *host.Host, c *policy.Caller) *mcp.Client {
	t.Helper()
	return clientWith(t, h, c, nil)
}

func clientWith(t *testing.T, h *host.Host, c *policy.Caller, opts *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	client, err := mcp.Connect(t.Context(), mcp.InMemory(h.For(c)), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A failure is what a caller learns about a request that failed.
type failure struct {
	Code         hosterr.Code
	Server       string
	MayHaveRun   bool
	RetryAfterMs int
}

// failureOf calls a tool and returns its failure, nil if it succeeds.
func failureOf(t *testing.T, c *mcp.Client, tool string) (*failure, string) {
	t.Helper()
	res, err := c.CallTool(t.Context(), tool, nil)
	if err != nil {
		t.Fatalf("call of %s: %v", tool, err)
	}
	return failureIn(t, res)
}

// failureIn returns the failure that a result reports, nil if there is none.
func failureIn(t *testing.T, res *mcp.CallToolResult) (*failure, string) {
	t.Helper()
	raw, ok := res.Meta["dev.patchbay/error"]
	if !ok {
		return nil, res.Text()
	}
	text, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	f := new(failure)
	if err := json.Unmarshal(text, f); err != nil || !res.IsError {
		t.Fatalf("got %s, %v, isError %t", text, err, res.IsError)
	}
	return f, res.Text()
}

// follow collects the states of events until the host is closed.
func follow(t *testing.T, h *host.Host) (states func() []status.State) {
	t.Helper()
	var mu sync.Mutex
	var all []status.State
	events := h.Events(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range events {
			mu.Lock()
			all = append(all, e.State)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = h.Close()
		<-done
	})
	return func() []status.State {
		mu.Lock()
		defer mu.Unlock()
		got := all
		all = nil
		return got
	}
}

func upstream(t *testing.T, h *host.Host, name string) *host.Upstream {
	t.Helper()
	for _, u := range h.Upstreams() {
		if u.Name() == name {
			return u
		}
	}
	t.Fatalf("no server %q", name)
	return nil
}

var errBroken = errors.New("the program is broken")
