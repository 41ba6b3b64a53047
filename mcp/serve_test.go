package mcp_test

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A streamClient is the client's end of a stream that a handler serves.
type streamClient struct {
	*testing.T
	conn   mcp.Conn
	cancel context.CancelFunc // ends the server's context
	served chan error         // what Serve returned
}

var discardLog = slog.New(slog.DiscardHandler)

// serveClient connects a client to h. It must be called in a synctest bubble, which also detects leaked goroutines.
func serveClient(t *testing.T, h mcp.Handler) *streamClient {
	client, server := mcp.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	c := &streamClient{T: t, conn: client, cancel: cancel, served: make(chan error, 1)}
	go func() { c.served <- mcp.Serve(ctx, h, server, &mcp.ServeOptions{Logger: discardLog}) }()
	return c
}

func (c *streamClient) send(lines ...string) {
	c.Helper()
	for _, line := range lines {
		m, err := jsonrpc.Decode([]byte(line))
		if err != nil {
			c.Fatalf("%s: %v", line, err)
		}
		if err := c.conn.Write(c.Context(), m); err != nil {
			c.Fatal(err)
		}
	}
}

// recv waits until the server is idle and returns the messages it wrote.
func (c *streamClient) recv() (lines []string) {
	c.Helper()
	for {
		synctest.Wait()
		ctx, cancel := context.WithTimeout(c.Context(), time.Nanosecond)
		m, err := c.conn.Read(ctx)
		cancel()
		if err != nil {
			return lines
		}
		lines = append(lines, string(jsonrpc.Append(nil, m)))
	}
}

func (c *streamClient) want(want ...string) {
	c.Helper()
	if diff := cmp.Diff(want, c.recv()); diff != "" {
		c.Errorf("the server wrote (-want +got):\n%s", diff)
	}
}

// end closes the client's end and returns the error of Serve.
func (c *streamClient) end() error {
	c.conn.Close()
	defer c.cancel()
	return <-c.served
}

// modernLine returns a modern request. Each of the members of params ends with a comma.
func modernLine(id, method, members string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + members +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
}

func plainLine(id, method, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`
}

func noteLine(method, params string) string {
	return `{"jsonrpc":"2.0","method":"` + method + `","params":` + params + `}`
}

func resultLine(id, resultLine string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":` + resultLine + `}`
}

func failureLine(id string, code int, message string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, message)
}

func initializeLine(id, version string) string {
	return plainLine(id, "initialize", `{"protocolVersion":"`+version+`","capabilities":{"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}`)
}

const (
	initializedLine  = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	discoveredResult = `{"resultType":"complete","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},` +
		`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}`
	initializeResult = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"s","version":"1"}}`
)

// A methodTable is a handler with a function per method. server/discover has a default.
type methodTable map[string]func(ctx context.Context, req *mcp.Request) (mcp.Result, error)

func (m methodTable) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if f, ok := m[req.Method]; ok {
		return f(ctx, req)
	}
	if req.Method == "server/discover" {
		return mcp.RawResult(discoveredResult), nil
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "no method %s", req.Method)
}

// answerRevision returns the revision of the request.
func answerRevision(_ context.Context, req *mcp.Request) (mcp.Result, error) {
	return mcp.RawResult(`{"resultType":"complete","revision":"` + req.Revision() + `"}`), nil
}

// untilDone waits until its context is done and returns the cause as an error.
func untilDone(ctx context.Context, _ *mcp.Request) (mcp.Result, error) {
	<-ctx.Done()
	return nil, mcp.Errorf(1, "%v", context.Cause(ctx))
}

// listenUntilShutdown acknowledges, and returns a result when the server shuts down.
func listenUntilShutdown(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if err := req.Notify(ctx, "notifications/subscriptions/acknowledged", stdjson.RawMessage(`{}`)); err != nil {
		return nil, err
	}
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), mcp.ErrShutdown) {
		return nil, context.Cause(ctx)
	}
	return mcp.RawResult(`{"resultType":"complete"}`), nil
}

// Requirement: VER-08
func TestBothErasInterleaveOnOneStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serveClient(t, methodTable{"tools/list": answerRevision})
		c.send(modernLine(`1`, "tools/list", ""))
		c.want(resultLine(`1`, `{"resultType":"complete","revision":"2026-07-28"}`))
		c.send(initializeLine(`"1"`, "2025-06-18"))
		c.want(resultLine(`"1"`, initializeResult))
		c.send(initializedLine, plainLine(`2`, "tools/list", `{}`))
		c.want(resultLine(`2`, `{"revision":"2025-06-18"}`))
		c.send(modernLine(`"2"`, "tools/list", ""))
		c.want(resultLine(`"2"`, `{"resultType":"complete","revision":"2026-07-28"}`))
		c.send(plainLine(`3`, "tools/list", `{}`))
		c.want(resultLine(`3`, `{"revision":"2025-06-18"}`))
		if err := c.end(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

func TestRequestsBeforeInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serveClient(t, methodTable{})
		c.send(plainLine(`1`, "ping", `{}`))
		c.want(resultLine(`1`, `{}`)) // PING-01
		c.send(plainLine(`2`, "tools/list", `{}`))
		c.want(failureLine(`2`, -32602, `missing required field params._meta["io.modelcontextprotocol/protocolVersion"]: send it with every request, or send initialize first`))
		c.send(plainLine(`3`, "tools/list", `[]`))
		c.want(failureLine(`3`, -32602, `params must be an object`))
		c.send(`[`+plainLine(`4`, "ping", `{}`)+`]`, `[`+initializeLine(`5`, "2025-03-26")+`]`) // RPC-17
		c.want(`{"jsonrpc":"2.0","error":{"code":-32600,"message":"batches require an initialized session"}}`,
			`{"jsonrpc":"2.0","error":{"code":-32600,"message":"batches require an initialized session"}}`)
		c.send(initializedLine, noteLine("notifications/cancelled", `{"requestId":9}`), noteLine("notifications/cancelled", `[]`),
			noteLine("x/y", `{}`), resultLine(`9`, `{}`)) // RPC-14
		c.want()
		c.send(plainLine(`6`, "initialize", `{}`))
		c.want(failureLine(`6`, -32602, `params.protocolVersion: want a string`))
		c.end()
	})
}

func TestOrderOfChecks(t *testing.T) {
	const version, capabilities = `"io.modelcontextprotocol/protocolVersion":`, `"io.modelcontextprotocol/clientCapabilities":`
	supported := func(requested string) string {
		return `"error":{"code":-32022,"message":"unsupported protocol version","data":{"supported":` +
			`["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"` + requested + `"}}`
	}
	synctest.Test(t, func(t *testing.T) {
		c := serveClient(t, methodTable{})
		for _, tc := range []struct{ meta, want string }{
			{`{` + version + `"1900-01-01"}`, `"code":-32602,"message":"missing required field params._meta[\"io.modelcontextprotocol/clientCapabilities\"]"`},
			{`{` + version + `1}`, `"code":-32602`},
			{`[]`, `"code":-32602`},
			{`{` + version + `"1900-01-01",` + capabilities + `{}}`, supported("1900-01-01")},
			{`{` + version + `"2025-11-25",` + capabilities + `{}}`, `{"supported":["2026-07-28"],"requested":"2025-11-25"}`}, // VER-06
			{`{` + version + `"2026-07-28",` + capabilities + `{}}`, `"code":-32601`},
			{`{` + version + `"2026-07-28",` + capabilities + `{},"io.modelcontextprotocol/logLevel":"loud"}`, `"code":-32602`},
		} {
			c.send(plainLine(`1`, "no/such", `{"_meta":`+tc.meta+`}`))
			if got := c.recv(); len(got) != 1 || !strings.Contains(got[0], tc.want) {
				t.Errorf("%s: got %q, want %s", tc.meta, got, tc.want)
			}
		}
		for _, method := range []string{"initialize", "ping"} { // T-14, PING-04
			c.send(modernLine(`2`, method, ""))
			c.want(failureLine(`2`, -32601, "no method "+method))
		}
		c.end()
	})
}

func TestSecondInitializeBeginsAnotherSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serveClient(t, methodTable{})
		c.send(initializeLine(`1`, "2025-06-18"), initializeLine(`2`, "2025-06-18"), plainLine(`3`, "tools/list", `{}`)) // without waiting
		got := c.recv()
		for _, want := range []string{resultLine(`1`, initializeResult), resultLine(`2`, initializeResult), failureLine(`3`, -32601, "no method tools/list")} {
			if !strings.Contains(strings.Join(got, "\n"), want) {
				t.Errorf("got %q, want %s", got, want)
			}
		}
		c.end()
	})
}

func TestInitializeMayBeRetriedAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		c := serveClient(t, methodTable{"server/discover": func(context.Context, *mcp.Request) (mcp.Result, error) {
			if tries++; tries == 1 {
				return nil, mcp.Errorf(7, "not yet")
			}
			return mcp.RawResult(discoveredResult), nil
		}})
		c.send(initializeLine(`1`, "2025-06-18"))
		c.want(failureLine(`1`, 7, "not yet"))
		c.send(initializeLine(`2`, "2025-06-18"))
		c.want(resultLine(`2`, initializeResult))
		c.end()
	})
}

// Requirement: STDIO-13
func TestNothingIsSentForACancelledRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause, notifyErr := make(chan error, 3), make(chan error, 3)
		c := serveClient(t, methodTable{"tools/call": func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			notifyErr <- req.Notify(context.Background(), "notifications/message", stdjson.RawMessage(`{}`))
			return mcp.RawResult(`{}`), nil // T-59: even if the work was done
		}})
		c.send(modernLine(`1`, "tools/call", ""), noteLine("notifications/cancelled", `{"requestId":"1"}`)) // another id, RPC-06
		c.want()
		c.send(noteLine("notifications/cancelled", `{"requestId":1,"reason":"enough"}`))
		c.want()
		if err := <-cause; !errors.Is(err, mcp.ErrCancelled) || !strings.Contains(err.Error(), "enough") {
			t.Errorf("got cause %v, want ErrCancelled", err)
		}
		if err := <-notifyErr; !errors.Is(err, mcp.ErrCancelled) {
			t.Errorf("Notify after the cancellation: got %v, want ErrCancelled", err)
		}
		c.send(modernLine(`2`, "tools/call", ""), noteLine("notifications/cancelled", `{"requestId":2}`))
		c.want()
		if err := <-cause; err != mcp.ErrCancelled {
			t.Errorf("got cause %v, want ErrCancelled", err)
		}
		c.send(initializeLine(`3`, "2025-06-18"))
		c.want(resultLine(`3`, initializeResult))
		c.send(plainLine(`4`, "tools/call", `{"name":"t"}`), noteLine("notifications/cancelled", `{"requestId":4,"reason":"enough"}`))
		c.want()
		if err := <-cause; !errors.Is(err, mcp.ErrCancelled) || !strings.Contains(err.Error(), "enough") {
			t.Errorf("session: got cause %v, want ErrCancelled with the reason", err)
		}
		c.end()
	})
}

func TestCancelUnblocksAHandlerWhoseNotificationsAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		notifyForever := func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			for {
				if err := req.Notify(ctx, "notifications/message", stdjson.RawMessage(`{}`)); err != nil {
					return nil, err
				}
				sent.Add(1)
			}
		}
		c := serveClient(t, methodTable{"tools/call": notifyForever})
		c.send(modernLine(`1`, "tools/call", ""), modernLine(`2`, "tools/call", ""), modernLine(`3`, "tools/call", ""))
		synctest.Wait()
		before := sent.Load()
		c.send(plainLine(`4`, "ping", `{}`), modernLine(`3`, "tools/call", "")) // responses wait for the reader, requests are still read
		for id := range 3 {
			c.send(noteLine("notifications/cancelled", fmt.Sprintf(`{"requestId":%d}`, id+1)))
		}
		synctest.Wait()
		got := c.recv()
		if n := len(got) - 2; sent.Load() != before && n > int(before)+1 {
			t.Errorf("got %d notifications after the cancellation, want at most 1", n-int(before))
		}
		if last := strings.Join(got[len(got)-2:], ""); !strings.Contains(last, `"id":4`) || !strings.Contains(last, "in progress") {
			t.Errorf("got last messages %s, want the ping result and the error", last)
		}
		c.end()
	})
}

// Requirement: CAN-12
func TestEndOfASubscriptionOnAStream(t *testing.T) {
	ack := noteLine("notifications/subscriptions/acknowledged", `{}`)
	ended := resultLine(`"s"`, `{"resultType":"complete"}`)
	again := noteLine("notifications/cancelled", `{"requestId":"s"}`)
	synctest.Test(t, func(t *testing.T) { // the server ends it
		c := serveClient(t, methodTable{"subscriptions/listen": listenUntilShutdown})
		c.send(modernLine(`"s"`, "subscriptions/listen", ""))
		c.want(ack)
		start := time.Now()
		c.cancel()
		if err := <-c.served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if d := time.Since(start); d > time.Millisecond {
			t.Errorf("ending an idle stream took %v, want at most 1ms", d)
		}
		c.want(ended, again)
	})
	synctest.Test(t, func(t *testing.T) { // the client cancels it: no result, T-59
		c := serveClient(t, methodTable{"subscriptions/listen": listenUntilShutdown})
		c.send(modernLine(`"s"`, "subscriptions/listen", ""), noteLine("notifications/cancelled", `{"requestId":"s"}`))
		if got := c.recv(); len(got) > 0 && (got[0] != ack || len(got) > 1) {
			t.Errorf("got %q, want at most the acknowledgement", got)
		}
		c.cancel()
		<-c.served
		c.want()
	})
	synctest.Test(t, func(t *testing.T) { // it is refused
		c := serveClient(t, methodTable{})
		c.send(modernLine(`"s"`, "subscriptions/listen", ""))
		c.want(failureLine(`"s"`, -32601, "no method subscriptions/listen"))
		c.end()
	})
}

// Requirement: RPC-05
func TestDuplicateIDsOfBothEras(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serveClient(t, methodTable{"tools/call": untilDone})
		c.send(initializeLine(`0`, "2025-06-18"))
		c.want(resultLine(`0`, initializeResult))
		c.send(modernLine(`1`, "tools/call", ""), plainLine(`1`, "tools/call", `{"name":"t"}`), modernLine(`1`, "tools/call", ""))
		c.want(failureLine(`1`, -32600, "a request with this id is in progress"), failureLine(`1`, -32600, "a request with this id is in progress"))
		c.send(noteLine("notifications/cancelled", `{"requestId":1}`), modernLine(`1`, "tools/call", ""), noteLine("notifications/cancelled", `{"requestId":1}`))
		c.want()
		c.end()
	})
}

func TestRequestsInFlightAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serveClient(t, methodTable{"tools/call": untilDone, "tools/list": answerRevision})
		for i := range 256 {
			c.send(modernLine(fmt.Sprint(i), "tools/call", ""))
		}
		c.send(modernLine(`256`, "tools/list", ""))
		c.want(`{"jsonrpc":"2.0","id":256,"error":{"code":429,"message":"too many requests in progress","data":{"retryAfterMs":1000}}}`)
		c.send(noteLine("notifications/cancelled", `{"requestId":7}`))
		c.want()
		c.send(modernLine(`256`, "tools/list", ""))
		c.want(resultLine(`256`, `{"resultType":"complete","revision":"2026-07-28"}`))
		c.cancel()
		go c.recv()
		<-c.served
	})
}

func TestNotificationsBeforeAResultArriveInOrder(t *testing.T) {
	const burst = 3000
	synctest.Test(t, func(t *testing.T) {
		c := serveClient(t, methodTable{"tools/call": func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			for i := range burst {
				if err := req.Notify(ctx, "notifications/progress", fmt.Appendf(nil, `{"progress":%d}`, i)); err != nil {
					return nil, err
				}
			}
			return mcp.RawResult(`{}`), nil
		}})
		c.send(initializeLine(`0`, "2025-06-18"))
		c.want(resultLine(`0`, initializeResult))
		for _, call := range []struct{ request, result string }{
			{modernLine(`1`, "tools/call", ""), `{"resultType":"complete"}`},
			{plainLine(`1`, "tools/call", `{"name":"t"}`), `{}`},
		} {
			c.send(call.request)
			for i := range burst {
				m, err := c.conn.Read(t.Context())
				if err != nil || string(m.Params) != fmt.Sprintf(`{"progress":%d}`, i) {
					t.Fatalf("notification %d: %+v, %v", i, m, err)
				}
			}
			c.want(resultLine(`1`, call.result))
		}
		c.end()
	})
}

func TestRequestsInProgressAreAnsweredWhenInputEnds(t *testing.T) {
	slow := func(d time.Duration) func(context.Context, *mcp.Request) (mcp.Result, error) {
		return func(ctx context.Context, _ *mcp.Request) (mcp.Result, error) {
			select {
			case <-time.After(d):
				return mcp.RawResult(`{"done":true}`), nil
			case <-ctx.Done():
				return nil, mcp.Errorf(1, "%v", context.Cause(ctx))
			}
		}
	}
	stuck := func(context.Context, *mcp.Request) (mcp.Result, error) {
		time.Sleep(time.Minute)
		return mcp.RawResult(`{}`), nil
	}
	for _, tc := range []struct {
		name  string
		call  func(context.Context, *mcp.Request) (mcp.Result, error)
		want  string
		after time.Duration
	}{
		{"in time", slow(2 * time.Second), resultLine(`1`, `{"resultType":"complete","done":true}`), 2 * time.Second},
		{"too slow", slow(4 * time.Second), failureLine(`1`, 1, mcp.ErrShutdown.Error()), 3 * time.Second},
		{"ignores its context", stuck, "", 3500 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				in, w := io.Pipe()
				done := make(chan error, 1)
				go func() {
					done <- mcp.Serve(t.Context(), methodTable{"tools/call": tc.call}, mcp.NewStreamConn(in, &out, nil), &mcp.ServeOptions{Logger: discardLog})
				}()
				io.WriteString(w, modernLine(`1`, "tools/call", "")+"\n")
				start := time.Now()
				w.Close()
				if err := <-done; err != nil {
					t.Errorf("Serve: %v", err)
				}
				if got := time.Since(start); got != tc.after {
					t.Errorf("Serve returned after %v, want %v", got, tc.after)
				}
				if got := strings.TrimSuffix(out.String(), "\n"); got != tc.want {
					t.Errorf("wrote %s, want %s", got, tc.want)
				}
				time.Sleep(time.Hour) // let the handler that ignores its context return
			})
		})
	}
}

func TestServeDrainsWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serveClient(t, methodTable{"tools/call": func(ctx context.Context, _ *mcp.Request) (mcp.Result, error) {
			time.Sleep(time.Second)
			return mcp.RawResult(`{}`), ctx.Err()
		}})
		c.send(modernLine(`1`, "tools/call", ""))
		synctest.Wait()
		c.cancel()
		if err := <-c.served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		c.want(resultLine(`1`, `{"resultType":"complete"}`))
		if _, err := c.conn.Read(t.Context()); err != io.EOF {
			t.Errorf("Read: got %v, want io.EOF", err)
		}
	})
}

func TestWriteErrorEndsServeAndItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		h := methodTable{
			"tools/call": func(ctx context.Context, _ *mcp.Request) (mcp.Result, error) {
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return nil, ctx.Err()
			},
			"tools/list": answerRevision,
		}
		in, w := io.Pipe()
		done := make(chan error, 1)
		conn := mcp.NewStreamConn(in, failingWriter{}, nil)
		go func() { done <- mcp.Serve(t.Context(), h, conn, &mcp.ServeOptions{Logger: discardLog}) }()
		io.WriteString(w, modernLine(`1`, "tools/call", "")+"\n"+modernLine(`2`, "tools/list", "")+"\n")
		if err := <-done; !errors.Is(err, mcp.ErrDisconnected) || !strings.Contains(err.Error(), "wire cut") {
			t.Errorf("Serve: %v", err)
		}
		if err := <-cause; !errors.Is(err, mcp.ErrDisconnected) {
			t.Errorf("got cause %v, want ErrDisconnected", err)
		}
	})
}

func TestPanicFailsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serveClient(t, methodTable{"tools/call": func(context.Context, *mcp.Request) (mcp.Result, error) { panic("oh") }})
		c.send(modernLine(`1`, "tools/call", ""))
		if got := c.recv(); len(got) != 1 || !strings.Contains(got[0], `"code":-32603,"message":"internal error"`) || strings.Contains(got[0], "oh") {
			t.Errorf("wrote %q", got)
		}
		c.send(plainLine(`2`, "ping", `{}`))
		c.want(resultLine(`2`, `{}`))
		c.end()
	})
}

func TestRequestsHaveThePrincipalOfTheirStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := mcp.Pipe()
		who := func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
			return mcp.RawResult(`{"who":"` + req.Principal.Subject + `"}`), nil
		}
		c := &streamClient{T: t, conn: client, served: make(chan error, 1), cancel: func() {}}
		ctx := mcp.WithPrincipal(t.Context(), &mcp.Principal{Subject: "ada"})
		go func() { c.served <- mcp.Serve(ctx, methodTable{"tools/list": who}, server, nil) }()
		c.send(modernLine(`1`, "tools/list", ""))
		c.want(resultLine(`1`, `{"resultType":"complete","who":"ada"}`))
		c.send(initializeLine(`2`, "2025-06-18"))
		c.want(resultLine(`2`, initializeResult))
		c.send(plainLine(`3`, "tools/list", `{}`))
		c.want(resultLine(`3`, `{"who":"ada"}`))
		c.end()
	})
}

func TestSessionOnAStream(t *testing.T) {
	changed := make(chan string)
	h := methodTable{
		"tools/call": func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if !bytes.Contains(req.Params, []byte(`"inputResponses"`)) {
				return mcp.RawResult(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"?","requestedSchema":{}}}}}`), nil
			}
			return mcp.RawResult(`{"resultType":"complete","level":"` + string(req.LogLevel()) + `"}`), nil
		},
		"subscriptions/listen": func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if bytes.Contains(req.Params, []byte("forbidden")) {
				return nil, mcp.Errorf(mcp.CodeInvalidParams, "not this one")
			}
			req.Notify(ctx, "notifications/subscriptions/acknowledged", stdjson.RawMessage(`{}`))
			for {
				select {
				case uri := <-changed:
					req.Notify(ctx, "notifications/resources/updated", stdjson.RawMessage(`{"uri":"`+uri+`","_meta":{"io.modelcontextprotocol/subscriptionId":"x"}}`))
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			}
		},
	}
	synctest.Test(t, func(t *testing.T) {
		changed = make(chan string)
		c := serveClient(t, h)
		c.send(initializeLine(`0`, "2025-06-18"))
		c.want(resultLine(`0`, initializeResult))
		c.send(initializedLine, plainLine(`1`, "resources/subscribe", `{"uri":"x:1"}`))
		c.want(resultLine(`1`, `{}`))
		changed <- "x:1"
		c.want(noteLine("notifications/resources/updated", `{"uri":"x:1"}`))
		c.send(plainLine(`2`, "resources/subscribe", `{"uri":"forbidden"}`))
		c.want(failureLine(`2`, -32602, "not this one"))
		c.send(plainLine(`3`, "logging/setLevel", `{"level":"error"}`))
		c.want(resultLine(`3`, `{}`))

		c.send(plainLine(`4`, "tools/call", `{"name":"t"}`))
		synctest.Wait()
		q, err := c.conn.Read(t.Context())
		if err != nil || q.Method != "elicitation/create" {
			t.Fatalf("asked %+v, %v", q, err)
		}
		c.send(resultLine(q.ID.String(), `{"action":"decline"}`))
		c.want(resultLine(`4`, `{"level":"error"}`))

		c.send(plainLine(`5`, "tools/call", `{"name":"t"}`))
		if got := c.recv(); len(got) != 1 {
			t.Fatalf("wrote %q", got)
		}
		start := time.Now()
		c.cancel()
		<-c.served
		c.want(failureLine(`5`, -32600, "the session ended before the response to elicitation/create"))
		if d := time.Since(start); d > time.Millisecond {
			t.Errorf("Serve returned after %v, want it not to wait for the client", d)
		}
	})
}

// Requirement: RPC-15
func TestBatchOnAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serveClient(t, methodTable{"tools/list": answerRevision})
		c.send(initializeLine(`0`, "2025-03-26"))
		c.recv()
		c.send(`[`+plainLine(`1`, "tools/list", `{}`)+`,`+plainLine(`2`, "ping", `{}`)+`]`, `[`+initializedLine+`]`)
		c.want(`[` + resultLine(`2`, `{}`) + `,` + resultLine(`1`, `{"revision":"2025-03-26"}`) + `]`)
		c.end()
	})
}

func TestEachRefusedMessageIsAnsweredWithOneError(t *testing.T) {
	input := "nonsense\n" + `{"jsonrpc":"2.0","id":1,"method":1}` + "\n" + `{"jsonrpc":"2.0","method":""}` + "\n" +
		strings.Repeat(" ", 600) + "\n" + plainLine(`2`, "ping", `{}`) + "\n"
	var out bytes.Buffer
	err := mcp.Serve(t.Context(), methodTable{}, mcp.NewStreamConn(strings.NewReader(input), &out, &mcp.StreamConnOptions{MaxMessage: 500}), &mcp.ServeOptions{Logger: discardLog})
	if err != nil {
		t.Errorf("Serve: %v", err)
	}
	want := []string{`"error":{"code":-32700`, `"id":1,"error":{"code":-32600`, `"code":-32600,"message":"invalid request: longer than 500 bytes"`, `"id":2,"result":{}`}
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(got) != len(want) {
		t.Fatalf("wrote %q", got)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("response %d: got %s, want %s", i, got[i], want[i])
		}
	}
}

// A whole server: elicitation, progress, log messages and list changes.
func TestServerInASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLog})
		mcp.AddTool(server, &mcp.Tool{Name: "deploy"}, func(ctx context.Context, _ struct{}) (string, error) {
			mcp.Progress(ctx, 1, 2, "asking")
			sure, err := mcp.Ask[bool](ctx, "sure", "Sure?", nil)
			if err != nil || !sure {
				return "", err
			}
			mcp.Logger(ctx).Info("deployed")
			return "done", nil
		})
		client, end := mcp.Pipe()
		c := &streamClient{T: t, conn: client, served: make(chan error, 1), cancel: func() {}}
		go func() { c.served <- server.Run(t.Context(), end) }()
		c.send(initializeLine(`0`, "2025-06-18"), initializedLine)
		c.recv()

		c.send(plainLine(`1`, "tools/call", `{"name":"deploy","_meta":{"progressToken":"p"}}`))
		synctest.Wait()
		if m, err := client.Read(t.Context()); err != nil || m.Method != "notifications/progress" {
			t.Fatalf("read %+v, %v", m, err)
		}
		q, err := client.Read(t.Context())
		if err != nil || q.Method != "elicitation/create" {
			t.Fatalf("read %+v, %v", q, err)
		}
		c.send(resultLine(q.ID.String(), `{"action":"accept","content":{"value":true}}`))
		c.want(noteLine("notifications/message", `{"level":"info","data":"deployed"}`), resultLine(`1`, `{"content":[{"type":"text","text":"done"}]}`))

		mcp.AddTool(server, &mcp.Tool{Name: "other"}, func(context.Context, struct{}) (string, error) { return "", nil })
		time.Sleep(time.Second) // list changes are sent together
		c.want(noteLine("notifications/tools/list_changed", `{}`))
		if err := c.end(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
