package mcphttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

const testEnvelope = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},` +
	`"io.modelcontextprotocol/logLevel":"debug"}`

// modernRequest is a request with its envelope; members go before it.
func modernRequest(t testing.TB, method, members string) *mcp.Request {
	t.Helper()
	if members != "" {
		members += ","
	}
	req, err := mcp.NewRequest(jsonrpc.NewRequest(jsonrpc.ID{}, method, json.RawMessage("{"+members+testEnvelope+"}")))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// transport is a client's way to the fixture's server, closed with the test.
func (f *fixture) transport(opts *mcphttp.TransportOptions) *mcphttp.Transport {
	var o mcphttp.TransportOptions
	if opts != nil {
		o = *opts
	}
	if o.Client == nil {
		o.Client = f.client
	}
	if o.Logger == nil {
		o.Logger = discardLogger
	}
	t := mcphttp.NewTransport("http://"+f.host+"/mcp", &o)
	f.t.Cleanup(func() { t.Close() })
	return t
}

// serve is a server written by hand, and a transport to it.
func newServerTransport(t *testing.T, handler http.HandlerFunc, opts *mcphttp.TransportOptions) *mcphttp.Transport {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	o := mcphttp.TransportOptions{Logger: discardLogger}
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = discardLogger
	}
	transport := mcphttp.NewTransport(server.URL, &o)
	t.Cleanup(func() { transport.Close() })
	return transport
}

// A notes collects notifications.
type notificationRecorder struct {
	mu  sync.Mutex
	all []string
}

func (n *notificationRecorder) record(_ context.Context, method string, params json.RawMessage) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, method+" "+string(params))
	return nil
}

// mayHaveRun checks that err is a TransportError, and returns its MayHaveRun.
func mayHaveRun(t testing.TB, err error) bool {
	t.Helper()
	var failed *mcp.TransportError
	if !errors.As(err, &failed) {
		t.Fatalf("got %v (%T), want a TransportError", err, err)
	}
	return failed.MayHaveRun
}

// idOf returns the id of a posted message as JSON.
func idOf(r *http.Request) string {
	var m struct{ ID json.RawMessage }
	_ = json.NewDecoder(r.Body).Decode(&m)
	return string(m.ID)
}

func TestMHTTP01_ModernCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), nil)
		tr := f.transport(nil)
		var got notificationRecorder
		for _, test := range []struct {
			name, method, members, want string
			notes                       int
		}{
			{"JSON", "tools/call", `"name":"echo","arguments":{"message":"hi"}`, `"text":"hi"`, 0},
			{"SSE", "tools/call", `"name":"notify"`, `"text":"notify"`, 2},
			{"discover", "server/discover", "", `"supportedVersions"`, 0},
			{"a resource", "resources/read", `"uri":"file:///ä b"`, `"complete"`, 0},
			{"input required", "tools/call", `"name":"ask"`, `"input_required"`, 0},
		} {
			got.all = nil
			req := modernRequest(t, test.method, test.members)
			req.Notify = got.record
			res, err := tr.RoundTrip(t.Context(), req)
			if err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			if raw := string(res.(mcp.RawResult)); !strings.Contains(raw, test.want) {
				t.Errorf("%s: got %s", test.name, raw)
			}
			if len(got.all) != test.notes || test.notes == 2 && (!strings.Contains(got.all[0], `"data":1`) ||
				!strings.Contains(got.all[1], `"data":2`)) {
				t.Errorf("%s: got notifications %q", test.name, got.all)
			}
		}
	})
}

func TestMHTTP23_RemoteErrors(t *testing.T) {
	f := start(t, newTestCore(), nil)
	tr := f.transport(nil)
	for members, code := range map[string]int{
		`"name":"error"`:   mcp.CodeInvalidParams,
		`"name":"missing"`: mcp.CodeMissingRequiredClientCapability, // with status 400
		`"name":"busy"`:    mcp.CodeBusy,                            // with status 503
		`"name":"late"`:    mcp.CodeMissingRequiredClientCapability, // as an event
	} {
		_, err := tr.RoundTrip(t.Context(), modernRequest(t, "tools/call", members))
		var remote *mcp.Error
		if !errors.As(err, &remote) || !remote.Remote() || remote.Code != code {
			t.Errorf("%s: got %v, want the server's error %d", members, err, code)
		}
	}
	_, err := tr.RoundTrip(t.Context(), modernRequest(t, "no/such", "")) // with status 404
	if remote := (*mcp.Error)(nil); !errors.As(err, &remote) || !remote.Remote() ||
		remote.Code != mcp.CodeMethodNotFound {
		t.Errorf("got %v, want the server's error", err)
	}
}

func TestMHTTP09_CancellingClosesTheStream(t *testing.T) {
	core := newTestCore()
	f := start(t, core, nil)
	tr := f.transport(nil)
	for _, tool := range []string{"wait", "notifywait"} {
		why := errors.New("changed my mind")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-core.started
			cancel(why)
		}()
		req := modernRequest(t, "tools/call", `"name":"`+tool+`"`)
		if _, err := tr.RoundTrip(ctx, req); !errors.Is(err, why) {
			t.Errorf("%s: got %v, want the cause", tool, err)
		}
		if cause := <-core.causes; !errors.Is(cause, mcp.ErrDisconnected) {
			t.Errorf("%s: the server saw %v", tool, cause)
		}
	}
}

func TestSUB_ListenUntilShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		tr := f.transport(nil)
		req := modernRequest(t, "subscriptions/listen", `"notifications":{}`)
		acknowledged := make(chan string, 1)
		req.Notify = func(_ context.Context, method string, _ json.RawMessage) error {
			acknowledged <- method
			return nil
		}
		done := make(chan string)
		go func() {
			res, err := tr.RoundTrip(t.Context(), req)
			done <- fmt.Sprintf("%s %v", res, err)
		}()
		if got := <-acknowledged; got != "notifications/subscriptions/acknowledged" {
			t.Errorf("got %s", got)
		}
		go f.handler.Shutdown(t.Context())
		if got := <-done; !strings.Contains(got, `"ended":true`) {
			t.Errorf("got %s, want the final result", got)
		}
	})
}

func TestR7_3_13_CloseEndsWhatIsInProgress(t *testing.T) {
	core := newTestCore()
	f := start(t, core, nil)
	tr := f.transport(nil)
	failed := make(chan error)
	go func() {
		_, err := tr.RoundTrip(t.Context(), modernRequest(t, "tools/call", `"name":"wait"`))
		failed <- err
	}()
	<-core.started
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, mcp.ErrClosed) || !mayHaveRun(t, err) {
		t.Errorf("got %v, want the end of the transport", err)
	}
	_, err := tr.RoundTrip(t.Context(), modernRequest(t, "tools/call", `"name":"echo"`))
	if !errors.Is(err, mcp.ErrClosed) || mayHaveRun(t, err) {
		t.Errorf("after the end: got %v", err)
	}
	if _, err := tr.OpenSession(t.Context(), nil); !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("a session after the end: got %v", err)
	}
}

// Whole clients, over HTTP, at every revision, and at the newest one when none is pinned.
func TestVER_Connect(t *testing.T) {
	s := mcp.NewServer("calc", "1.0.0", nil)
	type in struct {
		Region string `json:"region" jsonschema:"where"`
		N      int    `json:"n"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "double", Description: "Double"}, func(ctx context.Context, in in) (int, error) {
		mcp.Progress(ctx, 1, 2, "half")
		return 2 * in.N, nil
	})
	for _, version := range append([]string{""}, append(sessionRevisions, modern)...) {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := mcp.Connect(t.Context(), start(t, s, nil).transport(nil),
					&mcp.ClientOptions{Revision: version, Logger: discardLogger})
				if err != nil {
					t.Fatal(err)
				}
				if got := c.Revision(); got != version && (version != "" || got != modern) {
					t.Errorf("got revision %s", got)
				}
				steps := 0
				ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) { steps++ }})
				got, err := mcp.CallTool[int](ctx, c, "double", map[string]any{"region": "eu", "n": 21})
				if err != nil || got != 42 || steps != 1 {
					t.Errorf("got %v, %v and %d steps", got, err, steps)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute) // timers of the server, which is used again, belong to the bubble
			})
		})
	}
}

// A server written before the envelope is found out by its answer to the probe.
func TestVER_ConnectFallsBack(t *testing.T) {
	for n, test := range []struct {
		status int
		body   string
	}{
		{400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}`},
		{404, "not found"}, {405, ""}, {200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`}, {200,
			"<html>"},
	} {
		synctest.Test(t, func(t *testing.T) {
			probes := 0
			s := &fakeServer{post: func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				if bytes.Contains(body, []byte("server/discover")) {
					probes++
					writeJSON(w, test.status, test.body)
					return
				}
				writeJSON(w, 200, `{"jsonrpc":"2.0","id":`+idOf(r)+`,"result":{}}`)
			}}
			// What is found out is remembered, so each case has an address of its own.
			tr := newMemTransportAt(t, fmt.Sprintf("/fallback/%d", n), s.ServeHTTP, nil)
			c, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Logger: discardLogger})
			if err != nil {
				t.Fatalf("%d %s: %v", test.status, test.body, err)
			}
			if got := c.Revision(); got != november2025 {
				t.Errorf("%d: got %s", test.status, got)
			}
			if err := c.Ping(t.Context()); err != nil || probes != 1 {
				t.Errorf("%d: got %v after %d probes", test.status, err, probes)
			}
			c.Close()
		})
	}
}

// Status 401 and 403 do not decide the era of a server, whatever the body is.
func TestVER_ConnectDoesNotFallBackForWhoAsks(t *testing.T) {
	bodies := []string{
		"who are you?", `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no token"}}`,
		`{"jsonrpc":"2.0","error":{"code":-32601,"message":"no token"}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no token","data":{"supported":["2026-07-28","2025-11-25"]}}}`,
	}
	for n, body := range bodies {
		for _, status := range []int{401, 403} {
			requests := 0
			tr := newMemTransportAt(t, fmt.Sprintf("/who/%d", n), func(w http.ResponseWriter, r *http.Request) {
				requests++
				w.Header().Set("WWW-Authenticate", `Bearer realm="x"`)
				writeJSON(w, status, body)
			}, nil)
			_, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Logger: discardLogger})
			checkUnauthorized(t, err, status, body)
			if requests != 1 {
				t.Errorf("%d %s: %d requests, want 1", status, body, requests)
			}
		}
	}
}

// checkUnauthorized checks that an error has the status, what goes with it, and the server's own error if it sent one.
func checkUnauthorized(t *testing.T, err error, code int, body string) {
	t.Helper()
	var status *mcphttp.StatusError
	if !errors.As(err, &status) || status.HTTPStatus() != code ||
		status.Header.Get("WWW-Authenticate") != `Bearer realm="x"` || mayHaveRun(t, err) {
		t.Errorf("%d %s: got %v", code, body, err)
	}
	var said *mcp.Error
	if has := errors.As(err, &said); has != (body[0] == '{') || has &&
		(!said.Remote() || !strings.Contains(err.Error(), "no token")) {
		t.Errorf("%d %s: got %v, which holds the error %v", code, body, err, said)
	}
}

// The context of a client's call serves its HTTP request too. Closing what carries the call ends it all the same, and says
// so; what the caller does to its context is the caller's.
func TestR7_3_13_CloseEndsTheCallsOfAClient(t *testing.T) {
	for _, revision := range []string{modern, november2025} {
		synctest.Test(t, func(t *testing.T) {
			tr := start(t, slowServer(), nil).transport(nil)
			c, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Revision: revision, Logger: discardLogger})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.CallTool(t.Context(), "quick", nil); err != nil {
				t.Fatal(err)
			}
			gone := errors.New("gone")
			ctx, cancel := context.WithCancelCause(t.Context())
			errs := make(chan error)
			wait := func(ctx context.Context) {
				_, err := c.CallTool(ctx, "wait", nil)
				errs <- err
			}
			go wait(ctx)
			synctest.Wait()
			cancel(gone)
			if err := <-errs; !errors.Is(err, gone) || !mayHaveRun(t, err) {
				t.Errorf("%s: a cancelled call gives %v", revision, err)
			}
			go wait(t.Context())
			synctest.Wait()
			tr.Close()
			if err := <-errs; !errors.Is(err, mcp.ErrClosed) || !mayHaveRun(t, err) {
				t.Errorf("%s: a call whose transport is closed gives %v", revision, err)
			}
			c.Close()
			time.Sleep(time.Minute)
		})
	}
}

// slowServer has a tool that waits for the end of its call, and one that does not.
func slowServer() *mcp.Server {
	s := mcp.NewServer("slow", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	mcp.AddTool(s, &mcp.Tool{Name: "quick"}, func(context.Context, struct{}) (string, error) { return "", nil })
	return s
}

// A client that meets event streams loses at most the connection of the first one.
func TestTransport_ConnectionsOfStreamsAreUsedAgain(t *testing.T) {
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte("server/discover")) {
			writeJSON(w, 200, `{"jsonrpc":"2.0","id":`+idOf(r)+`,"result":{"resultType":"complete","supportedVersions":["`+modern+`"],"capabilities":{"tools":{}}}}`)
			return
		}
		writeEvents(w, `data: {"jsonrpc":"2.0","id":`+idOf(r)+`,"result":{"resultType":"complete","content":[]}}`)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(server.URL, nil), &mcp.ClientOptions{Logger: discardLogger})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const calls = 50
	for range calls {
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := c.CallTool(ctx, "x", nil); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	if n := connections.Load(); n > calls/2 { // the next call may come before the end of the stream
		t.Errorf("%d connections for %d calls", n, calls)
	}
}

// Every kind of POST returns the status of a server that requires authorization.
func TestAUTH_StatusOfEveryPOST(t *testing.T) {
	for _, code := range []int{401, 403} {
		const body = `{"jsonrpc":"2.0","error":{"code":-32001,"message":"no token"}}`
		refuse := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="x"`)
			writeJSON(w, code, body)
		}
		_, err := call(t, newMemTransport(t, refuse, nil))
		checkUnauthorized(t, err, code, body)
		_, err = openSession(t, newMemTransport(t, refuse, nil)).try(t.Context(), "initialize", `{}`)
		checkUnauthorized(t, err, code, body)

		c := initialized(t, newMemTransport(t, (&fakeServer{post: refuse}).ServeHTTP, nil), november2025)
		_, err = c.try(t.Context(), "ping", `{}`)
		checkUnauthorized(t, err, code, body)

		c = initialized(t, newMemTransport(t, (&fakeSSEServer{post: refuse}).ServeHTTP, nil), november2024)
		_, err = c.try(t.Context(), "ping", `{}`)
		checkUnauthorized(t, err, code, body)
		checkUnauthorized(t, c.Send(t.Context(), jsonrpc.NewNotification("notifications/x", nil)), code, body)
	}
}

// HTTP/2 carries the same: answers, streams, cancellation, sessions, and many calls on one connection.
func TestTransport_HTTP2(t *testing.T) {
	core := newTestCore()
	handler := mcphttp.NewHandler(core, &mcphttp.Options{Logger: discardLogger})
	var conns sync.Map
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("got %s", r.Proto)
		}
		conns.Store(r.RemoteAddr, true)
		handler.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	tr := mcphttp.NewTransport(server.URL, &mcphttp.TransportOptions{Client: server.Client(), Logger: discardLogger})
	defer tr.Close()

	if _, err := tr.RoundTrip(t.Context(), modernRequest(t, "tools/call", `"name":"echo"`)); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for i := range 64 {
		calls.Go(func() {
			tool := []string{"echo", "notify"}[i%2]
			if _, err := tr.RoundTrip(t.Context(), modernRequest(t, "tools/call", `"name":"`+tool+`"`)); err != nil {
				t.Errorf("%s: %v", tool, err)
			}
		})
	}
	calls.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-core.started
		cancel()
	}()
	if _, err := tr.RoundTrip(ctx, modernRequest(t, "tools/call", `"name":"notifywait"`)); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v", err)
	}
	if cause := <-core.causes; !errors.Is(cause, mcp.ErrDisconnected) {
		t.Errorf("the server saw %v", cause)
	}
	c := initialized(t, tr, november2025)
	c.mustCall("tools/call", `{"name":"notify"}`)
	c.Close()
	n := 0
	conns.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("it took %d connections", n)
	}
}

// The transport's own client keeps as many connections as there are parallel calls.
func TestTransport_ParallelCalls(t *testing.T) {
	var conns sync.Map
	tr := newServerTransport(t, func(w http.ResponseWriter, r *http.Request) {
		conns.Store(r.RemoteAddr, true)
		writeJSON(w, 200, result(r))
	}, nil)
	for range 5 {
		var calls sync.WaitGroup
		for range 64 {
			calls.Go(func() {
				if _, err := tr.RoundTrip(t.Context(), modernRequest(t, "tools/call", `"name":"echo"`)); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
	}
	n := 0
	conns.Range(func(any, any) bool { n++; return true })
	if n >= 2*64 { // one may be dialled that is not needed any more
		t.Errorf("5 times 64 calls took %d connections", n)
	}
}
