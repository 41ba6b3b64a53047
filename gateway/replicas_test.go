package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/internal/freeport"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/replica"
	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// patience limits how long a test waits for a process. A busy machine takes seconds.
const patience = 30 * time.Second

// await polls until done returns no error.
func await(t *testing.T, done func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(5 * time.Millisecond) {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// startRedis starts a redis-server until the test ends, and returns its URL.
func startRedis(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil && (os.Getenv("CI") != "true" || runtime.GOOS != "linux") {
		t.Skip("redis-server is not installed")
	} else if err != nil {
		t.Fatal(err) // .ci/run installs the program
	}
	addr := freeport.Addr(t)
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(program, "--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir(), "--save", "")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	await(t, func() error {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	return "redis://" + addr
}

// A process of a fleet is a gateway with its own host and its own connections to Redis.
type process struct {
	*gateway.Gateway
	host *host.Host
	url  string
	stop context.CancelFunc
	lose func() error // closes its listener
	done chan error

	keys  *gateway.KeyStore
	state state.Store
	bus   replica.Bus
}

// A fleet is three gateways that share a Redis server and serve the same upstream server. As a
// RoundTripper, it sends each request to the next gateway.
type fleet struct {
	t         *testing.T
	http      *http.Transport
	processes []*process
	upstream  *mcp.Server
	cancelled chan error // the causes of canceled calls of the tool wait
	waiting   chan struct{}
	opens     atomic.Int32 // streams for notifications that are being served

	mu   sync.Mutex // guards the fields below
	turn int
	down map[int]bool // processes that get no requests
}

const fleetKeys = "fleet-keys-0123456789-0123456789"

// startFleet starts three gateways for a configuration of the server docs.
func startFleet(t *testing.T, text string, configure ...func(o *host.Options)) *fleet {
	t.Helper()
	f := &fleet{t: t, http: http.DefaultTransport.(*http.Transport).Clone(), cancelled: make(chan error, 1),
		waiting: make(chan struct{}, 1), down: map[int]bool{}}
	f.upstream = f.newServer()
	url := startRedis(t)
	for range 3 {
		f.start(url, text, configure)
	}
	t.Cleanup(f.http.CloseIdleConnections)
	return f
}

func (f *fleet) newServer() *mcp.Server {
	s := mcp.NewServer("docs", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "whoami"}, func(context.Context, struct{}) (string, error) { return "docs", nil })
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		return mcp.Ask[string](ctx, "color", "Which color?", nil)
	})
	mcp.AddTool(s, &mcp.Tool{Name: "sample"}, func(ctx context.Context, _ struct{}) (string, error) {
		res, err := mcp.Sample(ctx, "poem", &mcp.CreateMessageParams{MaxTokens: 10,
			Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser,
				Content: []mcp.ContentBlock{&mcp.TextContent{Text: "Write a poem."}}}}})
		if err != nil {
			return "", err
		}
		return res.Text(), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		f.waiting <- struct{}{}
		<-ctx.Done()
		f.cancelled <- context.Cause(ctx)
		return "", ctx.Err()
	})
	return s
}

// start starts a gateway with connections of its own to the shared store.
func (f *fleet) start(url, text string, configure []func(o *host.Options)) {
	f.t.Helper()
	store, err := redis.Open(f.t.Context(), url, &redis.Options{Timeout: patience})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(store.Close)
	file, err := config.Parse([]byte(text))
	if err != nil {
		f.t.Fatal(err)
	}
	shared := state.Share(store.HostState(), store.Bus())
	p := &process{done: make(chan error, 1), keys: gateway.NewKeyStore(shared), state: shared, bus: store.Bus()}
	log := slog.New(slog.DiscardHandler)
	o := &host.Options{
		Dial:  func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(f.upstream), nil },
		State: shared, Limits: store.Limits(), StateKeys: [][]byte{[]byte(fleetKeys)}, Logger: log,
	}
	for _, set := range configure {
		set(o)
	}
	if p.host, err = host.Open(f.t.Context(), file, o); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := p.host.Close(); err != nil {
			f.t.Error(err)
		}
	})
	opts := &gateway.Options{Keys: []string{key}, KeyStore: p.keys, Logger: log}
	opts.HTTP.Sessions = mcphttp.SessionOptions{Store: store.Sessions(), Bus: store.Bus(), Events: store.Events()}
	p.Gateway = gateway.New(p.host, opts)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	p.url, p.lose = "http://"+l.Addr().String(), l.Close
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	go func() { p.done <- p.Serve(ctx, l) }() // ends with ctx
	f.t.Cleanup(p.stop)
	f.processes = append(f.processes, p)
	f.t.Cleanup(func() {
		p.stop()
		if err := <-p.done; err != nil {
			f.t.Errorf("Serve: %v", err)
		}
	})
}

// shutdown ends a process, after it received its last request.
func (f *fleet) shutdown(n int) {
	f.t.Helper()
	f.mu.Lock()
	f.down[n] = true
	f.mu.Unlock()
	p := f.processes[n]
	p.stop()
	err := <-p.done
	if p.done <- nil; err != nil {
		f.t.Fatal(err)
	}
}

// lose makes a process unreachable, which receives its last requests meanwhile.
func (f *fleet) lose(n int) {
	f.t.Helper()
	p := f.processes[n]
	if err := p.lose(); err != nil {
		f.t.Fatal(err)
	}
	err := <-p.done
	if p.done <- nil; !errors.Is(err, net.ErrClosed) {
		f.t.Fatalf("Serve returned %v, want the end of its listener", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down[n] = true
}

// next returns the process of the next request.
func (f *fleet) next() *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		f.turn++
		if n := f.turn % len(f.processes); !f.down[n] {
			return f.processes[n]
		}
	}
}

// RoundTrip sends a request to the next process.
func (f *fleet) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = strings.TrimPrefix(f.next().url, "http://")
	r.Host = ""
	res, err := f.http.RoundTrip(r)
	if err == nil && r.Method == http.MethodGet && res.StatusCode == http.StatusOK {
		f.opens.Add(1)
	}
	return res, err
}

// connect connects a client to all processes in turn.
func (f *fleet) connect(revision, path, key string) *mcp.Client {
	f.t.Helper()
	transport := mcphttp.NewTransport(f.processes[0].url+path, &mcphttp.TransportOptions{
		Client: &http.Client{Transport: f}, Header: http.Header{"Authorization": {"Bearer " + key}}})
	c, err := mcp.Connect(f.t.Context(), transport, &mcp.ClientOptions{Revision: revision,
		Logger: slog.New(slog.DiscardHandler), Elicit: answer,
		Sample: func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Model: "m",
				Content: []mcp.ContentBlock{&mcp.TextContent{Text: "verse"}}}, nil
		}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

// key creates a key of a principal.
func (f *fleet) key(k gateway.Key) string {
	f.t.Helper()
	secret, err := f.processes[0].keys.Create(f.t.Context(), k)
	if err != nil {
		f.t.Fatal(err)
	}
	return secret
}

const fleetConfig = `{"mcpServers": {"docs": {"command": "docs"}, "more": {"command": "docs"}}}`

// Each request of a client, each answer to a question and each cancellation reaches the next gateway.
func TestEachRequestAtTheNextGateway(t *testing.T) {
	for _, revision := range mcptest.Revisions() {
		t.Run(revision, func(t *testing.T) {
			mcptest.NoLeaks(t)
			f := startFleet(t, fleetConfig)
			c := f.connect(revision, "/mcp", key)
			for range 4 {
				if got := toolNames(t, c); len(got) != 8 {
					t.Errorf("tools %q, want 8", got)
				}
				res, err := c.CallTool(t.Context(), "docs__whoami", nil)
				if err != nil || res.Text() != "docs" {
					t.Errorf("call: %+v, %v", res, err)
				}
				if revision >= "2025-06-18" {
					if res, err := c.CallTool(t.Context(), "docs__ask", nil); err != nil || res.Text() != "blue" {
						t.Errorf("elicitation: %+v, %v, want the answer", res, err)
					}
				}
				if res, err := c.CallTool(t.Context(), "docs__sample", nil); err != nil || res.Text() != "verse" {
					t.Errorf("sampling: %s, %v, want the answer", res.Text(), err)
				}
			}
			f.checkCancellation(c)
		})
	}
}

func (f *fleet) checkCancellation(c *mcp.Client) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	go func() { // the server ends the wait
		select {
		case <-f.waiting:
		case <-time.After(patience):
		}
		cancel()
	}()
	_, err := c.CallTool(ctx, "docs__wait", nil)
	if !errors.Is(err, context.Canceled) {
		f.t.Errorf("the canceled call returned %v", err)
	}
	select {
	case err := <-f.cancelled:
		if !errors.Is(err, mcp.ErrCancelled) && !errors.Is(err, mcp.ErrDisconnected) {
			f.t.Errorf("the server's call ended with %v, want its cancellation", err)
		}
	case <-time.After(patience):
		f.t.Error("the call of the server was not canceled")
	}
}

// A stream at one gateway carries changes of the gateway's servers, and requests at others continue.
func TestListChangesReachTheStreamAtItsGateway(t *testing.T) {
	for _, revision := range mcptest.Revisions() {
		t.Run(revision, func(t *testing.T) {
			mcptest.NoLeaks(t)
			f := startFleet(t, fleetConfig)
			c := f.connect(revision, "/mcp", key)
			toolNames(t, c) // the gateways connect to their servers
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			changed := false
			for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Kind == mcp.EventListening {
					mcp.AddTool(f.upstream, &mcp.Tool{Name: "fresh"},
						func(context.Context, struct{}) (string, error) { return "fresh", nil })
				}
				if changed = e.Kind == mcp.EventToolsChanged; changed {
					break
				}
			}
			if !changed {
				t.Error("no notification of the new tool")
			}
			for range f.processes {
				await(t, func() error {
					if got := toolNames(t, c); !slices.Contains(got, "docs__fresh") {
						return fmt.Errorf("tools %q, want the new tool at each gateway", got)
					}
					return nil
				})
			}
		})
	}
}

// Sessions continue at other gateways when a gateway ends or is lost, and questions are still answered.
func TestSessionsOutliveTheirGateway(t *testing.T) {
	for _, revision := range mcptest.Revisions() {
		t.Run(revision, func(t *testing.T) {
			mcptest.NoLeaks(t)
			f := startFleet(t, fleetConfig)
			c := f.connect(revision, "/mcp", key)
			for n, end := range []func(int){f.shutdown, f.lose} {
				end(n)
				for range 4 {
					res, err := c.CallTool(t.Context(), "docs__sample", nil)
					if err != nil || res.Text() != "verse" {
						t.Errorf("after the end of %d gateways: %s, %v", n+1, res.Text(), err)
					}
				}
			}
		})
	}
}

// A fleetSession is a session of revision 2025-11-25 without a client, so that a test can send its id with
// other credentials.
type fleetSession struct {
	f         *fleet
	id        string
	path, key string
}

func (f *fleet) initialize(path, key string) *fleetSession {
	f.t.Helper()
	s := &fleetSession{f: f, path: path, key: key}
	got := s.send(f.processes[0], path, key, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{`+
		`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	if s.id = got.header.Get("Mcp-Session-Id"); got.status != http.StatusOK || s.id == "" {
		f.t.Fatalf("initialize: status %d, session %q", got.status, s.id)
	}
	return s
}

type fleetResponse struct {
	status int
	header http.Header
	body   string
}

// send sends a message to a process, or ends the session there without a message.
func (s *fleetSession) send(p *process, path, key, message string) fleetResponse {
	s.f.t.Helper()
	method := http.MethodPost
	if message == "" {
		method = http.MethodDelete
	}
	ctx, cancel := context.WithTimeout(s.f.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(message))
	if err != nil {
		s.f.t.Error(err)
		return fleetResponse{}
	}
	r.Header = http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"},
		"Accept": {"application/json, text/event-stream"}}
	if s.id != "" {
		r.Header.Set("Mcp-Session-Id", s.id)
	}
	res, err := s.f.http.RoundTrip(r)
	if err != nil {
		s.f.t.Error(err)
		return fleetResponse{}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.f.t.Error(err)
	}
	return fleetResponse{res.StatusCode, res.Header, string(body)}
}

const listBody = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`

// Only the principal, the route and the limits that opened a session can use it, at every gateway.
func TestSharedSessionIsOfItsCallerAndRoute(t *testing.T) {
	mcptest.NoLeaks(t)
	f := startFleet(t, fleetConfig)
	ann, bob := f.key(gateway.Key{Name: "ann"}), f.key(gateway.Key{Name: "bob"})
	limited := f.key(gateway.Key{Name: "limited", Subject: "ann", ReadOnly: true})
	s := f.initialize("/mcp", ann)
	for n, p := range f.processes {
		for _, other := range []struct{ name, path, key string }{
			{"another principal", "/mcp", bob}, {"the local user", "/mcp", key}, {"another route", "/mcp/s/docs", ann},
			{"other limits", "/mcp", limited},
		} {
			for _, body := range []string{listBody, ""} {
				if got := s.send(p, other.path, other.key, body); got.status != http.StatusNotFound {
					t.Errorf("%s at gateway %d: status %d, want 404", other.name, n, got.status)
				}
			}
		}
		if got := s.send(p, s.path, s.key, listBody); got.status != http.StatusOK {
			t.Errorf("the owner at gateway %d: status %d, want 200", n, got.status)
		}
	}
	if got := s.send(f.processes[2], s.path, s.key, ""); got.status != http.StatusNoContent {
		t.Errorf("the end of the session: status %d, want 204", got.status)
	}
	for _, p := range f.processes {
		await(t, func() error {
			if got := s.send(p, s.path, s.key, listBody); got.status != http.StatusNotFound {
				return errors.New("the session has not ended at every gateway")
			}
			return nil
		})
	}
}

// Messages on the bus that no gateway sends have no effect.
func TestMalformedMessagesOfTheBusAreIgnored(t *testing.T) {
	mcptest.NoLeaks(t)
	f := startFleet(t, fleetConfig)
	s := f.initialize("/mcp", key)
	for _, topic := range []string{"mcphttp/every", "mcphttp/changes", "host/state/approval", "host/state/key",
		"host/state/pins"} {
		for _, payload := range []string{"", "{", "null", "[]", `{"session":7}`, `{"message":{}}`,
			`{"session":"x","message":{"jsonrpc":"2.0"}}`, strings.Repeat("[", 1<<16), strings.Repeat("x", 1<<19)} {
			if _, err := f.processes[0].bus.Publish(t.Context(), topic, []byte(payload)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n, p := range f.processes {
		if got := s.send(p, s.path, s.key, listBody); got.status != http.StatusOK {
			t.Errorf("gateway %d: status %d, want 200", n, got.status)
		}
	}
}
