package mcphttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

const (
	modern       = "2026-07-28"
	november2025 = "2025-11-25"
	june2025     = "2025-06-18"
	march2025    = "2025-03-26"
	november2024 = "2024-11-05"
)

// The revisions that each transport serves.
var (
	streamableRevisions = []string{march2025, june2025, november2025}
	sessionRevisions    = []string{november2024, march2025, june2025, november2025}
)

// forEach runs a subtest in a synctest bubble for each revision.
func forEach(t *testing.T, revisions []string, test func(t *testing.T, revision string)) {
	t.Helper()
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, revision) })
		})
	}
}

// A memListener is a network in memory, for tests in a synctest bubble. The server sees addr as
// the local address of each connection.
type memListener struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newMemListener() *memListener {
	return &memListener{
		addr:   &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8765},
		conns:  make(chan net.Conn),
		closed: make(chan struct{}),
	}
}

type memConn struct {
	net.Conn
	local net.Addr
}

func (c memConn) LocalAddr() net.Addr { return c.local }

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memListener) Addr() net.Addr { return l.addr }

func (l *memListener) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- memConn{server, l.addr}:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// A fixture is a handler that is served on a memListener, with an HTTP client.
type fixture struct {
	t        *testing.T
	handler  *mcphttp.Handler
	listener *memListener
	client   *http.Client
	host     string
}

var discardLogger = slog.New(slog.DiscardHandler)

// start serves core until the test ends, at a loopback address unless addr is given.
func start(t *testing.T, core mcp.Handler, opts *mcphttp.Options, addr ...net.Addr) *fixture {
	t.Helper()
	var o mcphttp.Options
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = discardLogger
	}
	f := &fixture{t: t, handler: mcphttp.NewHandler(core, &o), listener: newMemListener(), host: "localhost:8765"}
	if len(addr) > 0 {
		f.listener.addr = addr[0]
	}
	f.serve(f.handler, f.handler)
	return f
}

// serve serves h until the test ends, and then shuts the handlers down.
func (f *fixture) serve(h http.Handler, handlers ...*mcphttp.Handler) {
	server := &http.Server{Handler: asPrincipal(h), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(f.listener)
	}()
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return f.listener.dial() },
	}
	f.client = &http.Client{Transport: transport}
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for _, handler := range handlers {
			_ = handler.Shutdown(ctx)
		}
		_ = server.Close()
		transport.CloseIdleConnections()
		<-done
	})
}

// asPrincipal is an authentication middleware that takes the Authorization header as the subject. The type
// of the claim does not survive JSON.
func asPrincipal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subject := r.Header.Get("Authorization"); subject != "" {
			r = r.WithContext(mcp.WithPrincipal(r.Context(), &mcp.Principal{Issuer: "test", Subject: subject,
				Claims: map[string]any{"tenant": int64(7)}}))
		}
		next.ServeHTTP(w, r)
	})
}

// A response is an HTTP response with its whole body.
type response struct {
	status int
	header http.Header
	body   string
}

// code returns the code of the JSON-RPC error in the body, or 0.
func (r response) code() int {
	var m struct{ Error struct{ Code int } }
	_ = json.Unmarshal([]byte(r.body), &m)
	return m.Error.Code
}

// request creates a request with headers in the form "Name: value". An empty value deletes a default
// header; the names Host and Query set the host and the query of the URL.
func (f *fixture) request(ctx context.Context, method, body string, headers ...string) *http.Request {
	f.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+f.host+"/mcp", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	given := map[string]bool{}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		switch {
		case name == "Host":
			r.Host = value
		case name == "Query":
			r.URL.RawQuery = value
		case given[name]:
			r.Header.Add(name, value)
		case value == "":
			r.Header.Del(name)
		default:
			r.Header.Set(name, value)
		}
		given[name] = true
	}
	return r
}

func (f *fixture) open(r *http.Request) *http.Response {
	f.t.Helper()
	resp, err := f.client.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (f *fixture) do(method, body string, headers ...string) response {
	f.t.Helper()
	resp := f.open(f.request(f.t.Context(), method, body, headers...))
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response{resp.StatusCode, resp.Header, string(b)}
}

// modernCall returns the body and the headers of a modern request. It appends the given headers.
func modernCall(method, params string, headers ...string) (string, []string) {
	name := ""
	var p struct{ Name, URI string }
	_ = json.Unmarshal([]byte("{"+params+"}"), &p)
	if name = p.Name; name == "" {
		name = p.URI
	}
	if params != "" {
		params += ","
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientCapabilities":{}}}}`,
		method, params, modern)
	all := []string{"MCP-Protocol-Version: " + modern, "Mcp-Method: " + method}
	if name != "" {
		all = append(all, "Mcp-Name: "+name)
	}
	return body, append(all, headers...)
}

// modern sends a modern request.
func (f *fixture) modern(method, params string, headers ...string) response {
	f.t.Helper()
	body, headers := modernCall(method, params, headers...)
	return f.do(http.MethodPost, body, headers...)
}

// modernStream sends a modern request whose response is an event stream.
func (f *fixture) modernStream(ctx context.Context, method, params string) *stream {
	f.t.Helper()
	body, headers := modernCall(method, params)
	return f.stream(f.request(ctx, http.MethodPost, body, headers...))
}

// A stream is an open event stream.
type stream struct {
	*sse.Reader
	t    *testing.T
	resp *http.Response
}

func (f *fixture) stream(r *http.Request) *stream {
	f.t.Helper()
	resp := f.open(r)
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		f.t.Fatalf("got %d %s %s, want an event stream", resp.StatusCode, got, b)
	}
	return &stream{sse.NewReader(resp.Body, 1<<20), f.t, resp}
}

// next returns the next event.
func (s *stream) next() sse.Event {
	s.t.Helper()
	e, err := s.Next()
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

// expectEnd checks that the stream has ended.
func (s *stream) expectEnd() {
	s.t.Helper()
	if e, err := s.Next(); !errors.Is(err, io.EOF) {
		s.t.Fatalf("got %q, %v; want the end of the stream", e.Data, err)
	}
}

// A testCore is a handler whose tools return, fail, notify, wait or ask as their names say.
type testCore struct {
	started chan struct{}     // receives a value when a waiting tool has started
	proceed chan struct{}     // a waiting tool receives one value and then returns
	causes  chan error        // receives the cause with which the context of a waiting tool ended
	request chan *mcp.Request // receives the requests of the tool "inspect"
	polled  chan error        // receives the error of CloseStream
}

func newTestCore() *testCore {
	return &testCore{
		started: make(chan struct{}, 100), proceed: make(chan struct{}, 100), causes: make(chan error, 100),
		request: make(chan *mcp.Request, 100), polled: make(chan error, 100),
	}
}

func (c *testCore) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	var p struct {
		Name      string
		Arguments struct{ Message string }
		Responses json.RawMessage `json:"inputResponses"`
	}
	if err := json.Unmarshal(req.Params, &p); err != nil {
		return nil, err
	}
	switch req.Method {
	case "server/discover":
		return mcp.RawResult(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"logging":{}}}`), nil
	case "tools/call":
		return c.call(ctx, req, p.Name, p.Arguments.Message, p.Responses)
	case "resources/read", "prompts/get", "tools/list":
		return mcp.RawResult(`{"resultType":"complete"}`), nil
	case "subscriptions/listen":
		return c.listen(ctx, req)
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "method not found")
}

func text(s string) mcp.Result {
	b, _ := json.Marshal(s)
	return mcp.RawResult(fmt.Sprintf(`{"resultType":"complete","content":[{"type":"text","text":%s}]}`, b))
}

func (c *testCore) call(ctx context.Context, req *mcp.Request, name, message string,
	responses json.RawMessage) (mcp.Result, error) {
	notify := func(n int) error {
		return req.Notify(ctx, "notifications/message", fmt.Appendf(nil, `{"level":"info","data":%d}`, n))
	}
	switch name {
	case "echo":
		return text(message), nil
	case "lines":
		return mcp.RawResult("{\r\n  \"resultType\": \"complete\"\n}"), nil
	case "inspect":
		c.request <- req
	case "notify", "notifylines":
		if err := errors.Join(notify(1), notify(2)); err != nil {
			return nil, err
		}
		if name == "notifylines" {
			return mcp.RawResult("{\r\n  \"resultType\": \"complete\"\n}"), nil
		}
	case "late":
		if err := notify(1); err != nil {
			return nil, err
		}
		return nil, driver.MissingClientCapability([]byte(`{"sampling":{}}`))
	case "wait", "notifywait":
		if name == "notifywait" {
			if err := notify(1); err != nil {
				return nil, err
			}
		}
		c.started <- struct{}{}
		select {
		case <-c.proceed:
		case <-ctx.Done():
			c.causes <- context.Cause(ctx)
			return nil, ctx.Err()
		}
		return text("done"), nil
	case "stubborn": // ignores the end of its context
		c.started <- struct{}{}
		<-c.proceed
		c.causes <- notify(1)
	case "endless":
		for n := 0; ; n++ {
			if err := req.Notify(ctx, "notifications/message", fmt.Appendf(nil, `{"level":"info","data":"%01000d"}`,
				n)); err != nil {
				c.causes <- err
				return nil, err
			}
		}
	case "ask":
		if responses != nil {
			return text(string(responses)), nil
		}
		return mcp.RawResult(`{"resultType":"input_required","inputRequests":{"name":{"method":"elicitation/create",` +
			`"params":{"message":"Who?","requestedSchema":{"type":"object",` +
			`"properties":{"name":{"type":"string"}}}}}}}`), nil
	case "sample":
		if responses != nil {
			return text(string(responses)), nil
		}
		return mcp.RawResult(`{"resultType":"input_required","inputRequests":{"text":{` +
			`"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}}}`), nil
	case "poll", "notifypoll":
		if name == "notifypoll" {
			if err := notify(1); err != nil {
				return nil, err
			}
		}
		c.polled <- mcphttp.CloseStream(ctx, 100*time.Millisecond)
		c.started <- struct{}{}
		<-c.proceed
		return text("polled"), nil
	case "missing":
		return nil, driver.MissingClientCapability([]byte(`{"sampling":{}}`))
	case "error":
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "no")
	case "busy":
		return nil, &mcp.Error{Code: mcp.CodeBusy, Message: "busy", Data: []byte(`{"retryAfterMs":1500}`)}
	case "implementation code":
		return nil, &mcp.Error{Code: -32000, Message: "busy", Data: []byte(`{"retryAfterMs":1500}`)}
	case "panic":
		panic("on purpose")
	}
	return text(name), nil
}

func (c *testCore) listen(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if err := req.Notify(ctx, "notifications/subscriptions/acknowledged", []byte(`{}`)); err != nil {
		return nil, err
	}
	<-ctx.Done()
	c.causes <- context.Cause(ctx)
	if errors.Is(context.Cause(ctx), mcp.ErrShutdown) {
		return mcp.RawResult(`{"resultType":"complete","ended":true}`), nil
	}
	return nil, ctx.Err()
}

// HeaderParams returns the parameters of the tool "mirror" that have headers.
func (c *testCore) HeaderParams(_ context.Context, _ *mcp.Request, tool string) []driver.HeaderParam {
	if tool != "mirror" {
		return nil
	}
	return []driver.HeaderParam{
		{Header: "Region", Path: []string{"region"}, Type: "string"},
		{Header: "Count", Path: []string{"nested", "count"}, Type: "integer"},
		{Header: "Dry-Run", Path: []string{"dryRun"}, Type: "boolean"},
	}
}
