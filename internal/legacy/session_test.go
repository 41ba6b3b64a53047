package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A fakeCore is a core whose results the test sets. It records its requests.
type fakeCore struct {
	discovered string // the result of server/discover; an error when empty
	handle     func(ctx context.Context, req *jsonrpc.Message, out legacy.Stream) *jsonrpc.Message
	refusal    error // of Listen

	mu       sync.Mutex // guards the fields below
	requests []*jsonrpc.Message
	open     []*coreSubscription // open ones, oldest first
}

type coreSubscription struct {
	filter string
	notify func(method string, params []byte)
}

const discovered = `{"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":0,"cacheScope":"private",
	"capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"completions":{},"logging":{}},
	"instructions":"Be kind.","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1","title":"S","websiteUrl":"https://s.example"}}}`

func (c *fakeCore) Serve(
	ctx context.Context, dst []byte, r wire.Request, notify legacy.Notify,
) (_ []byte, isProjected bool, _ *jsonrpc.Error) {
	req := &jsonrpc.Message{ID: r.ID, Method: r.Method, Params: r.Params}
	opened, err := wire.Open(r.Params)
	if err != nil {
		return nil, false, err
	}
	if !reflect.DeepEqual(opened, r.Envelope) {
		return nil, false, &jsonrpc.Error{Code: wire.CodeInternalError,
			Message: fmt.Sprintf("envelope %+v, want %+v", r.Envelope, opened)}
	}
	out := func(ctx context.Context, m *jsonrpc.Message) error { return notify(ctx, m.Method, m.Params) }
	if req.Method == wire.MethodDiscover {
		if c.discovered == "" {
			return nil, false, &jsonrpc.Error{Code: wire.CodeInternalError, Message: "no"}
		}
		return append(dst, c.discovered...), false, nil
	}
	stored := *req
	stored.Params = slices.Clone(req.Params)
	c.mu.Lock()
	c.requests = append(c.requests, &stored)
	c.mu.Unlock()
	if c.handle == nil {
		return append(dst, `{"resultType":"complete"}`...), false, nil
	}
	response := c.handle(ctx, req, out)
	return append(dst, response.Result...), false, response.Error
}

func (c *fakeCore) Listen(ctx context.Context, req wire.Request, notify legacy.Notify) (func(), error) {
	if c.refusal != nil {
		return nil, c.refusal
	}
	l := &coreSubscription{filter: member(req.Params, "notifications")}
	l.notify = func(method string, params []byte) { _ = notify(ctx, method, params) }
	l.notify(wire.NotificationSubscriptionsAcknowledged, []byte(`{"notifications":{}}`))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, l)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open = slices.DeleteFunc(c.open, func(o *coreSubscription) bool { return o == l })
	}, nil
}

func (c *fakeCore) last() *jsonrpc.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[len(c.requests)-1]
}

func (c *fakeCore) filters() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.open {
		all = append(all, l.filter)
	}
	return all
}

func (c *fakeCore) notify(method, params string) {
	c.mu.Lock()
	open := slices.Clone(c.open)
	c.mu.Unlock()
	for _, l := range open {
		l.notify(method, []byte(params))
	}
}

// member returns one member of a JSON object.
func member(object []byte, key string) string {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(object, &m); err != nil {
		return "not an object: " + err.Error()
	}
	return string(m[key])
}

// An outbox is the stream to a client. It records what is written.
type outbox struct {
	mu       sync.Mutex
	messages []*jsonrpc.Message
}

func (o *outbox) write(ctx context.Context, m *jsonrpc.Message) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.messages = append(o.messages, m)
	return nil
}

// take returns what was written since the last call, one line each.
func (o *outbox) take() (lines []string) {
	for _, m := range o.takeMessages() {
		lines = append(lines, string(jsonrpc.Append(nil, m)))
	}
	return lines
}

func (o *outbox) takeMessages() []*jsonrpc.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	messages := o.messages
	o.messages = nil
	return messages
}

// A client is a session with its stream.
type client struct {
	*testing.T
	core    *fakeCore
	session *legacy.Session
	out     outbox
}

var errCancelled = errors.New("cancelled")

func config(core legacy.Core) *legacy.Config {
	return &legacy.Config{
		Core: core, Logger: slog.New(slog.DiscardHandler),
		Cancelled: func(reason string) error { return fmt.Errorf("%w: %s", errCancelled, reason) },
	}
}

func initialize(version string) *jsonrpc.Message {
	return message(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + version + `",
		"capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}},"clientInfo":{"name":"c","version":"1"}}}`)
}

func message(text string) *jsonrpc.Message {
	m, err := jsonrpc.Decode([]byte(text))
	if err != nil {
		panic(err)
	}
	return m
}

// connect opens a session, including notifications/initialized.
func connect(t *testing.T, version string, core *fakeCore) *client {
	t.Helper()
	if core.discovered == "" {
		core.discovered = discovered
	}
	c := &client{T: t, core: core}
	session, answer := legacy.Initialize(t.Context(), config(core), initialize(version))
	if session == nil {
		t.Fatalf("initialize: %v", answer.Error)
	}
	c.session = session
	c.handle(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

// handle lets the session handle one message, and returns what it wrote.
func (c *client) handle(text string) []string {
	c.Helper()
	c.session.Handle(c.Context(), message(text), c.out.write)
	return c.out.take()
}

func (c *client) want(got []string, want ...string) {
	c.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		c.Errorf("wrote (-want +got):\n%s", diff)
	}
}

// Requirement: LIFE-08, LIFE-09
func TestRevisionNegotiation(t *testing.T) {
	for offered, want := range map[string]string{
		"2024-11-05": "2024-11-05",
		"2025-03-26": "2025-03-26",
		"2025-06-18": "2025-06-18",
		"2025-11-25": "2025-11-25",
		"2026-07-28": "2025-11-25", // has no sessions, T-12
		"2099-01-01": "2025-11-25", // T-36: never an error
		"":           "2025-11-25",
	} {
		s, answer := legacy.Initialize(t.Context(), config(&fakeCore{discovered: discovered}), initialize(offered))
		if s == nil {
			t.Errorf("%q: %v", offered, answer.Error)
			continue
		}
		if got := member(answer.Result, "protocolVersion"); got != `"`+want+`"` || s.Revision().String() != want {
			t.Errorf("%q: answered %s, session of %s, want %s", offered, got, s.Revision(), want)
		}
	}
}

// Requirement: LIFE-03
func TestInitializeResult(t *testing.T) {
	for version, want := range map[string]string{
		"2024-11-05": `{"protocolVersion":"2024-11-05","capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"logging":{}},` +
			`"serverInfo":{"name":"s","version":"1"},"instructions":"Be kind."}`,
		"2025-11-25": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"completions":{},"logging":{}},` +
			`"serverInfo":{"name":"s","version":"1","title":"S","websiteUrl":"https://s.example"},"instructions":"Be kind."}`,
	} {
		_, answer := legacy.Initialize(t.Context(), config(&fakeCore{discovered: discovered}), initialize(version))
		if diff := cmp.Diff(want, string(answer.Result)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
	_, answer := legacy.Initialize(t.Context(), config(&fakeCore{discovered: `{"resultType":"complete"}`}), initialize("2025-06-18"))
	want := `{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"unnamed","version":"0"}}`
	if diff := cmp.Diff(want, string(answer.Result)); diff != "" {
		t.Errorf("a server without info or capabilities (-want +got):\n%s", diff)
	}
}

// Requirement: LIFE-02
func TestInvalidInitialize(t *testing.T) {
	big := strings.Repeat("x", 20<<10)
	for _, params := range []string{
		`null`, `[]`, `{}`,
		`{"capabilities":{},"clientInfo":{"name":"c","version":"1"}}`,
		`{"protocolVersion":1,"capabilities":{},"clientInfo":{"name":"c","version":"1"}}`,
		`{"protocolVersion":"2025-06-18","clientInfo":{"name":"c","version":"1"}}`,
		`{"protocolVersion":"2025-06-18","capabilities":{}}`,
		`{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c"}}`,
		`{"protocolVersion":"2025-06-18","capabilities":{"x":{"y":"` + big + `"}},"clientInfo":{"name":"c","version":"1"}}`,
		`{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"` + big + `","version":"1"}}`,
	} {
		req := &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "initialize", Params: json.RawMessage(params)}
		s, answer := legacy.Initialize(t.Context(), config(&fakeCore{discovered: discovered}), req)
		if s != nil || answer.Error == nil || answer.Error.Code != wire.CodeInvalidParams {
			t.Errorf("%.100s: %+v, want %d", params, answer.Error, wire.CodeInvalidParams)
		}
	}
}

func TestOversizedClientInfoIsReduced(t *testing.T) {
	core := &fakeCore{discovered: discovered}
	params := `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","icons":[{"src":"data:` + strings.Repeat("x", 20<<10) + `"}],"version":"1"}}`
	s, answer := legacy.Initialize(t.Context(), config(core), &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "initialize", Params: json.RawMessage(params)})
	if s == nil {
		t.Fatal(answer.Error)
	}
	s.Handle(t.Context(), message(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), new(outbox).write)
	env, _ := wire.Open(core.last().Params)
	if got := string(env.ClientInfo); got != `{"name":"c","version":"1"}` {
		t.Errorf("client info is %.100s", got)
	}
}

func TestInitializeFailsWithTheCore(t *testing.T) {
	s, answer := legacy.Initialize(t.Context(), config(&fakeCore{}), initialize("2025-06-18"))
	if s != nil || answer.Error == nil || answer.ID != jsonrpc.IntID(0) {
		t.Errorf("got %v, %+v", s, answer)
	}
}

// Requirement: LIFE-11
func TestRequestsHaveTheSessionsEnvelope(t *testing.T) {
	core := &fakeCore{}
	c := connect(t, "2025-06-18", core)
	c.handle(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t","requestState":"forged","inputResponses":{"k":{}},
		"_meta":{"progressToken":7,"io.modelcontextprotocol/clientCapabilities":{"tasks":{}},"io.modelcontextprotocol/protocolVersion":"2026-07-28",
		"io.modelcontextprotocol/logLevel":"debug","com.example/k":[1]},"arguments":{"a":1.0}}}`)
	want := `{"name":"t","arguments":{"a":1.0},"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-06-18","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"roots":{},"sampling":{},"elicitation":{}},"io.modelcontextprotocol/logLevel":"info",` +
		`"progressToken":7,"com.example/k":[1]}}`
	if diff := cmp.Diff(want, string(core.last().Params)); diff != "" {
		t.Errorf("params (-want +got):\n%s", diff)
	}
	for _, params := range []string{`{"_meta":[]}`, `[1]`} {
		c.want(c.handle(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`),
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"params`+map[bool]string{true: "._meta", false: ""}[params[0] == '{']+`: want an object"}}`)
	}
}

func TestAllParamsHaveTheEnvelope(t *testing.T) {
	const envelope = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-06-18","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"roots":{},"sampling":{},"elicitation":{}},"io.modelcontextprotocol/logLevel":"info"}`
	for _, form := range []struct{ params, want string }{
		{``, `{` + envelope + `}`},
		{`,"params":{}`, `{` + envelope + `}`},
		{`,"params":{ }`, `{` + envelope + `}`},
		{`,"params":{"_meta":{ }}`, `{` + envelope + `}`},
		{`,"params":{"requestState":"forged"}`, `{` + envelope + `}`},
		{`,"params":{"request\u0053tate":"forged","name":"t"}`, `{"name":"t",` + envelope + `}`},
		{`,"params":{ "n\u0061me" : "t" }`, `{"name":"t",` + envelope + `}`},
		{`,"params":{"_m\u0065ta":{"a":1},"name":"t"}`, `{"name":"t",` + envelope[:len(envelope)-1] + `,"a":1}}`},
	} {
		core := &fakeCore{}
		connect(t, "2025-06-18", core).handle(`{"jsonrpc":"2.0","id":"a","method":"tools/call"` + form.params + `}`)
		if diff := cmp.Diff(form.want, string(core.last().Params)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", form.params, diff)
		}
	}
}

// Requirement: RPC-31
func TestMethodsOutsideTheRevision(t *testing.T) {
	cases := []struct {
		version, method string
		served          bool
	}{
		{"2025-11-25", "server/discover", false},
		{"2025-11-25", "subscriptions/listen", false},
		{"2025-11-25", "tasks/get", true}, // served where there are tasks
		{"2025-11-25", "tasks/result", true},
		{"2025-11-25", "tasks/list", true},
		{"2025-11-25", "tasks/cancel", true},
		{"2025-06-18", "tasks/get", false},
		{"2025-06-18", "tasks/result", false},
		{"2024-11-05", "tasks/cancel", false},
		{"2025-11-25", "notifications/tasks/status", false},
		{"2025-11-25", "tasks/update", true}, // of an extension
		{"2025-11-25", "roots/list", false},
		{"2025-11-25", "notifications/progress", false},
		{"2025-11-25", "com.example/method", true},
		{"2024-11-05", "completion/complete", true}, // LIFE-25
		{"2025-06-18", "resources/templates/list", true},
	}
	for _, tc := range cases {
		core := &fakeCore{}
		c := connect(t, tc.version, core)
		got := c.handle(`{"jsonrpc":"2.0","id":1,"method":"` + tc.method + `","params":{}}`)
		if tc.served {
			c.want(got, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		} else {
			c.want(got, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found"}}`)
		}
		if served := len(core.requests) > 0; served != tc.served {
			t.Errorf("%s of %s reached the core: %v", tc.method, tc.version, served)
		}
	}
}

func TestMessagesWithoutTheCore(t *testing.T) {
	c := connect(t, "2025-03-26", &fakeCore{})
	c.want(c.handle(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), `{"jsonrpc":"2.0","id":1,"result":{}}`) // PING-01
	c.want(c.handle(`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}`),
		`{"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"the session is initialized already"}}`)
	for _, m := range []string{ // RPC-14
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled"}`,
		`{"jsonrpc":"2.0","method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":"unknown","result":{}}`,
		`{"jsonrpc":"2.0","error":{"code":1,"message":"?"}}`,
	} {
		c.want(c.handle(m))
	}
}

func TestErrorsAreProjected(t *testing.T) {
	c := connect(t, "2025-06-18", &fakeCore{handle: func(_ context.Context, req *jsonrpc.Message, _ legacy.Stream) *jsonrpc.Message {
		return &jsonrpc.Message{ID: req.ID, Error: &jsonrpc.Error{Code: -32602, Message: "resource not found", Data: []byte(`{"uri":"x:y"}`)}}
	}})
	c.want(c.handle(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"x:y"}}`),
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"resource not found","data":{"uri":"x:y"}}}`)
}

func TestNotificationsPrecedeTheResponse(t *testing.T) {
	c := connect(t, "2024-11-05", &fakeCore{handle: func(ctx context.Context, req *jsonrpc.Message, out legacy.Stream) *jsonrpc.Message {
		for _, n := range []string{
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"message":"new"}}`,
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`,
			`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`,
		} {
			_ = out(ctx, message(n))
		}
		return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"resultType":"complete","content":[]}`)}
	}})
	c.want(c.handle(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`),
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
}

// Requirement: LOG-04
func TestSetLevel(t *testing.T) {
	core := &fakeCore{}
	c := connect(t, "2025-06-18", core)
	c.want(c.handle(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"warning"}}`), `{"jsonrpc":"2.0","id":1,"result":{}}`)
	for _, params := range []string{`{"level":"loud"}`, `{"level":3}`, `{}`} { // LOG-04
		got := c.handle(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":` + params + `}`)
		if len(got) != 1 || !strings.Contains(got[0], `"code":-32602`) {
			t.Errorf("%s: %q", params, got)
		}
	}
	c.handle(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	env, err := wire.Open(core.last().Params)
	if err != nil || env.LogLevel != "warning" {
		t.Errorf("log level %q, error %v, want warning", env.LogLevel, err)
	}

	c = connect(t, "2025-06-18", &fakeCore{discovered: `{"capabilities":{}}`})
	got := c.handle(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`)
	if len(got) != 1 || !strings.Contains(got[0], `"code":-32601`) {
		t.Errorf("without the capability: %q", got)
	}
}

// Requirement: RPC-15
func TestBatches(t *testing.T) {
	c := connect(t, "2025-03-26", &fakeCore{})
	got := c.handle(`[
		{"jsonrpc":"2.0","id":1,"method":"ping"},
		{"jsonrpc":"2.0","method":"notifications/progress","params":{}},
		{"jsonrpc":"2.0","id":2,"method":"tools/list"},
		{"jsonrpc":"2.0","id":3,"method":"initialize","params":{}},
		{"jsonrpc":"1.0","id":4,"method":"ping"},
		{"jsonrpc":"2.0","id":5,"method":"com.example/x"}]`)
	c.want(got, `[{"jsonrpc":"2.0","id":1,"result":{}},`+
		`{"jsonrpc":"2.0","id":3,"error":{"code":-32600,"message":"the session is initialized already"}},`+ // RPC-17
		`{"jsonrpc":"2.0","id":4,"error":{"code":-32600,"message":"invalid request: \"jsonrpc\" is not \"2.0\""}},`+
		`{"jsonrpc":"2.0","id":2,"result":{}},{"jsonrpc":"2.0","id":5,"result":{}}]`)
	c.want(c.handle(`[{"jsonrpc":"2.0","method":"notifications/progress"},{"jsonrpc":"2.0","id":"x","result":{}}]`))
	c.want(c.handle(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`), `[{"jsonrpc":"2.0","id":1,"result":{}}]`)
}

// Requirement: RPC-18
func TestBatchesOnlyInTheirRevision(t *testing.T) {
	for _, version := range []string{"2024-11-05", "2025-06-18", "2025-11-25"} {
		c := connect(t, version, &fakeCore{})
		c.want(c.handle(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`),
			`{"jsonrpc":"2.0","error":{"code":-32600,"message":"this protocol revision has no batches"}}`)
	}
}

// blocking returns a handler that reports its id and waits for its context.
func blocking(started chan<- jsonrpc.ID) func(context.Context, *jsonrpc.Message, legacy.Stream) *jsonrpc.Message {
	return func(ctx context.Context, req *jsonrpc.Message, out legacy.Stream) *jsonrpc.Message {
		started <- req.ID
		<-ctx.Done()
		_ = out(context.Background(), &jsonrpc.Message{Method: "notifications/message", Params: json.RawMessage(`{"level":"info","data":"late"}`)})
		return &jsonrpc.Message{ID: req.ID, Error: &jsonrpc.Error{Code: wire.CodeInternalError, Message: context.Cause(ctx).Error()}}
	}
}

// Requirement: CAN-04
func TestNothingFollowsACancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan jsonrpc.ID)
		core := &fakeCore{handle: blocking(started)}
		c := connect(t, "2025-06-18", core)
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.session.Handle(t.Context(), message(`{"jsonrpc":"2.0","id":"1","method":"tools/call","params":{"name":"t"}}`), c.out.write)
		}()
		<-started
		c.handle(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`) // another id: RPC-06
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("the request was cancelled by a notification with another id")
		default:
		}
		c.handle(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1","reason":"enough"}}`)
		<-done
		c.want(c.out.take())
	})
}

func TestImmediateCancel(t *testing.T) {
	core := &fakeCore{handle: func(ctx context.Context, req *jsonrpc.Message, _ legacy.Stream) *jsonrpc.Message {
		if !errors.Is(context.Cause(ctx), errCancelled) || !strings.Contains(context.Cause(ctx).Error(), "enough") {
			t.Errorf("cancellation cause %v", context.Cause(ctx))
		}
		return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage("{}")}
	}}
	c := connect(t, "2025-06-18", core)
	_, work := c.session.Accept(t.Context(), message(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), c.out.write)
	c.session.Accept(t.Context(), message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"enough"}}`), c.out.write)
	work(func(reply *jsonrpc.Message) {
		if reply != nil {
			t.Errorf("a cancelled request got the response %+v", reply)
		}
	})
}

func TestDuplicateIDsAndLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan jsonrpc.ID, 300)
		c := connect(t, "2025-06-18", &fakeCore{handle: blocking(started)})
		var wg sync.WaitGroup
		for i := range 256 {
			wg.Go(func() {
				c.session.Handle(t.Context(), message(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, i)), c.out.write)
			})
		}
		synctest.Wait()
		c.want(c.handle(`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`),
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"a request with this id is in progress"}}`)
		c.want(c.handle(`{"jsonrpc":"2.0","id":256,"method":"tools/list"}`),
			`{"jsonrpc":"2.0","id":256,"error":{"code":429,"message":"too many requests in progress","data":{"retryAfterMs":1000}}}`)
		c.want(c.handle(`{"jsonrpc":"2.0","id":257,"method":"ping"}`), `{"jsonrpc":"2.0","id":257,"result":{}}`)
		c.session.Close(errors.New("over"))
		wg.Wait()
		answered := 0
		for _, m := range c.out.takeMessages() {
			if m.Kind() == jsonrpc.Response && m.Error != nil && m.Error.Message == "over" {
				answered++
			}
		}
		if answered != 256 {
			t.Errorf("%d of 256 requests were answered after the session was closed", answered)
		}
	})
}

func TestIdleSessionIsSmall(t *testing.T) {
	const sessions = 1000
	cfg, req := config(&fakeCore{discovered: discovered}), initialize("2025-06-18")
	kept := make([]*legacy.Session, sessions)
	goroutines := runtime.NumGoroutine()
	before := heap()
	for i := range kept {
		s, _ := legacy.Initialize(t.Context(), cfg, req)
		s.Handle(t.Context(), message(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), new(outbox).write)
		s.Handle(t.Context(), message(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), new(outbox).write)
		kept[i] = s
	}
	cfg.Core.(*fakeCore).requests = nil
	size := (heap() - before) / sessions
	t.Logf("%d bytes per idle session", size)
	if size > 2048 {
		t.Errorf("an idle session uses %d bytes, want at most 2048", size)
	}
	if got := runtime.NumGoroutine(); got > goroutines {
		t.Errorf("%d more goroutines, want 0", got-goroutines)
	}
	runtime.KeepAlive(kept)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
