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
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A frame is the page's side of a bridge.
type frame struct {
	t      testing.TB
	bridge *apps.Bridge

	mu   sync.Mutex // guards the field below
	sent []string
}

// open opens the clock's page. The options may be nil; Send is the frame's.
func open(t testing.TB, c *mcp.Client, log *slog.Logger, opts *apps.BridgeOptions) *frame {
	t.Helper()
	h := apps.NewHost(c, &apps.HostOptions{Logger: log})
	p, err := h.Page(t.Context(), "time")
	if err != nil {
		t.Fatal(err)
	}
	f := &frame{t: t}
	if opts == nil {
		opts = &apps.BridgeOptions{}
	}
	opts.Send = func(_ context.Context, m json.RawMessage) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.sent = append(f.sent, string(m))
		return nil
	}
	f.bridge = h.Bridge(p, opts)
	return f
}

func (f *frame) got() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sent)
}

// say sends a message of the page.
func (f *frame) say(format string, args ...any) json.RawMessage {
	return f.bridge.Handle(f.t.Context(), json.RawMessage(fmt.Sprintf(format, args...)))
}

// ask sends a request and gives its result and error.
func (f *frame) ask(method, params string) (result json.RawMessage, code int) {
	f.t.Helper()
	raw := f.say(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params)
	var a struct {
		JSONRPC string
		ID      json.RawMessage
		Result  json.RawMessage
		Error   *struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal(raw, &a); err != nil || a.JSONRPC != "2.0" || string(a.ID) != "7" || (a.Result == nil) == (a.Error == nil) {
		f.t.Errorf("%s: the answer is %s", method, raw)
	}
	if a.Error != nil {
		return nil, a.Error.Code
	}
	return a.Result, 0
}

func (f *frame) handshake() {
	f.t.Helper()
	if _, code := f.ask("ui/initialize", `{"appInfo":{"name":"x","version":"1"},"appCapabilities":{},"protocolVersion":"2026-01-26"}`); code != 0 {
		f.t.Fatalf("ui/initialize: %d", code)
	}
	if a := f.say(`{"jsonrpc":"2.0","method":"ui/notifications/initialized"}`); a != nil {
		f.t.Errorf("a notification is answered by %s", a)
	}
}

func allow(context.Context, *mcp.Tool, json.RawMessage) error { return nil }

func TestUI04_PagesCallTheToolsThatAreTheirs(t *testing.T) {
	on(t, metadata(), newClock(t), apps.Declare(nil), func(t *testing.T, c *mcp.Client) {
		var asked []string
		f := open(t, c, logger(t), &apps.BridgeOptions{AllowTool: func(_ context.Context, tool *mcp.Tool, args json.RawMessage) error {
			asked = append(asked, tool.Name+string(args))
			return nil
		}})
		f.handshake()
		for _, name := range []string{"time", "refresh", "plain"} {
			got, code := f.ask("tools/call", `{"name":"`+name+`","arguments":{"zone":"UTC"},"_meta":{"progressToken":1},"task":{}}`)
			if code != 0 {
				t.Fatalf("%s: error %d", name, code)
			}
			wantJSON(t, "result of "+name, got, `{"content":[{"type":"text","text":"shown"}],"structuredContent":{"zone":"UTC"},
				"_meta":{"example.com/stamp":"12:00"}}`)
		}
		for _, params := range []string{`{"name":"ask","arguments":{"zone":"UTC"}}`, `{"name":"nobody"}`, `{}`, `{"name":1}`, `{"name":"time","arguments":[]}`} {
			if got, code := f.ask("tools/call", params); code != mcp.CodeInvalidParams {
				t.Errorf("tools/call %s: %s, %d", params, got, code)
			}
		}
		if got := strings.Join(asked, " "); got != `time{"zone":"UTC"} refresh{"zone":"UTC"} plain{"zone":"UTC"}` {
			t.Errorf("the host is asked for %s", got)
		}
	})
}

func TestUI05_WhatThePageDoesIsAskedForAndLogged(t *testing.T) {
	var log strings.Builder
	c := mcptest.Dial(t, newClock(t), modern, apps.Declare(nil))
	f := open(t, c, slog.New(slog.NewTextHandler(&log, nil)), &apps.BridgeOptions{
		AllowTool: func(context.Context, *mcp.Tool, json.RawMessage) error { return errors.New("the user said no, as 42") },
		AllowRead: func(context.Context, string) error { return mcp.Errorf(-32000, "not that one") },
	})
	f.handshake()
	a := f.say(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"refresh","arguments":{"zone":"secret"}}}`)
	wantJSON(t, "a refusal", a, `{"jsonrpc":"2.0","id":"a","error":{"code":-32000,"message":"the host refused"}}`)
	a = f.say(`{"jsonrpc":"2.0","id":"b","method":"resources/read","params":{"uri":"ui://other"}}`)
	wantJSON(t, "a refusal with a reason", a, `{"jsonrpc":"2.0","id":"b","error":{"code":-32000,"message":"not that one"}}`)
	for _, want := range []string{"method=tools/call", "target=refresh", "as 42", "target=ui://other", "method=ui/initialize"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q", want)
		}
	}
	if strings.Contains(log.String(), "secret") {
		t.Error("arguments are in the log")
	}
}

func TestWhatTheHostHasNoFunctionForIsRefused(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modern, apps.Declare(nil))
	f := open(t, c, logger(t), nil)
	for _, method := range []string{"tools/call", "resources/read", "ui/open-link"} {
		if _, code := f.ask(method, `{}`); code != mcp.CodeInvalidRequest {
			t.Errorf("%s before ui/initialize: %d", method, code)
		}
	}
	f.handshake()
	for _, method := range []string{"tools/call", "resources/read", "ui/open-link", "ui/message", "ui/update-model-context",
		"tools/list", "resources/list", "prompts/get", "sampling/createMessage", "initialize", "server/discover", "ui/other"} {
		if _, code := f.ask(method, `{"name":"time","uri":"ui://clock/face"}`); code != mcp.CodeMethodNotFound {
			t.Errorf("%s: %d", method, code)
		}
	}
	if got, code := f.ask("ping", `{}`); string(got) != "{}" || code != 0 {
		t.Errorf("ping: %s, %d", got, code)
	}
	if got, _ := f.ask("ui/request-display-mode", `{"mode":"fullscreen"}`); string(got) != `{"mode":"inline"}` {
		t.Errorf("display mode: %s", got)
	}
}

func TestTheHostTellsWhatItCan(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modern, apps.Declare(nil))
	f := open(t, c, logger(t), nil)
	got, _ := f.ask("ui/initialize", `{"appCapabilities":{}}`)
	const sandbox = `"sandbox":{"permissions":{"geolocation":{},"clipboardWrite":{}},"csp":{"connectDomains":["https://api.example.com","wss://live.example.com"],
		"resourceDomains":["https://*.cdn.example.com"]}}`
	wantJSON(t, "the host that can nothing", got, `{"protocolVersion":"2026-01-26","hostInfo":{"name":"mcp-host","version":"unknown"},
		"hostCapabilities":{"logging":{},`+sandbox+`},"hostContext":{}}`)
	f = open(t, c, logger(t), &apps.BridgeOptions{
		Info:      mcp.Implementation{Name: "desk", Version: "2"},
		Context:   &apps.Context{Theme: "dark", DisplayMode: apps.Inline, ContainerDimensions: &apps.Dimensions{Width: 400, MaxHeight: 600}, Locale: "en-US"},
		AllowTool: allow, AllowRead: func(context.Context, string) error { return nil },
		OpenLink: func(context.Context, string) error { return nil },
	})
	got, _ = f.ask("ui/initialize", `{"appCapabilities":{}}`)
	wantJSON(t, "the host that can much", got, `{"protocolVersion":"2026-01-26","hostInfo":{"name":"desk","version":"2"},
		"hostCapabilities":{"logging":{},"serverTools":{},"serverResources":{},"openLinks":{},`+sandbox+`},
		"hostContext":{"theme":"dark","displayMode":"inline","containerDimensions":{"width":400,"maxHeight":600},"locale":"en-US"}}`)
}

func TestPagesReadResources(t *testing.T) {
	on(t, metadata(), newClock(t), apps.Declare(nil), func(t *testing.T, c *mcp.Client) {
		f := open(t, c, logger(t), &apps.BridgeOptions{AllowRead: func(context.Context, string) error { return nil }})
		f.handshake()
		got, code := f.ask("resources/read", `{"uri":"ui://clock/face"}`)
		var res struct{ Contents []struct{ Text string } }
		if err := json.Unmarshal(got, &res); err != nil || code != 0 || len(res.Contents) != 1 || res.Contents[0].Text != clockHTML {
			t.Errorf("read %s, %d", got, code)
		}
		if got, code := f.ask("resources/read", `{"uri":"ui://nothing"}`); code != mcp.CodeInvalidParams {
			t.Errorf("read %s, %d of what is not there", got, code)
		}
		for _, params := range []string{`{}`, `{"uri":""}`, `{"uri":["ui://clock/face"]}`, `{"uri":"ui://` + strings.Repeat("a", 3000) + `"}`} {
			if _, code := f.ask("resources/read", params); code != mcp.CodeInvalidParams {
				t.Errorf("resources/read %.50s: %d", params, code)
			}
		}
	})
}

func TestLinksMessagesAndContext(t *testing.T) {
	var did []string
	c := mcptest.Dial(t, newClock(t), modern, apps.Declare(nil))
	f := open(t, c, logger(t), &apps.BridgeOptions{
		OpenLink: func(_ context.Context, url string) error { did = append(did, "open "+url); return nil },
		Message:  func(_ context.Context, text string) error { did = append(did, "say "+text); return nil },
		UpdateModelContext: func(_ context.Context, c apps.ModelContext) error {
			did = append(did, "know "+string(c.Content)+string(c.StructuredContent))
			return nil
		},
		SizeChanged: func(w, h float64) { did = append(did, fmt.Sprint("size ", w, " ", h)) },
		Log: func(_ context.Context, l mcp.LogLevel, d json.RawMessage) {
			did = append(did, "log "+string(l)+string(d))
		},
	})
	f.handshake()
	for _, r := range [][2]string{
		{"ui/open-link", `{"url":"https://example.com/a?b#c"}`},
		{"ui/message", `{"role":"user","content":{"type":"text","text":"hello"}}`},
		{"ui/message", `{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`},
		{"ui/update-model-context", `{"content":[{"type":"text","text":"x"}],"structuredContent":{"y":1}}`},
	} {
		if got, code := f.ask(r[0], r[1]); string(got) != "{}" {
			t.Errorf("%s %s: %s, %d", r[0], r[1], got, code)
		}
	}
	for _, r := range [][2]string{
		{"ui/open-link", `{"url":"javascript:alert(1)"}`}, {"ui/open-link", `{"url":"file:///etc/passwd"}`}, {"ui/open-link", `{"url":"//example.com"}`},
		{"ui/open-link", `{"url":"https://bank.example@evil.example/"}`}, {"ui/open-link", `{"url":"https:\\\\evil.example"}`},
		{"ui/open-link", `{"url":"https://a\nb"}`}, {"ui/open-link", `{}`}, {"ui/open-link", `{"url":"https://a/` + strings.Repeat("a", 3000) + `"}`},
		{"ui/message", `{"role":"assistant","content":{"type":"text","text":"x"}}`}, {"ui/message", `{"role":"user","content":{"type":"image"}}`},
		{"ui/message", `{"role":"user","content":[]}`}, {"ui/message", `{"role":"user"}`}, {"ui/message", `{"role":"user","content":"x"}`},
		{"ui/message", `{"role":"user","content":{"type":"text","text":"` + strings.Repeat("x", 70_000) + `"}}`},
		{"ui/update-model-context", `{"content":{}}`}, {"ui/update-model-context", `{"structuredContent":[]}`},
	} {
		if got, code := f.ask(r[0], r[1]); code != mcp.CodeInvalidParams {
			t.Errorf("%s %.60s: %s, %d", r[0], r[1], got, code)
		}
	}
	f.say(`{"jsonrpc":"2.0","method":"ui/notifications/size-changed","params":{"width":1e9,"height":-5}}`)
	f.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","data":"w"}}`)
	f.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"fatal","data":2}}`)
	want := []string{"open https://example.com/a?b#c", "say hello", "say a\nb", `know [{"type":"text","text":"x"}]{"y":1}`, "size 32767 0", `log warning"w"`, "log info2"}
	if !slices.Equal(did, want) {
		t.Errorf("the host did %q", did)
	}
}

func TestThePageIsToldInOrderAndOnlyWhenItIsReady(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modern, apps.Declare(nil))
	f := open(t, c, logger(t), nil)
	ctx, b := t.Context(), f.bridge
	result := &mcp.ToolResult{Content: []mcp.Content{mcp.Text("noon")}, Meta: mcp.Meta{"a": 1}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	if b.ToolResult(ctx, result) == nil {
		t.Error("a result is told before the arguments")
	}
	must(b.ToolInputPartial(ctx, json.RawMessage(`{"zo":1}`)))
	must(b.ToolInput(ctx, json.RawMessage(`{"zone":"UTC"}`)))
	must(b.ToolResult(ctx, result))
	must(b.ContextChanged(ctx, &apps.Context{Theme: "light"}))
	if b.ToolInput(ctx, nil) == nil || b.ToolResult(ctx, result) == nil || b.ToolCancelled(ctx, "") == nil {
		t.Error("something is told twice")
	}
	f.say(`{"jsonrpc":"2.0","method":"ui/notifications/initialized"}`)
	if got := f.got(); len(got) != 0 {
		t.Fatalf("a page that has not begun is told %q", got)
	}
	f.handshake()
	f.say(`{"jsonrpc":"2.0","method":"ui/notifications/initialized"}`)
	wantJSON(t, "what is told", "["+strings.Join(f.got(), ",")+"]", asJSON(t, "["+strings.Join([]string{
		`{"jsonrpc":"2.0","method":"ui/notifications/tool-input","params":{"arguments":{"zone":"UTC"}}}`,
		`{"jsonrpc":"2.0","method":"ui/notifications/tool-result","params":{"_meta":{"a":1},"content":[{"type":"text","text":"noon"}]}}`,
		`{"jsonrpc":"2.0","method":"ui/notifications/host-context-changed","params":{"theme":"light"}}`,
	}, ",")+"]"))
}

func TestDisplayModesAreThoseOfBothSides(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modern, apps.Declare(nil))
	f := open(t, c, logger(t), &apps.BridgeOptions{
		Context:            &apps.Context{DisplayMode: apps.Inline, AvailableDisplayModes: []apps.DisplayMode{apps.Inline, apps.Fullscreen, apps.PiP}},
		RequestDisplayMode: func(_ context.Context, m apps.DisplayMode) (apps.DisplayMode, error) { return m, nil },
	})
	f.ask("ui/initialize", `{"appCapabilities":{"availableDisplayModes":["inline","fullscreen","hologram"]}}`)
	f.say(`{"jsonrpc":"2.0","method":"ui/notifications/initialized"}`)
	for _, step := range [][2]string{{"pip", "inline"}, {"hologram", "inline"}, {"fullscreen", "fullscreen"}, {"pip", "fullscreen"}, {"inline", "inline"}} {
		if got, _ := f.ask("ui/request-display-mode", `{"mode":"`+step[0]+`"}`); string(got) != `{"mode":"`+step[1]+`"}` {
			t.Errorf("asked for %s: %s, want %s", step[0], got, step[1])
		}
	}
	if f.bridge.ContextChanged(t.Context(), &apps.Context{DisplayMode: apps.PiP}) == nil {
		t.Error("the page is shown as it cannot be")
	}
	if err := f.bridge.ContextChanged(t.Context(), &apps.Context{DisplayMode: apps.Fullscreen}); err != nil {
		t.Error(err)
	}
}

func TestMalformedMessagesAreAnsweredAsSuch(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modern, apps.Declare(nil))
	f := open(t, c, logger(t), nil)
	for message, code := range map[string]int{
		``:    mcp.CodeParseError,
		`{`:   mcp.CodeParseError,
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
		`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`:                    mcp.CodeParseError,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + "\xff" + `"}}`:          mcp.CodeParseError,
		`{"jsonrpc":"2.0","id":1,"method":"ping"} {}`:                                       mcp.CodeParseError,
		`{"jsonrpc":"2.0","id":1,"method":"ping","x":"` + strings.Repeat("x", 4<<20) + `"}`: mcp.CodeInvalidRequest,
	} {
		var a struct {
			ID    json.RawMessage
			Error struct{ Code int }
		}
		raw := f.say("%s", message)
		if err := json.Unmarshal(raw, &a); err != nil || a.Error.Code != code || a.ID == nil {
			t.Errorf("%.60s: %s, want %d", message, raw, code)
		}
	}
	if a := f.say(`{"jsonrpc":"2.0","id":"host-1","result":{}}`); a != nil {
		t.Errorf("an answer to nothing is answered by %s", a)
	}
}

func TestRequestsUnderWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := make(chan struct{})
		c := mcptest.Dial(t, newClock(t), modern, apps.Declare(nil))
		f := open(t, c, logger(t), &apps.BridgeOptions{AllowTool: func(context.Context, *mcp.Tool, json.RawMessage) error { <-wait; return nil }})
		f.handshake()
		const many = 16
		var calls sync.WaitGroup
		for range many {
			calls.Go(func() {
				if _, code := f.ask("tools/call", `{"name":"time","arguments":{"zone":"UTC"}}`); code != 0 {
					t.Errorf("a call: %d", code)
				}
			})
		}
		synctest.Wait()
		if _, code := f.ask("tools/call", `{"name":"time"}`); code != mcp.CodeBusy {
			t.Errorf("the call too many: %d", code)
		}
		close(wait)
		calls.Wait()
		if _, code := f.ask("ping", `{}`); code != 0 {
			t.Errorf("ping afterwards: %d", code)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestTeardownWaitsForThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mcptest.Dial(t, newClock(t), modern, apps.Declare(nil))
		f := open(t, c, logger(t), &apps.BridgeOptions{AllowTool: allow})
		f.handshake()
		ended := make(chan error, 1)
		go func() { ended <- f.bridge.Teardown(t.Context(), "closed") }()
		synctest.Wait()
		wantJSON(t, "what is told", json.RawMessage(f.got()[0]), `{"jsonrpc":"2.0","id":"host-1","method":"ui/resource-teardown","params":{"reason":"closed"}}`)
		f.say(`{"jsonrpc":"2.0","id":"host-2","result":{}}`)
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("somebody else's answer ends the teardown")
		}
		f.say(`{"jsonrpc":"2.0","id":"host-1","result":{}}`)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, code := f.ask("tools/call", `{"name":"time","arguments":{"zone":"UTC"}}`); code == 0 {
			t.Error("a page that was torn down calls tools")
		}
		if f.bridge.ToolInput(t.Context(), nil) == nil {
			t.Error("a page that was torn down is told things")
		}
		f = open(t, c, logger(t), nil)
		if err := f.bridge.Teardown(t.Context(), ""); err != nil || len(f.got()) > 0 {
			t.Errorf("a page that was never ready: %v, %q", err, f.got())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestTheSandboxProxyGetsTheDocumentOnce(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modern, apps.Declare(nil))
	f := open(t, c, logger(t), nil)
	for range 3 {
		f.say(`{"jsonrpc":"2.0","method":"ui/notifications/sandbox-proxy-ready","params":{}}`)
	}
	if len(f.got()) != 1 {
		t.Fatalf("the document is sent %d times", len(f.got()))
	}
	html, _ := json.Marshal(clockHTML)
	wantJSON(t, "the document", json.RawMessage(f.got()[0]), `{"jsonrpc":"2.0","method":"ui/notifications/sandbox-resource-ready","params":{"html":`+string(html)+`,
		"sandbox":"allow-scripts allow-forms","csp":{"connectDomains":["https://api.example.com","wss://live.example.com"],"resourceDomains":["https://*.cdn.example.com"]},
		"permissions":{"geolocation":{},"clipboardWrite":{}}}}`)
}

// A page chooses the names that it asks for: they must not have the server's tools listed each time.
func TestUnknownNamesDoNotListTheToolsEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newClock(t)
		lists := 0
		s.Use(func(next mcp.Handler) mcp.Handler {
			return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				if req.Method == "tools/list" {
					lists++
				}
				return next.ServeMCP(ctx, req)
			})
		})
		c := mcptest.Dial(t, s, modern, apps.Declare(nil))
		f := open(t, c, logger(t), &apps.BridgeOptions{AllowTool: allow})
		f.handshake()
		for i := range 100 {
			f.ask("tools/call", fmt.Sprintf(`{"name":"x%d"}`, i))
		}
		if lists != 1 {
			t.Errorf("the tools were listed %d times", lists)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
