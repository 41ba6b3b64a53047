package apps_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A testFrame is the page's side of a bridge.
type testFrame struct {
	t      testing.TB
	bridge *apps.Bridge
	answer func(message json.RawMessage) // called for each message to the page, unless it is nil

	mu   sync.Mutex // guards the field below
	sent []string
}

// open opens the clock's page. The options may be nil; the frame sets Send.
func open(t testing.TB, c *mcp.Client, log *slog.Logger, opts *apps.BridgeOptions) *testFrame {
	t.Helper()
	h := apps.NewHost(c, &apps.HostOptions{Logger: log})
	p, err := h.Page(t.Context(), "time")
	if err != nil {
		t.Fatal(err)
	}
	f := &testFrame{t: t}
	if opts == nil {
		opts = &apps.BridgeOptions{}
	}
	opts.Send = func(_ context.Context, m json.RawMessage) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.sent = append(f.sent, string(m))
		if f.answer != nil {
			f.answer(m)
		}
		return nil
	}
	f.bridge = h.Bridge(p, opts)
	return f
}

func (f *testFrame) got() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sent)
}

// send passes a message of the page to the bridge.
func (f *testFrame) send(format string, args ...any) json.RawMessage {
	return f.bridge.Handle(f.t.Context(), json.RawMessage(fmt.Sprintf(format, args...)))
}

// request sends a request and returns its result and error.
func (f *testFrame) request(method, params string) (result json.RawMessage, code int) {
	f.t.Helper()
	raw := f.send(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params)
	var a struct {
		JSONRPC string
		ID      json.RawMessage
		Result  json.RawMessage
		Error   *struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal(raw, &a); err != nil || a.JSONRPC != "2.0" || string(a.ID) != "7" ||
		(a.Result == nil) == (a.Error == nil) {
		f.t.Errorf("%s: response %s", method, raw)
	}
	if a.Error != nil {
		return nil, a.Error.Code
	}
	return a.Result, 0
}

func (f *testFrame) handshake() {
	f.t.Helper()
	if _, code := f.request("ui/initialize", `{"appInfo":{"name":"x","version":"1"},"appCapabilities":{},"protocolVersion":"2026-01-26"}`); code != 0 {
		f.t.Fatalf("ui/initialize: %d", code)
	}
	if a := f.send(`{"jsonrpc":"2.0","method":"ui/notifications/initialized"}`); a != nil {
		f.t.Errorf("a notification got the response %s", a)
	}
}

var empty = json.RawMessage("{}")

func allow(context.Context, *mcp.Tool, json.RawMessage) error { return nil }

// Requirement: UI-05
func TestRequestsNeedConsentAndAreLogged(t *testing.T) {
	var log strings.Builder
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	f := open(t, c, slog.New(slog.NewTextHandler(&log, nil)), &apps.BridgeOptions{
		AllowTool: func(context.Context, *mcp.Tool, json.RawMessage) error {
			return errors.New("refused for reason 42")
		},
		AllowRead: func(context.Context, string) error { return mcp.Errorf(-32000, "not that one") },
	})
	f.handshake()
	a := f.send(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"refresh","arguments":{"zone":"secret"}}}`)
	wantJSON(t, "a refusal", a, `{"jsonrpc":"2.0","id":"a","error":{"code":-1,"message":"the host refused"}}`)
	a = f.send(`{"jsonrpc":"2.0","id":"b","method":"resources/read","params":{"uri":"ui://other"}}`)
	wantJSON(t, "a refusal with a reason", a, `{"jsonrpc":"2.0","id":"b","error":{"code":-32000,"message":"not that one"}}`)
	for _, want := range []string{"method=tools/call", "target=refresh", "reason 42", "target=ui://other", "method=ui/initialize"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q", want)
		}
	}
	if strings.Contains(log.String(), "secret") {
		t.Error("the log contains arguments")
	}
}

func TestUnsupportedRequestsAreRefused(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	f := open(t, c, logger(t), nil)
	for _, method := range []string{"tools/call", "resources/read", "ui/open-link"} {
		if _, code := f.request(method, `{}`); code != mcp.CodeInvalidRequest {
			t.Errorf("%s before ui/initialize: %d", method, code)
		}
	}
	f.handshake()
	for _, method := range []string{"tools/call", "resources/read", "ui/open-link", "ui/message",
		"ui/update-model-context",
		"tools/list", "resources/list", "prompts/get", "sampling/createMessage", "initialize", "server/discover", "ui/other"} {
		if _, code := f.request(method, `{"name":"time","uri":"ui://clock/face"}`); code != mcp.CodeMethodNotFound {
			t.Errorf("%s: %d", method, code)
		}
	}
	wantJSON(t, "error for an unsupported request", f.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"time"}}`),
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"the host does not support tools/call"}}`)
	if got, code := f.request("ping", `{}`); string(got) != "{}" || code != 0 {
		t.Errorf("ping: %s, %d", got, code)
	}
	if got, _ := f.request("ui/request-display-mode", `{"mode":"fullscreen"}`); string(got) != `{"mode":"inline"}` {
		t.Errorf("display mode: %s", got)
	}
}

func TestHostCapabilities(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	f := open(t, c, logger(t), nil)
	got, _ := f.request("ui/initialize", `{"appCapabilities":{}}`)
	const sandbox = `"sandbox":{"permissions":{"geolocation":{},"clipboardWrite":{}},"csp":{"connectDomains":["https://api.example.com","wss://live.example.com"],
		"resourceDomains":["https://*.cdn.example.com"]}}`
	wantJSON(t, "capabilities without options", got, `{"protocolVersion":"2026-01-26","hostInfo":{"name":"mcp-host","version":"unknown"},
		"hostCapabilities":{"logging":{},`+sandbox+`},"hostContext":{}}`)
	f = open(t, c, logger(t), &apps.BridgeOptions{
		Info: mcp.Implementation{Name: "host", Version: "2"},
		Context: &apps.Context{
			ToolInfo: &apps.ToolInfo{ID: jsonrpc.IntID(3), Tool: &mcp.Tool{Name: "time", InputSchema: empty}},
			Theme:    "dark", DisplayMode: apps.DisplayInline,
			ContainerDimensions: &apps.Dimensions{Width: 400, MaxHeight: 600}, Locale: "en-US"},
		AllowTool: allow, AllowRead: func(context.Context, string) error { return nil },
		OpenLink: func(context.Context, string) error { return nil },
	})
	got, _ = f.request("ui/initialize", `{"appCapabilities":{}}`)
	wantJSON(t, "capabilities with options", got, `{"protocolVersion":"2026-01-26","hostInfo":{"name":"host","version":"2"},
		"hostCapabilities":{"logging":{},"serverTools":{},"serverResources":{},"openLinks":{},`+sandbox+`},
		"hostContext":{"toolInfo":{"id":3,"tool":{"name":"time","inputSchema":{}}},"theme":"dark",
			"displayMode":"inline",
			"containerDimensions":{"width":400,"maxHeight":600},"locale":"en-US"}}`)
}

func TestMalformedMessages(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	f := open(t, c, logger(t), nil)
	for message, code := range map[string]int{
		``:    jsonrpc.CodeParseError,
		`{`:   jsonrpc.CodeParseError,
		`"x"`: mcp.CodeInvalidRequest,
		`[]`:  mcp.CodeInvalidRequest,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`: mcp.CodeInvalidRequest,
		`{}`:                       mcp.CodeInvalidRequest,
		`{"id":1,"method":"ping"}`: mcp.CodeInvalidRequest,
		`{"jsonrpc":"1.0","id":1,"method":"ping"}`:                                          mcp.CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":1}`:                                                          mcp.CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`:                                        mcp.CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`:                                       mcp.CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`:                                         mcp.CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 200) + `","method":"ping"}`:         mcp.CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`:                              mcp.CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":1,"method":7}`:                                               mcp.CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`:                              mcp.CodeInvalidParams,
		`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`:                    jsonrpc.CodeParseError,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + "\xff" + `"}}`:          jsonrpc.CodeParseError,
		`{"jsonrpc":"2.0","id":1,"method":"ping"} {}`:                                       jsonrpc.CodeParseError,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":` + nested(64) + `}`:              mcp.CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":` + nested(20_000) + `}`:          mcp.CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":1,"method":"ping","x":"` + strings.Repeat("x", 4<<20) + `"}`: mcp.CodeInvalidRequest,
	} {
		var a struct {
			ID    json.RawMessage
			Error struct{ Code int }
		}
		raw := f.send("%s", message)
		if err := json.Unmarshal(raw, &a); err != nil || a.Error.Code != code || a.ID == nil {
			t.Errorf("%.60s: %s, want %d", message, raw, code)
		}
	}
	if a := f.send(`{"jsonrpc":"2.0","id":"host-1","result":{}}`); a != nil {
		t.Errorf("a response without a request got the response %s", a)
	}
}

// nested returns an object of nested objects.
func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
}

func TestDeepMessagesAreRefusedWithTheirID(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	f := open(t, c, logger(t), nil)
	if a, code := f.request("ping", nested(63)); code != 0 {
		t.Errorf("64 levels: %s, error %d", a, code)
	}
	if a, code := f.request("ping", nested(64)); code != mcp.CodeInvalidRequest {
		t.Errorf("65 levels: %s, error %d, want invalid request", a, code)
	}
	if a, code := f.request("ping", `{"x":"`+strings.Repeat("[{", 100)+`"}`); code != 0 {
		t.Errorf("brackets in a string: %s, error %d", a, code)
	}
}

func TestConcurrentRequestsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := make(chan struct{})
		c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
		f := open(t, c, logger(t),
			&apps.BridgeOptions{AllowTool: func(context.Context, *mcp.Tool,
				json.RawMessage) error {
				<-wait
				return nil
			}})
		f.handshake()
		const many = 16
		var calls sync.WaitGroup
		for range many {
			calls.Go(func() {
				if _, code := f.request("tools/call", `{"name":"time","arguments":{"zone":"UTC"}}`); code != 0 {
					t.Errorf("tools/call: error %d", code)
				}
			})
		}
		synctest.Wait()
		if _, code := f.request("tools/call", `{"name":"time"}`); code != mcp.CodeBusy {
			t.Errorf("tools/call above the limit: error %d, want busy", code)
		}
		close(wait)
		calls.Wait()
		if _, code := f.request("ping", `{}`); code != 0 {
			t.Errorf("ping after the calls: error %d", code)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
