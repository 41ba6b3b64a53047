package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A sessionConn connects a client to a session of this package. It encodes and decodes every
// message.
type sessionConn struct {
	core   *fakeCore
	client *legacy.Client
	ids    atomic.Int64
	done   chan struct{}
	work   sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	session *legacy.Session
	closed  bool
	pending map[jsonrpc.ID]chan *jsonrpc.Message
}

// loop opens a client of a session of this package.
func openWithSession(t *testing.T, cfg legacy.ClientConfig, core *fakeCore) *legacy.Client {
	t.Helper()
	if core.discovered == "" {
		core.discovered = strings.Replace(discovered, `"prompts":{}`, `"prompts":{"listChanged":true}`, 1)
	}
	l := &sessionConn{core: core, client: legacy.NewClient(cfg), done: make(chan struct{}), pending: map[jsonrpc.ID]chan *jsonrpc.Message{}}
	t.Cleanup(func() { l.client.Close() })
	if _, err := l.client.Open(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	return l.client
}

func reencode(m *jsonrpc.Message) *jsonrpc.Message { return message(string(jsonrpc.Append(nil, m))) }

func (l *sessionConn) RoundTrip(ctx context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error) {
	req.ID = jsonrpc.IntID(l.ids.Add(1))
	if req.Method == wire.MethodInitialize {
		session, answer := legacy.Initialize(ctx, config(l.core), reencode(req))
		l.mu.Lock()
		l.session = session
		l.mu.Unlock()
		session.Attach(l.out)
		return reencode(answer), nil
	}
	answer := make(chan *jsonrpc.Message, 1)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, legacy.ErrEnded
	}
	l.pending[req.ID] = answer
	l.work.Go(func() { l.session.Handle(context.Background(), reencode(req), l.out) })
	l.mu.Unlock()
	select {
	case m := <-answer:
		return m, nil
	case <-ctx.Done():
		l.session.Handle(context.Background(), message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+req.ID.String()+`}}`), l.out)
		return nil, context.Cause(ctx)
	}
}

// out is the stream from the session to the client.
func (l *sessionConn) out(_ context.Context, m *jsonrpc.Message) error {
	m = reencode(m)
	if m.Kind() != jsonrpc.Response {
		l.client.Receive(m)
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if answer := l.pending[m.ID]; answer != nil {
		delete(l.pending, m.ID)
		answer <- m
	}
	return nil
}

func (l *sessionConn) Send(ctx context.Context, m *jsonrpc.Message) error {
	l.session.Handle(ctx, reencode(m), l.out)
	return nil
}

func (l *sessionConn) Done() <-chan struct{} { return l.done }

func (l *sessionConn) Close() error {
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if !closed {
		l.session.Close(errCancelled)
		l.work.Wait()
		close(l.done)
	}
	return nil
}

// TestClientAndSession connects a Client to a Session. In every revision, both ends use modern
// messages.
func TestClientAndSession(t *testing.T) {
	for _, version := range sessionVersions {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testClientAndSession(t, version) })
		})
	}
}

func testClientAndSession(t *testing.T, version string) {
	questions := map[string]string{
		"sample": `{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":[{"type":"text","text":"?"}]}],"maxTokens":5}}`,
		"where":  `{"method":"roots/list"}`,
	}
	answers := map[string]string{
		"sampling/createMessage": `{"role":"assistant","content":[{"type":"text","text":"!"}],"model":"m"}`,
		"roots/list":             `{"roots":[{"uri":"file:///a"}]}`,
	}
	arrived := map[string]string{
		"sample": `{"role":"assistant","content":{"type":"text","text":"!"},"model":"m"}`,
		"where":  `{"roots":[{"uri":"file:///a"}]}`,
	}
	if version >= "2025-06-18" {
		questions["ask"] = `{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}`
		answers["elicitation/create"] = `{"action":"accept","content":{"a":1}}`
		arrived["ask"] = `{"action":"accept","content":{"a":1}}`
	}
	if version == "2025-11-25" {
		arrived["sample"] = answers["sampling/createMessage"]
		questions["visit"] = `{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://a.example/"}}`
		arrived["visit"] = arrived["ask"]
	}
	core := &fakeCore{handle: func(ctx context.Context, req *jsonrpc.Message, out legacy.Stream) *jsonrpc.Message {
		if member(req.Params, "name") == `"fail"` {
			return &jsonrpc.Message{ID: req.ID, Error: &jsonrpc.Error{Code: -32602, Message: "resource not found", Data: []byte(`{"uri":"x:y"}`)}}
		}
		_ = out(ctx, &jsonrpc.Message{Method: "notifications/progress", Params: json.RawMessage(`{"progressToken":7,"progress":0.5}`)})
		got := member(req.Params, "inputResponses")
		if got == "" {
			var asks []string
			for key, question := range questions {
				asks = append(asks, `"`+key+`":`+question)
			}
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"resultType":"input_required","inputRequests":{` + strings.Join(asks, ",") + `},"requestState":"s"}`)}
		}
		return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"resultType":"complete","content":[],"_meta":{"got":` + got + `,"level":` +
			member(json.RawMessage(member(req.Params, "_meta")), wire.MetaLogLevel) + `}}`)}

	}}
	cfg := clientConfig(version)
	cfg.Answer = func(_ context.Context, method string, _ json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
		return json.RawMessage(answers[method]), nil
	}
	c := openWithSession(t, cfg, core)

	var progress []string
	notify := func(_ context.Context, method string, params json.RawMessage) error {
		progress = append(progress, method+" "+string(params))
		return nil
	}
	result, err := c.RoundTrip(t.Context(), "tools/call", withEnvelope(`"name":"t"`, `"progressToken":7,"io.modelcontextprotocol/logLevel":"warning"`), notify)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		ResultType string
		Meta       struct {
			Got   map[string]json.RawMessage
			Level string
		} `json:"_meta"`
	}
	if err := json.Unmarshal(result, &got); err != nil || got.ResultType != "complete" || got.Meta.Level != "warning" {
		t.Errorf("result %s, %v", result, err)
	}
	for key := range questions {
		if string(got.Meta.Got[key]) != arrived[key] {
			t.Errorf("input response %s is %s, want %s", key, got.Meta.Got[key], arrived[key])
		}
	}
	if !slices.Equal(progress, []string{`notifications/progress {"progressToken":7,"progress":0.5}`}) { // of two rounds
		t.Errorf("progress %q, want one notification for both rounds", progress)
	}
	_, err = c.RoundTrip(t.Context(), "resources/read", withEnvelope(`"uri":"x:y","name":"fail"`, ""), nil)
	var e *jsonrpc.Error
	if !errors.As(err, &e) || e.Code != -32602 || string(e.Data) != `{"uri":"x:y"}` || !e.Remote() {
		t.Errorf("a missing resource: %v", err)
	}
	testChanges(t, c, core)
}

// testChanges sends changes from the core behind a session.
func testChanges(t *testing.T, c *legacy.Client, core *fakeCore) {
	t.Helper()
	l := listen(t, c, `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["x:y"]}`)
	l.wants(t, acknowledged(1, `{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["x:y"]}`))
	if diff := cmp.Diff([]string{`{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["x:y"]}`}, core.filters()); diff != "" {
		t.Errorf("filters of the core (-want +got):\n%s", diff)
	}
	core.notify("notifications/tools/list_changed", `{"_meta":{"io.modelcontextprotocol/subscriptionId":"session"}}`)
	l.wants(t, `tools/list_changed {`+id(1))
	core.notify("notifications/resources/updated", `{"uri":"x:y","_meta":{"io.modelcontextprotocol/subscriptionId":"session"}}`)
	l.wants(t, `resources/updated {"uri":"x:y",`+id(1))
	l.end(t)
	if filters := core.filters(); len(filters) != 1 || strings.Contains(filters[0], "x:y") {
		t.Errorf("filters of the core after the subscription ended: %q", filters)
	}
}

func TestCancelAcrossASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		started := make(chan struct{})
		c := openWithSession(t, clientConfig("2025-11-25"), &fakeCore{handle: func(ctx context.Context, req *jsonrpc.Message, _ legacy.Stream) *jsonrpc.Message {
			close(started)
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage("{}")}
		}})
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("stop")
		go func() {
			<-started
			cancel(stop)
		}()
		if _, err := c.RoundTrip(ctx, "tools/call", withEnvelope(`"name":"t"`, ""), nil); err != stop {
			t.Error(err)
		}
		if err := <-cause; !errors.Is(err, errCancelled) {
			t.Errorf("cancellation cause of the handler %v, want %v", err, errCancelled)
		}
	})
}

func TestConcurrentRequests(t *testing.T) {
	core := &fakeCore{handle: func(ctx context.Context, req *jsonrpc.Message, out legacy.Stream) *jsonrpc.Message {
		if member(req.Params, "inputResponses") == "" {
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"resultType":"input_required","inputRequests":{"where":{"method":"roots/list"}}}`)}
		}
		return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"resultType":"complete","content":[]}`)}
	}}
	cfg := clientConfig("2025-11-25")
	cfg.Answer = func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
		return json.RawMessage(`{"roots":[]}`), nil
	}
	c := openWithSession(t, cfg, core)
	notify := func(context.Context, string, json.RawMessage) error { return nil }
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if _, err := c.RoundTrip(t.Context(), "tools/call", withEnvelope(`"name":"t"`, `"io.modelcontextprotocol/logLevel":"info"`), notify); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			for range 20 {
				ctx, cancel := context.WithCancelCause(t.Context())
				_, err := c.RoundTrip(ctx, "subscriptions/listen", withEnvelope(`"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x:a","x:b"]}`, ""),
					func(context.Context, string, json.RawMessage) error { cancel(errCancelled); return nil })
				if err != errCancelled {
					t.Errorf("a subscription ended with %v", err)
				}
				core.notify("notifications/tools/list_changed", `{}`)
			}
		})
	}
	wg.Wait()
}
