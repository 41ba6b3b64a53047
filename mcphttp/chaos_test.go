package mcphttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// An abruptCore is a handler whose tools end in every way.
type abruptCore struct{ *testCore }

func (c abruptCore) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	switch params := string(req.Params); {
	case strings.Contains(params, `"exit"`):
		runtime.Goexit()
	case strings.Contains(params, `"notifyexit"`):
		_ = req.Notify(ctx, "notifications/message", []byte(`{"level":"info","data":1}`))
		runtime.Goexit()
	case strings.Contains(params, `"short"`):
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(rand.N(3 * time.Millisecond)):
		}
		return text("short"), nil
	case strings.Contains(params, `"big"`):
		return text(strings.Repeat("x", 256<<10)), nil
	}
	return c.testCore.ServeMCP(ctx, req)
}

// A chaosClient is one principal that breaks off requests at every moment.
type chaosClient struct {
	base   string
	client [2]*http.Client // HTTP/1 and HTTP/2
}

const chaosCaller = "Authorization: mallory"

func (c *chaosClient) request(ctx context.Context, f *fixture, method, body string, headers ...string) *http.Request {
	r := f.request(ctx, method, body, append(headers, chaosCaller)...)
	r.URL.Host, r.Host = c.base, c.base
	return r
}

func (c *chaosClient) do(r *http.Request) {
	resp, err := c.client[rand.IntN(2)].Do(r)
	if err == nil {
		if rand.IntN(2) == 0 {
			_, _ = io.CopyN(io.Discard, resp.Body, rand.Int64N(1<<18))
		}
		_ = resp.Body.Close()
	}
}

func (c *chaosClient) once(f *fixture) {
	ctx, cancel := context.WithTimeout(context.Background(), rand.N(6*time.Millisecond))
	defer cancel()
	tools := []string{"echo", "notify", "panic", "exit", "notifyexit", "short", "big", "late", "busy", "endless"}
	tool := tools[rand.IntN(len(tools))]
	body, headers := modernCall("tools/call", fmt.Sprintf(`"name":%q`, tool))
	switch rand.IntN(7) {
	case 0, 1:
		if rand.IntN(2) == 0 {
			headers = append(headers, "Expect: 100-continue")
		}
		c.do(c.request(ctx, f, "POST", body, headers...))
	case 2:
		listen, headers := modernCall("subscriptions/listen", `"notifications":{}`)
		c.do(c.request(ctx, f, "POST", listen, headers...))
	case 3:
		large := modernBuilder().bodyOfSize(64<<10 + rand.IntN(1<<20))
		c.do(c.request(ctx, f, "POST", large, modernHeaders("echo")...))
	case 4:
		c.raw(f, body, headers)
	default:
		c.session(ctx, f, tool)
	}
}

// raw sends pipelined requests and a part of another one, and closes the connection.
func (c *chaosClient) raw(f *fixture, body string, headers []string) {
	conn, err := net.Dial("tcp", c.base)
	if err != nil {
		return
	}
	defer conn.Close()
	lines := strings.Join(append(headers, chaosCaller), "\r\n") + "\r\n"
	one := head(lines, fmt.Sprintf("Content-Length: %d\r\n", len(body))) + body
	large := head(lines, "Content-Length: 900000\r\n") + strings.Repeat(" ", 300<<10)
	all := one + one + large
	_, _ = io.WriteString(conn, all[:rand.IntN(len(all))])
	time.Sleep(rand.N(2 * time.Millisecond))
	if rand.IntN(2) == 0 {
		_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, _ = bufio.NewReader(conn).ReadString('\n')
	}
	if tcp := conn.(*net.TCPConn); rand.IntN(2) == 0 {
		_ = tcp.SetLinger(0) // a reset
	}
}

// session opens a session, uses it from several goroutines, initializes again and deletes it.
func (c *chaosClient) session(ctx context.Context, f *fixture, tool string) {
	open, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	resp, err := c.client[rand.IntN(2)].Do(c.request(open, f, "POST", initializeBody(march2025)))
	if err != nil {
		return
	}
	id := "Mcp-Session-Id: " + resp.Header.Get("Mcp-Session-Id")
	resp.Body.Close()
	if resp.StatusCode != 200 {
		return
	}
	batch := "[" + callBody(2, tool) + "," + callBody(3, "short") + "]"
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() { c.do(c.request(ctx, f, "POST", callBody(1, tool), id)) })
	}
	all.Go(func() { c.do(c.request(ctx, f, "POST", batch, id)) })
	all.Go(func() { c.do(c.request(ctx, f, "GET", "", id)) })
	all.Go(func() { c.do(c.request(ctx, f, "POST", initializeBody(march2025), id)) })
	all.Wait()
	c.do(c.request(open, f, "DELETE", "", id))
}

// No slot, session or byte is lost or gained, however requests end.
func TestLimits_AreWholeAfterChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const calls, largest = 24, 65 << 20
	defer slog.SetDefault(slog.Default()) // panics are logged there
	slog.SetDefault(discardLogger)
	core := newTestCore()
	f := start(t, abruptCore{core}, &mcphttp.Options{
		MaxInFlightPerPrincipal: calls, MaxListensPerPrincipal: calls, MaxBody: largest,
		BodyTimeout: 10 * time.Minute, // the largest body takes long on a loaded machine
		Sessions:    mcphttp.SessionOptions{InitTimeout: 200 * time.Millisecond, IdleTimeout: 200 * time.Millisecond},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: asPrincipal(f.handler), Protocols: protocols, ErrorLog: discardStdLogger}
	go server.Serve(listener)
	defer server.Close()
	http2 := new(http.Protocols)
	http2.SetUnencryptedHTTP2(true)
	transports := [2]*http.Transport{{}, {Protocols: http2}}
	c := &chaosClient{base: listener.Addr().String()}
	for i, transport := range transports {
		defer transport.CloseIdleConnections()
		c.client[i] = &http.Client{Transport: transport}
	}
	go func() { // nothing waits for these
		for {
			select {
			case <-core.causes:
			case <-t.Context().Done():
				return
			}
		}
	}()
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for end := time.Now().Add(chaosTime); time.Now().Before(end); {
				c.once(f)
			}
		})
	}
	clients.Wait()
	checkWhole(t, f, core, calls, largest)
}

// eventually repeats try until it reports success, for a minute at most.
func eventually(try func() bool) {
	for end := time.Now().Add(time.Minute); !try() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // there is no event to wait for
	}
}

func checkWhole(t *testing.T, f *fixture, core *testCore, calls, largest int) {
	var s mcphttp.Stats
	eventually(func() bool { // the server has noticed the ends of connections, and sessions have ended
		s = f.handler.Stats()
		return s.Sessions == 0 && s.Streams == 0 && s.Subscriptions == 0 && s.InFlight == 0
	})
	if s.Sessions != 0 || s.Streams != 0 || s.Subscriptions != 0 || s.InFlight != 0 {
		t.Fatalf("after the clients: %+v, want nothing in progress", s)
	}
	const ann = "Authorization: mallory"
	var got response
	eventually(func() bool { // a request may release its bytes after its slot
		got = f.do(http.MethodPost, modernBuilder().bodyOfSize(largest), append(modernHeaders("echo"), ann)...)
		return got.status != 429 && got.status != 503
	})
	if got.status != 200 {
		t.Errorf("body of %d bytes: got %d %.200s, want 200", largest, got.status, got.body)
	}
	var waiting sync.WaitGroup
	for range calls {
		waiting.Go(func() {
			if got := f.modern("tools/call", `"name":"wait"`, ann); got.status != 200 {
				t.Errorf("call within the limit: got %d %s, want 200", got.status, got.body)
			}
		})
	}
	for range calls {
		select {
		case <-core.started:
		case <-time.After(time.Minute):
			t.Fatal("the calls within the limit do not start")
		}
	}
	if got := f.modern("tools/call", `"name":"echo"`, ann); got.status != 429 {
		t.Errorf("call beyond the limit: got %d, want 429", got.status)
	}
	for range calls {
		core.proceed <- struct{}{}
	}
	waiting.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Sessions without a stream could end before the last one is opened. One that ends before it has
	// a stream does not count.
	opened := 0
	eventually(func() bool {
		got = f.do(http.MethodPost, initializeBody(november2025), ann)
		if got.status != 200 {
			return opened == 64
		}
		stream := f.open(f.request(ctx, http.MethodGet, "", ann, "Mcp-Session-Id: "+got.header.Get("Mcp-Session-Id")))
		if stream.StatusCode == 200 {
			opened++
		}
		return opened > 64
	})
	if opened != 64 || got.status != 429 {
		t.Errorf("opened %d sessions, and another had status %d; want 64 and 429", opened, got.status)
	}
	listening := 0
	for ; listening <= calls; listening++ {
		body, all := modernCall("subscriptions/listen", `"notifications":{}`, ann)
		resp := f.open(f.request(ctx, http.MethodPost, body, all...))
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			break
		}
	}
	if listening != calls {
		t.Errorf("opened %d subscriptions, want %d", listening, calls)
	}
}

// chaosTime is how long the clients break off requests.
const chaosTime = 500 * time.Millisecond

var discardStdLogger = slog.NewLogLogger(slog.DiscardHandler, 0)
