package mcphttp_test

import (
	"bytes"
	"cmp"
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
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

const testEnvelope = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},` +
	`"io.modelcontextprotocol/logLevel":"debug"}`

// modernRequest returns a request with testEnvelope. The members are those of params before it.
func modernRequest(t testing.TB, method, members string) *mcp.Request {
	t.Helper()
	if members != "" {
		members += ","
	}
	req, err := mcp.NewRequest(&jsonrpc.Message{Method: method, Params: json.RawMessage("{" + members + testEnvelope + "}")})
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// transport returns a transport to the server of the fixture, which is closed when the test ends.
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

// newServerTransport serves the handler and returns a transport to it.
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

// A notificationRecorder records notifications.
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

// Requirement: MHTTP-01, HTTP-15
func TestModernCallsAcceptJSONAndEventStreams(t *testing.T) {
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
			{"resource", "resources/read", `"uri":"file:///ä b"`, `"complete"`, 0},
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
				t.Errorf("%s: got %s, want %s", test.name, raw, test.want)
			}
			if len(got.all) != test.notes || test.notes == 2 && (!strings.Contains(got.all[0], `"data":1`) ||
				!strings.Contains(got.all[1], `"data":2`)) {
				t.Errorf("%s: got notifications %q", test.name, got.all)
			}
		}
	})
}

// Requirement: MHTTP-23
func TestErrorsOfTheServerAreReturned(t *testing.T) {
	f := start(t, newTestCore(), nil)
	tr := f.transport(nil)
	for members, code := range map[string]int{
		`"name":"error"`:   mcp.CodeInvalidParams,
		`"name":"missing"`: driver.CodeMissingRequiredClientCapability, // with status 400
		`"name":"busy"`:    mcp.CodeBusy,                               // with status 503
		`"name":"late"`:    driver.CodeMissingRequiredClientCapability, // as an event
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
		t.Errorf("unknown method: got %v, want the server's error", err)
	}
}

// Requirement: MHTTP-09
func TestCancellationClosesTheStream(t *testing.T) {
	core := newTestCore()
	f := start(t, core, nil)
	tr := f.transport(nil)
	for _, tool := range []string{"wait", "notifywait"} {
		why := errors.New("cause")
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
			t.Errorf("%s: cause at the server: got %v, want ErrDisconnected", tool, cause)
		}
	}
}

// Requirement: SUB-10
func TestListenReturnsTheResultOfTheServersShutdown(t *testing.T) {
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
			t.Errorf("got %s, want the acknowledgement", got)
		}
		go f.handler.Shutdown(t.Context())
		if got := <-done; !strings.Contains(got, `"ended":true`) {
			t.Errorf("got %s, want the final result", got)
		}
	})
}

func TestTransport_CloseEndsRequestsInProgress(t *testing.T) {
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
		t.Errorf("got %v, want ErrClosed and MayHaveRun", err)
	}
	_, err := tr.RoundTrip(t.Context(), modernRequest(t, "tools/call", `"name":"echo"`))
	if !errors.Is(err, mcp.ErrClosed) || mayHaveRun(t, err) {
		t.Errorf("request after Close: got %v, want ErrClosed", err)
	}
	if _, err := tr.OpenSession(t.Context(), nil); !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("OpenSession after Close: got %v, want ErrClosed", err)
	}
}

// Without ClientOptions.Revision the client uses the newest revision.
func TestVER_ClientConnectsAtEveryRevision(t *testing.T) {
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
					t.Errorf("got revision %s, want %s", got, cmp.Or(version, modern))
				}
				steps := 0
				ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) { steps++ }})
				got, err := mcp.CallTool[int](ctx, c, "double", map[string]any{"region": "eu", "n": 21})
				if err != nil || got != 42 || steps != 1 {
					t.Errorf("got %v, %v and %d notifications, want 42 and 1", got, err, steps)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute) // the timers of the server end in the bubble
			})
		})
	}
}

// fallbackServers counts the servers of TestVER_ConnectFallsBackToASession.
var fallbackServers atomic.Int64

// An older server is recognized by its response to server/discover.
func TestVER_ConnectFallsBackToASession(t *testing.T) {
	for _, test := range []struct {
		status int
		body   string
	}{
		{400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}`},
		{404, "not found"},
		{405, ""},
		{200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`},
		{200, "<html>"},
		{403, ""},
		{429, ""},
		{500, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}`},
		{500, "unknown method"},
		{501, ""},
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
			// The era of a server is cached by URL, so each case has another one.
			tr := newMemTransportAt(t, fmt.Sprintf("/fallback/%d", fallbackServers.Add(1)), s.ServeHTTP, nil)
			c, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Logger: discardLogger})
			if err != nil {
				t.Fatalf("%d %s: %v", test.status, test.body, err)
			}
			if got := c.Revision(); got != november2025 {
				t.Errorf("%d: got revision %s, want %s", test.status, got, november2025)
			}
			if err := c.Ping(t.Context()); err != nil || probes != 1 {
				t.Errorf("%d: ping: got %v after %d probes, want no error and 1 probe", test.status, err, probes)
			}
			c.Close()
		})
	}
}

// Status 401 does not decide the era of a server, whatever the body is. After 403, the client tries
// a session, since some servers answer unknown methods with 403.
func TestVER_ConnectDoesNotFallBackIfUnauthorized(t *testing.T) {
	bodies := []string{
		"unauthorized", `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no token"}}`,
		`{"jsonrpc":"2.0","error":{"code":-32601,"message":"no token"}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no token",` +
			`"data":{"supported":["2026-07-28","2025-11-25"]}}}`,
	}
	for n, body := range bodies {
		for _, status := range []int{401, 403} {
			requests := 0
			tr := newMemTransportAt(t, fmt.Sprintf("/unauthorized/%d", n),
				func(w http.ResponseWriter, r *http.Request) {
					requests++
					w.Header().Set("WWW-Authenticate", `Bearer realm="x"`)
					writeJSON(w, status, body)
				}, nil)
			_, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Logger: discardLogger})
			checkUnauthorized(t, err, status, body)
			if want := map[int]int{401: 1, 403: 2}[status]; requests != want {
				t.Errorf("%d %s: %d requests, want %d", status, body, requests, want)
			}
		}
	}
}

// checkUnauthorized checks that an error has the status, its header, and the JSON-RPC error if the body
// is one.
func checkUnauthorized(t *testing.T, err error, code int, body string) {
	t.Helper()
	var status *mcphttp.StatusError
	if !errors.As(err, &status) || status.HTTPStatus() != code ||
		status.Header.Get("WWW-Authenticate") != `Bearer realm="x"` || mayHaveRun(t, err) {
		t.Errorf("%d %s: got %v, want the status and its header", code, body, err)
	}
	var remote *mcp.Error
	if has := errors.As(err, &remote); has != (body[0] == '{') || has &&
		(!remote.Remote() || !strings.Contains(err.Error(), "no token")) {
		t.Errorf("%d %s: got %v with %v, want the error in the body", code, body, err, remote)
	}
}

// The error of a call has the cause of its context, or ErrClosed if the transport was closed.
func TestTransport_CloseEndsTheCallsOfAClient(t *testing.T) {
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
			why := errors.New("cause")
			ctx, cancel := context.WithCancelCause(t.Context())
			errs := make(chan error)
			wait := func(ctx context.Context) {
				_, err := c.CallTool(ctx, "wait", nil)
				errs <- err
			}
			go wait(ctx)
			synctest.Wait()
			cancel(why)
			if err := <-errs; !errors.Is(err, why) || !mayHaveRun(t, err) {
				t.Errorf("%s: cancelled call: got %v, want its cause", revision, err)
			}
			go wait(t.Context())
			synctest.Wait()
			tr.Close()
			if err := <-errs; !errors.Is(err, mcp.ErrClosed) || !mayHaveRun(t, err) {
				t.Errorf("%s: call of a closed transport: got %v, want ErrClosed", revision, err)
			}
			c.Close()
			time.Sleep(time.Minute)
		})
	}
}

// slowServer returns a server with a tool that waits for the end of its context, and one that returns.
func slowServer() *mcp.Server {
	s := mcp.NewServer("slow", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	mcp.AddTool(s, &mcp.Tool{Name: "quick"}, func(context.Context, struct{}) (string, error) { return "", nil })
	return s
}

func TestTransport_ReusesConnectionsOfEventStreams(t *testing.T) {
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte("server/discover")) {
			writeJSON(w, 200, `{"jsonrpc":"2.0","id":`+idOf(r)+`,"result":{"resultType":"complete",`+
				`"supportedVersions":["`+modern+`"],"capabilities":{"tools":{}}}}`)
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
	if n := connections.Load(); n > calls/2 { // the next call may start before the end of the stream
		t.Errorf("%d calls took %d connections, want at most %d", calls, n, calls/2)
	}
}

// Every kind of POST returns the status of a server that requires authorization.
func TestAUTH_EveryPOSTReturnsTheStatus(t *testing.T) {
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
		checkUnauthorized(t, c.Send(t.Context(), &jsonrpc.Message{Method: "notifications/x"}), code, body)
	}
}

// Responses, streams, cancellation, sessions and concurrent calls use one HTTP/2 connection.
func TestTransport_UsesHTTP2(t *testing.T) {
	core := newTestCore()
	handler := mcphttp.NewHandler(core, &mcphttp.Options{Logger: discardLogger})
	var conns sync.Map
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("got %s, want HTTP/2", r.Proto)
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
	_, err := tr.RoundTrip(ctx, modernRequest(t, "tools/call", `"name":"notifywait"`))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled call: got %v, want Canceled", err)
	}
	if cause := <-core.causes; !errors.Is(cause, mcp.ErrDisconnected) {
		t.Errorf("cause at the server: got %v, want ErrDisconnected", cause)
	}
	c := initialized(t, tr, november2025)
	c.mustCall("tools/call", `{"name":"notify"}`)
	c.Close()
	n := 0
	conns.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("got %d connections, want 1", n)
	}
}

// The default http.Client keeps as many idle connections as there were concurrent calls.
func TestTransport_ReusesConnectionsOfConcurrentCalls(t *testing.T) {
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
	if n >= 2*64 { // a connection may be dialled that is no longer needed
		t.Errorf("5 times 64 calls took %d connections, want fewer than %d", n, 2*64)
	}
}
