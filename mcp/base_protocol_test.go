package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A recordingWriter copies to a buffer what it writes to a connection.
type recordingWriter struct {
	io.WriteCloser
	copied *logBuffer
}

func (w recordingWriter) Write(p []byte) (int, error) {
	w.copied.Write(p)
	return w.WriteCloser.Write(p)
}

// messages decodes the lines of a recording. It fails the test for lines that are not messages.
func messages(t *testing.T, recording *logBuffer) (all []*jsonrpc.Message) {
	t.Helper()
	for line := range strings.Lines(recording.String()) {
		m, err := jsonrpc.Decode([]byte(line))
		if err != nil || !strings.HasSuffix(line, "\n") || !strings.Contains(line, `"jsonrpc":"2.0"`) {
			t.Fatalf("got line %q, %v, want one message", line, err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &members); err != nil {
			t.Fatal(err)
		}
		if _, hasID := members["id"]; hasID == strings.HasPrefix(m.Method, "notifications/") {
			t.Errorf("got %s, want an id of all messages but notifications", line)
		}
		all = append(all, m)
	}
	return all
}

// A traffic is the record of a connection, with the messages of both sides.
type traffic struct {
	revision       string
	client, server []*jsonrpc.Message
}

func (r *traffic) modern() bool { return r.revision == mcptest.Modern }

// requestIDs returns the ids of the requests in messages by method. It fails the test if an id is
// used twice.
func requestIDs(t *testing.T, messages []*jsonrpc.Message) map[string][]jsonrpc.ID {
	t.Helper()
	ids, used := map[string][]jsonrpc.ID{}, map[jsonrpc.ID]bool{}
	for _, m := range messages {
		if m.Kind() != jsonrpc.Request {
			continue
		}
		if used[m.ID] {
			t.Errorf("id %v is used twice", m.ID)
		}
		used[m.ID] = true
		ids[m.Method] = append(ids[m.Method], m.ID)
	}
	return ids
}

// meta returns a member of _meta in params.
func meta(t *testing.T, params json.RawMessage, key string) string {
	t.Helper()
	return memberOf(t, json.RawMessage(memberOf(t, params, "_meta")), key)
}

// recordTraffic runs a client and a server of the revision over a unix socket: calls, input
// requests, lists, progress, two
// subscriptions, a cancelled call and ping.
func recordTraffic(t *testing.T, revision string) *traffic {
	dir, err := os.MkdirTemp("", "mcp") // TempDir's path may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var fromClient, fromServer logBuffer
	s := calculator(t)
	addTool(s, "count", func(ctx context.Context) (string, error) {
		for i := range 3 {
			mcp.Progress(ctx, float64(i+1), 3, "counting")
		}
		return "done", nil
	})
	started := make(chan struct{})
	addTool(s, "wait", func(ctx context.Context) (string, error) {
		close(started)
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	var served sync.WaitGroup
	served.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		err = mcp.Serve(t.Context(), s, mcp.NewStreamConn(conn, recordingWriter{conn, &fromServer}, nil), nil)
		if err != nil && !errors.Is(err, mcp.ErrDisconnected) {
			t.Errorf("Serve: %v", err)
		}
	})
	defer served.Wait()
	conn, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	transport := mcp.NewConnTransport(mcp.NewStreamConn(conn, recordingWriter{conn, &fromClient}, nil))
	var asked []string
	opts := acceptingOptions(&asked, &sync.Mutex{})
	opts.Revision, opts.Logger = revision, discardLogger()
	c, err := mcp.Connect(t.Context(), transport, opts)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]object{"add": {"a": 1, "b": 2}, "count": nil, "think": nil, "where": nil}
	if revision >= "2025-06-18" {
		calls["ask"] = nil
	}
	for tool, args := range calls {
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) {}})
		if r, err := c.CallTool(ctx, tool, args); err != nil || r.IsError {
			t.Errorf("%s: got %+v, %v", tool, r, err)
		}
	}
	collect(t, c.Tools(t.Context()), func(v *mcp.Tool) string { return v.Name })
	listenTwice(t, s, c)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	if _, err := c.CallTool(ctx, "wait", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: got %v, want the end of its context", err)
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	served.Wait()
	return &traffic{revision, messages(t, &fromClient), messages(t, &fromServer)}
}

// listenTwice has two subscriptions at the same time. Each must receive its own changes only.
func listenTwice(t *testing.T, s *mcp.Server, c *mcp.Client) {
	t.Helper()
	for tools, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if tools.Kind == mcp.EventToolsChanged {
			break
		}
		filter := mcp.SubscriptionFilter{ResourceSubscriptions: []string{"mem://one"}}
		for resource, err := range c.Listen(t.Context(), filter) {
			if err != nil {
				t.Fatal(err)
			}
			if resource.Kind == mcp.EventResourceUpdated {
				break
			}
			if resource.Kind != mcp.EventListening {
				t.Errorf("got event %v of a subscription to a resource", resource.Kind)
			}
			addTool(s, "new", func(context.Context) (string, error) { return "", nil })
			s.ResourceUpdated("mem://one")
		}
		if tools.Kind != mcp.EventListening {
			t.Errorf("got event %v of a subscription to tools", tools.Kind)
		}
	}
}

// The traffic of each revision over a transport that is not part of the SDK consists of valid lines
// in both directions.
//
// Requirement: TRN-01, TRN-02, TRN-03, STDIO-04, STDIO-19, RPC-13, RPC-37
func TestConnectionsOverAUnixSocket(t *testing.T) {
	for _, revision := range mcptest.Revisions() {
		t.Run(revision, func(t *testing.T) {
			r := recordTraffic(t, revision)
			ids := requestIDs(t, r.client)
			t.Run("request ids are used once", func(t *testing.T) { requestIDs(t, r.server) }) // Requirement: RPC-04
			// Requirement: CAN-01, STDIO-12, CAN-10
			t.Run("notifications/cancelled has the id of the request", r.cancellations(ids))
			if !r.modern() {
				return
			}
			// Requirement: TRN-05, RPC-34, STDIO-09
			t.Run("clients send requests and notifications only", func(t *testing.T) {
				wantKinds(t, r.client, jsonrpc.Request, jsonrpc.Notification)
			})
			// Requirement: TRN-05, RPC-33, STDIO-10
			t.Run("servers send responses and notifications only", func(t *testing.T) {
				wantKinds(t, r.server, jsonrpc.Response, jsonrpc.Notification)
			})
			// Requirement: RPC-38, META-07, META-08, META-09
			t.Run("each request has an envelope", r.envelopes)
			// Requirement: META-15, STDIO-11
			t.Run("notifications of subscriptions have their id", r.subscriptionIDs(ids))
		})
	}
}

func wantKinds(t *testing.T, messages []*jsonrpc.Message, kinds ...jsonrpc.Kind) {
	t.Helper()
	for _, m := range messages {
		if !slices.Contains(kinds, m.Kind()) {
			t.Errorf("got %s, want kinds %v", jsonrpc.Append(nil, m), kinds)
		}
	}
}

// cancellations returns a test of the client's cancellations: of the call of "wait" and of modern
// subscriptions.
func (r *traffic) cancellations(ids map[string][]jsonrpc.ID) func(t *testing.T) {
	return func(t *testing.T) {
		calls := ids["tools/call"]
		want := []string{calls[len(calls)-1].String()}
		for _, id := range ids["subscriptions/listen"] {
			want = append(want, id.String())
		}
		var got []string
		for _, m := range r.client {
			if m.Method == "notifications/cancelled" {
				got = append(got, memberOf(t, m.Params, "requestId"))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("got cancellations of %q, want %q", got, want)
		}
		for _, m := range r.server {
			if m.Method == "" && m.ID == calls[len(calls)-1] {
				t.Errorf("got response %s to the cancelled call", jsonrpc.Append(nil, m))
			}
		}
	}
}

func (r *traffic) envelopes(t *testing.T) {
	for _, m := range r.client {
		if m.Kind() != jsonrpc.Request {
			continue
		}
		for _, key := range []string{"protocolVersion", "clientCapabilities", "clientInfo"} {
			if meta(t, m.Params, "io.modelcontextprotocol/"+key) == "" {
				t.Errorf("got params %s of %s, want %s", m.Params, m.Method, key)
			}
		}
	}
}

func (r *traffic) subscriptionIDs(ids map[string][]jsonrpc.ID) func(t *testing.T) {
	return func(t *testing.T) {
		listens := ids["subscriptions/listen"]
		var got []string
		for _, m := range r.server {
			if m.Kind() == jsonrpc.Notification && m.Method != "notifications/progress" {
				method := strings.TrimPrefix(m.Method, "notifications/")
				got = append(got, method+" "+meta(t, m.Params, "io.modelcontextprotocol/subscriptionId"))
			}
		}
		tools, resource := listens[0].String(), listens[1].String()
		want := []string{
			"subscriptions/acknowledged " + tools, "subscriptions/acknowledged " + resource,
			"tools/list_changed " + tools, "resources/updated " + resource,
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A server without features supports the base protocol, and nothing else.
//
// Requirement: RPC-36
func TestBaseProtocolNeedsNoFeatures(t *testing.T) {
	mcptest.Run(t, newServer(t, nil), func(t *testing.T, c *mcptest.Client) {
		base := "ping" // Connect has initialized the session
		if c.Modern() {
			base = "server/discover"
		}
		c.Call(base, nil)
		for _, method := range []string{"tools/list", "prompts/list", "resources/list", "completion/complete"} {
			_, err := c.Try(method, nil)
			wantCode(t, method, err, mcp.CodeMethodNotFound)
		}
		c.Call(base, nil)
	})
}

// Requirement: RPC-10
func TestDataOfErrorsIsAnyJSON(t *testing.T) {
	for _, data := range []string{`null`, `true`, `1.50`, `"x"`, `[1,{}]`, `{"a":{"b":[]}}`, ``} {
		s := newServer(t, nil)
		addTool(s, "fail", func(context.Context) (string, error) {
			return "", &mcp.Error{Code: 4711, Message: "failed", Data: json.RawMessage(data)}
		})
		onClients(t, s, nil, func(t *testing.T, _ mcptest.Combination, c *mcp.Client) {
			_, err := c.CallTool(t.Context(), "fail", nil)
			got, ok := errors.AsType[*mcp.Error](err)
			if !ok {
				t.Fatalf("data %s: got %v, want a protocol error", data, err)
			}
			if got.Code != 4711 || got.Message != "failed" || string(got.Data) != data {
				t.Errorf("got %v with data %s, want %s", err, got.Data, data)
			}
		})
	}
}

// Codes that older servers may use are errors as any other: the client sends nothing else.
//
// Requirement: RPC-28
func TestImplementationCodesHaveNoMeaning(t *testing.T) {
	for code := -32019; code <= -32000; code++ {
		if code == -32002 {
			continue
		}
		calls := 0
		c := newScriptedClient(t, nil, func(context.Context, *mcp.Request) (string, error) {
			calls++
			return "", mcp.Errorf(code, "failed")
		})
		_, err := c.CallTool(t.Context(), "x", nil)
		if got, ok := errors.AsType[*mcp.Error](err); !ok || got.Code != code || got.Message != "failed" || calls != 1 {
			t.Errorf("code %d: got %v after %d calls, want the error after 1", code, err, calls)
		}
		for _, special := range []error{mcp.ErrClosed, mcp.ErrTimeout, mcp.ErrCancelled, mcp.ErrInvalidResult,
			errors.ErrUnsupported} {
			if errors.Is(err, special) {
				t.Errorf("code %d: got %v, want no special error", code, special)
			}
		}
	}
}

// Results of older servers have no resultType. Results may have members that the client does not
// know.
//
// Requirement: RPC-21, RPC-35
func TestResultTypeIsOptionalAndUnknownMembersAreIgnored(t *testing.T) {
	results := map[string]string{
		"tools/call":     `{"content":[{"type":"text","text":"x","extra":1}],"extra":{"a":1}}`,
		"resources/read": `{"contents":[{"uri":"a:1","text":"x","extra":1}],"extra":[]}`,
		"prompts/get":    `{"messages":[{"role":"user","content":{"type":"text","text":"x"},"extra":1}],"extra":"a"}`,
		"tools/list":     `{"tools":[{"name":"x","inputSchema":{"type":"object"},"extra":1}],"extra":null}`,
	}
	for _, resultType := range []string{"", `"resultType":"complete",`} {
		c := newScriptedClient(t, nil, func(_ context.Context, req *mcp.Request) (string, error) {
			return "{" + resultType + results[req.Method][1:], nil
		})
		if r, err := c.CallTool(t.Context(), "x", nil); err != nil || r.Text() != "x" {
			t.Errorf("tools/call: got %+v, %v", r, err)
		}
		if r, err := c.ReadResource(t.Context(), "a:1"); err != nil || r.Contents[0].Text != "x" {
			t.Errorf("resources/read: got %+v, %v", r, err)
		}
		if r, err := c.GetPrompt(t.Context(), "x", nil); err != nil || len(r.Messages) != 1 {
			t.Errorf("prompts/get: got %+v, %v", r, err)
		}
		if got := collect(t, c.Tools(t.Context()),
			func(v *mcp.Tool) string { return v.Name }); fmt.Sprint(got) != "[x]" {
			t.Errorf("tools/list: got %v", got)
		}
	}
}

// The server is shut down while a call and a subscription are in progress.
//
// Requirement: CAN-12, CAN-13
func TestServersCancelSubscriptionsOnly(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "wait", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		c.Send("tools/call", object{"name": "wait"})
		listen := c.Send("subscriptions/listen", object{"notifications": object{"toolsListChanged": true}})
		synctest.Wait()
		c.Shutdown()
		synctest.Wait()
		var got []string
		for _, n := range c.Notifications("notifications/cancelled") {
			got = append(got, memberOf(t, n.Params, "requestId"))
		}
		want := []string{listen.ID.String()}
		if c.OverHTTP() {
			want = nil // the stream of the response ends
		}
		if !slices.Equal(got, want) {
			t.Errorf("got cancellations of %q, want %q", got, want)
		}
	})
}

// Extensions define error codes of their own, so the codes of extension methods are not replaced.
//
// Requirement: RPC-26
func TestCodesOfExtensionsAreSent(t *testing.T) {
	s := newServer(t, nil)
	for _, code := range []int{-32002, -32023, -32050, -32099} {
		method := fmt.Sprint("example/code", code)
		s.HandleMethod(method, mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
			return nil, &mcp.Error{Code: code, Message: "failed"}
		}))
		mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
			_, err := c.Try(method, object{})
			wantCode(t, method, err, code)
		})
	}
}

// Handlers may return any code. Codes that 2026-07-28 has removed or reserved are replaced.
//
// Requirement: RPC-24, RPC-26
func TestReservedCodesAreNotSent(t *testing.T) {
	codes := map[int]int{
		-32002: mcp.CodeInvalidParams, -32042: mcp.CodeInvalidRequest,
		-32050: mcp.CodeInternalError, -32099: mcp.CodeInternalError, -32023: mcp.CodeInternalError,
		driver.CodeMissingRequiredClientCapability: driver.CodeMissingRequiredClientCapability,
		-32100: -32100, -31999: -31999, 7: 7,
	}
	s := newServer(t, nil)
	for code := range codes {
		addTool(s, fmt.Sprint("code", code), func(context.Context) (string, error) {
			return "", &mcp.Error{Code: code, Message: "failed", Data: json.RawMessage(`{"requiredCapabilities":{}}`)}
		})
	}
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		for code, want := range codes {
			_, err := c.Try("tools/call", object{"name": fmt.Sprint("code", code)})
			if wantCode(t, fmt.Sprint(code), err, want); err.Message != "failed" {
				t.Errorf("%d: got message %q, want that of the handler", code, err.Message)
			}
		}
	})
}
