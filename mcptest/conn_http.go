package mcptest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	host     = "server.test"
	endpoint = "http://" + host + "/mcp"
	// maxEvent limits the size of an event.
	maxEvent = 64 << 20
)

// An httpConn speaks the HTTP transport of its client's revision, with an in-memory server.
type httpConn struct {
	c       *Client
	handler *processes
	client  *http.Client
	stop    func()         // stops the server
	done    sync.WaitGroup // every exchange

	mu      sync.Mutex // guards the fields below
	post    string     // the URL of POST requests
	moved   chan struct{}
	session string
	ends    map[jsonrpc.ID]context.CancelFunc // of the exchanges in progress
	stream  context.CancelFunc                // of the GET stream; may be nil
}

func newHTTPConn(c *Client) *httpConn {
	l := &httpConn{
		c: c, handler: newProcesses(c.t, c.handlers.track(c.handler), c.Transport),
		post: endpoint, moved: make(chan struct{}), ends: map[jsonrpc.ID]context.CancelFunc{},
	}
	var served http.Handler = l.handler
	if p := c.Options.Principal; p != nil {
		served = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			l.handler.ServeHTTP(w, r.WithContext(mcp.WithPrincipal(r.Context(), p)))
		})
	}
	l.client, l.stop = serveHTTP(served)
	if !c.Since("2025-03-26") {
		l.listen()
		<-l.moved
	}
	return l
}

func (l *httpConn) close() {
	l.mu.Lock()
	session := l.session
	l.mu.Unlock()
	if session != "" {
		if res, err := l.do(l.c.ctx, http.MethodDelete, nil); err == nil {
			res.Body.Close()
		}
	}
	l.mu.Lock()
	if l.stream != nil {
		l.stream()
	}
	for _, end := range l.ends {
		end()
	}
	l.mu.Unlock()
	l.shutdown()
	l.stop()
	l.done.Wait()
}

func (l *httpConn) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), l.c.Options.Timeout)
	defer cancel()
	if err := l.handler.Shutdown(ctx); err != nil {
		l.c.fault("shutdown: %v", err)
	}
}

// send posts a message. The response to a request is received on another goroutine. Any other
// message was accepted when send returns.
func (l *httpConn) send(ctx context.Context, m *jsonrpc.Message) error {
	if m.Kind() != jsonrpc.Request {
		return l.exchange(ctx, m)
	}
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	l.ends[m.ID] = cancel
	l.mu.Unlock()
	l.done.Go(func() {
		err := l.exchange(ctx, m)
		if err != nil && ctx.Err() == nil {
			l.c.fault("%s: %v", m.Method, err)
		}
		if err != nil || l.c.Since("2025-03-26") {
			l.c.lost(m.ID) // no response can arrive any more
		}
		l.mu.Lock()
		delete(l.ends, m.ID)
		l.mu.Unlock()
		cancel()
	})
	return nil
}

// abandon closes the response stream of a request.
func (l *httpConn) abandon(id jsonrpc.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end := l.ends[id]; end != nil {
		end()
	}
	return true
}

// do sends an HTTP request. m may be nil.
func (l *httpConn) do(ctx context.Context, method string, m *jsonrpc.Message) (*http.Response, error) {
	target, body := endpoint, io.Reader(http.NoBody)
	l.mu.Lock()
	session := l.session
	if m != nil {
		target, body = l.post, bytes.NewReader(jsonrpc.Append(nil, m))
	}
	l.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if m != nil {
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Content-Type", "application/json")
	}
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	if l.c.Modern() || session != "" && l.c.Since("2025-06-18") {
		req.Header.Set("MCP-Protocol-Version", l.c.Revision)
	}
	if l.c.Modern() {
		mirror(req.Header, m)
	}
	return l.client.Do(req)
}

// mirror sets the headers that repeat members of the body. Spec: basic/transports/streamable-http
// (2026-07-28), Standard Headers.
func mirror(h http.Header, m *jsonrpc.Message) {
	h.Set("Mcp-Method", m.Method)
	member, ok := map[string]string{
		"tools/call": "name", "prompts/get": "name", "resources/read": "uri",
		"tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
	}[m.Method]
	if !ok {
		return
	}
	var params map[string]any
	if json.Unmarshal(m.Params, &params) != nil {
		return
	}
	if name, ok := params[member].(string); ok {
		h.Set("Mcp-Name", headerValue(name))
	}
}

// headerValue encodes a value that cannot be sent in a header as it is.
func headerValue(s string) string {
	plain := s == strings.TrimSpace(s) && (!strings.HasPrefix(s, "=?base64?") || !strings.HasSuffix(s, "?="))
	for _, r := range s {
		plain = plain && ' ' <= r && r <= '~'
	}
	if plain {
		return s
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}

// exchange posts a message and receives the response.
func (l *httpConn) exchange(ctx context.Context, m *jsonrpc.Message) error {
	res, err := l.do(ctx, http.MethodPost, m)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if session := res.Header.Get("Mcp-Session-Id"); session != "" {
		l.mu.Lock()
		l.session = session
		l.mu.Unlock()
	}
	media, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	if media == "text/event-stream" {
		return l.events(ctx, res.Body)
	}
	body, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err
	case res.StatusCode == http.StatusAccepted && len(body) == 0:
		return nil
	case media != "application/json":
		return fmt.Errorf("status %d, %s: %s", res.StatusCode, media, body)
	}
	answer, err := jsonrpc.Decode(body)
	if err != nil {
		return fmt.Errorf("status %d: %w: %s", res.StatusCode, err, body)
	}
	l.c.receive(answer)
	return nil
}

// events receives an event stream until it ends.
func (l *httpConn) events(ctx context.Context, body io.Reader) error {
	events := sse.NewReader(body, maxEvent)
	for {
		e, err := events.Next()
		switch {
		case errors.Is(err, io.EOF), err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case e.Type == "endpoint":
			if err := l.move(string(e.Data)); err != nil {
				return err
			}
			continue
		case len(e.Data) == 0:
			continue // an event with an id only
		}
		m, err := jsonrpc.Decode(e.Data)
		if err != nil {
			return fmt.Errorf("%w: %s", err, e.Data)
		}
		l.c.receive(m)
	}
}

// move sets the URL to which clients of 2024-11-05 post. Spec: basic/transports (2024-11-05), HTTP
// with SSE.
func (l *httpConn) move(reference string) error {
	target, err := (&url.URL{Scheme: "http", Host: host, Path: "/mcp"}).Parse(reference)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.post != endpoint {
		return errors.New("duplicate endpoint event")
	}
	l.post = target.String()
	close(l.moved)
	return nil
}

// listen opens the GET stream, unless it is open.
func (l *httpConn) listen() {
	l.mu.Lock()
	opened := l.stream != nil
	ctx, cancel := context.WithCancel(l.c.ctx)
	if !opened {
		l.stream = cancel
	}
	l.mu.Unlock()
	if opened {
		cancel()
		return
	}
	res, err := l.do(ctx, http.MethodGet, nil)
	if err != nil {
		l.c.t.Fatalf("%s: GET: %v", l.c, err)
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		l.c.t.Fatalf("%s: GET: status %d", l.c, res.StatusCode)
	}
	l.done.Go(func() {
		defer cancel()
		defer res.Body.Close()
		if err := l.events(ctx, res.Body); err != nil {
			l.c.fault("GET: %v", err)
		}
		if !l.c.Since("2025-03-26") {
			l.c.lost(jsonrpc.ID{})
		}
	})
}

// A network is an in-memory network with a server. It needs no ports, and time may be fake.
type network struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// serveHTTP serves a handler in memory until stop is called.
func serveHTTP(h http.Handler) (client *http.Client, stop func()) {
	network := &network{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(network) })
	client = &http.Client{Transport: &http.Transport{DialContext: network.dial}}
	return client, func() {
		client.CloseIdleConnections()
		server.Close()
		done.Wait()
	}
}

// dial connects to the server. It ignores the address.
func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case n.conns <- server:
		return client, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept waits for a connection.
func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close makes Accept fail.
func (n *network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// Addr returns a placeholder address.
func (n *network) Addr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return host }
