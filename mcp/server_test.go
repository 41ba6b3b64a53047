package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// secret must appear in the log and must not be sent to the client.
const secret = "hunter2"

// A panicValue panics in every method that the package calls on values of its user.
type panicValue struct{ N int }

func (panicValue) MarshalJSON() ([]byte, error)   { panic(secret) }
func (*panicValue) UnmarshalJSON([]byte) error    { panic(secret) }
func (panicValue) ResultType() string             { return driver.ResultComplete }
func (panicValue) ResultMeta() mcp.Meta           { return nil }
func (panicValue) Open(string) (fs.File, error)   { panic(secret) }
func (panicValue) LogValue() slog.Value           { panic(secret) }
func (panicValue) String() string                 { panic(secret) }
func panicFunc[T any](context.Context) (T, error) { panic(secret) }

// panicServer returns a server whose functions all panic.
func panicServer(log *logBuffer) *mcp.Server {
	s := mcp.NewServer("test", "1", &mcp.ServerOptions{
		Logger: slog.New(slog.NewTextHandler(log, nil)),
		Middleware: []mcp.Middleware{func(next mcp.Handler) mcp.Handler {
			return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				if _, ok := req.Meta("com.example/middleware"); ok {
					panic(secret)
				}
				return next.ServeMCP(ctx, req)
			})
		}},
		Visible: func(_ context.Context, f mcp.Feature) bool {
			if f.Tool != nil && strings.HasPrefix(f.Tool.Name, "hidden") || f.Resource != nil && f.Resource.URI == "x://hidden" {
				panic(errors.New(secret))
			}
			return true
		},
	})
	addTool(s, "function", panicFunc[string])
	addValueTool(s, "fine", "fine")
	addValueTool(s, "hidden", "x")
	addValueTool[any](s, "result", panicValue{})
	addValueTool(s, "nil_content", (*mcp.TextContent)(nil))
	mcp.AddTool(s, &mcp.Tool{Name: "meta"}, func(context.Context, struct{}) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{}, Meta: mcp.Meta{"com.example/bomb": panicValue{}}}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "arguments", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, panicValue) (string, error) { return "", nil })
	mcp.AddTool(s, &mcp.Tool{Name: "hidden_mirror", InputSchema: json.RawMessage(
		`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)},
		func(context.Context, json.RawMessage) (string, error) { return "", nil })
	addTool(s, "once", func(ctx context.Context) (string, error) { return mcp.Once(ctx, "k", panicFunc[string]) })
	addTool(s, "log", func(ctx context.Context) (string, error) {
		mcp.Logger(ctx).Error("x", "bomb", panicValue{})
		panic(secret)
	})
	addTool(s, "unprintable", func(ctx context.Context) (string, error) { panic(unprintableError{}) })
	complete := map[string]mcp.CompleteFunc{"a": func(context.Context, string, map[string]string) ([]string, error) { panic(secret) }}
	mcp.AddPrompt(s, &mcp.Prompt{Name: "prompt", Arguments: []mcp.PromptArgument{{Name: "a"}}, Complete: complete},
		func(ctx context.Context, _ map[string]string) (string, error) { return panicFunc[string](ctx) })
	mcp.AddResource(s, &mcp.Resource{URI: "x://x", Name: "x"},
		func(ctx context.Context, _ string) (string, error) { return panicFunc[string](ctx) })
	addText(s, "x://hidden", "x")
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "y://y/{a}", Name: "y", Complete: complete},
		func(ctx context.Context, _ map[string]string) (string, error) { return panicFunc[string](ctx) })
	s.HandleMethod("com.example/method", mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { panic(secret) }))
	s.HandleMethod("com.example/result", mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { return panicValue{}, nil }))
	return s
}

// An unprintableError panics when it is printed.
type unprintableError struct{}

func (unprintableError) Error() string { panic(secret) }

func TestPanicsAreInternalErrorsWithAnIncident(t *testing.T) {
	log := &logBuffer{}
	s := panicServer(log)
	ref := func(kind, key, value string) object {
		return object{"ref": object{"type": kind, key: value}, "argument": object{"name": "a", "value": ""}}
	}
	tool := func(name string) object { return object{"name": name} }
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for _, request := range []struct {
			method string
			params object
		}{
			{"tools/call", tool("function")},
			{"tools/call", tool("result")},
			{"tools/call", tool("nil_content")},
			{"tools/call", tool("meta")},
			{"tools/call", tool("arguments")},
			{"tools/call", tool("hidden")},
			{"tools/call", tool("hidden_mirror")},
			{"tools/call", tool("once")},
			{"tools/call", tool("log")},
			{"tools/call", tool("unprintable")},
			{"tools/call", object{"name": "fine", "_meta": object{"com.example/middleware": true}}},
			{"tools/list", nil},
			{"resources/list", nil},
			{"prompts/get", tool("prompt")},
			{"resources/read", object{"uri": "x://x"}},
			{"resources/read", object{"uri": "x://hidden"}},
			{"resources/read", object{"uri": "y://y/1"}},
			{"completion/complete", ref("ref/prompt", "name", "prompt")},
			{"completion/complete", ref("ref/resource", "uri", "y://y/{a}")},
			{"com.example/method", nil},
			{"com.example/result", nil},
		} {
			_, err := c.Try(request.method, request.params)
			what := fmt.Sprint(request.method, " ", request.params)
			wantCode(t, what, err, mcp.CodeInternalError)
			if err == nil {
				continue
			}
			incident := decode[struct{ Incident string }](t, err.Data).Incident
			if err.Message != "internal error" || len(incident) < 16 || !log.has("incident="+incident) {
				t.Errorf("%s: got %s %s, want an internal error with a logged incident", what, err.Message, err.Data)
			}
		}
		if res := callTool(t, c, "fine", nil); res.text() != "fine" {
			t.Errorf("call after the panics: got %+v, want \"fine\"", res)
		}
		if strings.Contains(c.Transcript(), secret) || !log.has(secret) || !log.has("stack=") {
			t.Error("want the panic value in the log and not in the transcript")
		}
	})
}

func TestPanicOfVisibleRefusesTheSubscription(t *testing.T) {
	log := &logBuffer{}
	mcptest.RunOn(t, panicServer(log), oneProcess(mcptest.Combinations()), nil, func(t *testing.T, c *mcptest.Client) {
		if !c.Modern() {
			c.Listen(mcp.SubscriptionFilter{})
		}
		method, params := "resources/subscribe", object{"uri": "x://hidden"}
		if c.Modern() {
			method, params = "subscriptions/listen", object{"notifications": object{"resourceSubscriptions": []string{"x://hidden"}}}
		}
		_, err := c.Try(method, params)
		wantCode(t, method, err, mcp.CodeInternalError)
	})
}

func TestUnknownErrorsAreSentAsInternalError(t *testing.T) {
	log := &logBuffer{}
	s := newServer(t, &mcp.ServerOptions{Logger: slog.New(slog.NewTextHandler(log, nil))})
	failed := fmt.Errorf("open /etc/passwd: %s", secret)
	s.HandleMethod("com.example/fails", mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { return nil, failed }))
	s.HandleMethod("com.example/nothing", mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { return nil, nil }))
	s.HandleMethod("com.example/raw", mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
		return mcp.RawResult(`{"resultType":"complete","a":` + secret + `}`), nil
	}))
	s.HandleMethod("com.example/empty", mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { return mcp.RawResult(nil), nil }))
	addValueTool[any](s, "result", make(chan int))
	complete := func(context.Context, string, map[string]string) ([]string, error) { return nil, failed }
	mcp.AddPrompt(s, &mcp.Prompt{Name: "p", Arguments: []mcp.PromptArgument{{Name: "a"}}, Complete: map[string]mcp.CompleteFunc{"a": complete}},
		func(context.Context, map[string]string) (string, error) { return "", failed })
	mcp.AddResource(s, &mcp.Resource{URI: "x://x", Name: "x"}, func(context.Context, string) (string, error) { return "", failed })
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for method, params := range map[string]object{
			"com.example/fails": nil, "com.example/nothing": nil, "com.example/raw": nil, "com.example/empty": nil,
			"tools/call": {"name": "result"}, "prompts/get": {"name": "p"}, "resources/read": {"uri": "x://x"},
			"completion/complete": {"ref": object{"type": "ref/prompt", "name": "p"}, "argument": object{"name": "a", "value": ""}},
		} {
			_, err := c.Try(method, params)
			wantCode(t, method, err, mcp.CodeInternalError)
			if err != nil && (err.Message != "internal error" || !strings.HasPrefix(string(err.Data), `{"incident":"`)) {
				t.Errorf("%s: got %s %s", method, err.Message, err.Data)
			}
		}
		if strings.Contains(c.Transcript(), secret) || !log.has(secret) {
			t.Error("want the details in the log and not in the transcript")
		}
	})
}

func TestMiddlewareSeesEveryRequest(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	note := func(name string) mcp.Middleware {
		return func(next mcp.Handler) mcp.Handler {
			return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				mu.Lock()
				seen = append(seen, name+" "+req.Method)
				mu.Unlock()
				if mcp.RequestFrom(ctx) != req {
					return nil, errors.New("the context is not the request's")
				}
				res, err := next.ServeMCP(context.WithValue(ctx, noteKey{}, name), req)
				if tool, ok := res.(*mcp.CallToolResult); ok {
					tool.Content = append(tool.Content, mcp.Text("seen by "+name))
				}
				return res, err
			})
		}
	}
	refuse := func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method == "prompts/list" {
				return nil, mcp.Errorf(4712, "not for %s", req.ClientInfo().Name)
			}
			return next.ServeMCP(ctx, req)
		})
	}
	s := newServer(t, &mcp.ServerOptions{Middleware: []mcp.Middleware{note("outer"), note("inner"), refuse}})
	addTool(s, "who", func(ctx context.Context) (string, error) { return fmt.Sprint(ctx.Value(noteKey{})), nil })
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		synctest.Wait() // until the session listens to changes
		mu.Lock()
		seen = nil
		mu.Unlock()
		var text []string
		for _, piece := range callTool(t, c, "who", nil).Content {
			text = append(text, piece.Text)
		}
		if got := strings.Join(text, ", "); got != "inner, seen by inner, seen by outer" {
			t.Errorf("got %s", got)
		}
		_, err := c.Try("prompts/list", nil)
		wantCode(t, "refused", err, 4712)
		if err != nil && err.Message != "not for mcptest" {
			t.Errorf("got %s", err.Message)
		}
		_, err = c.Try("com.example/unknown", nil)
		wantCode(t, "unknown", err, mcp.CodeMethodNotFound)
		mu.Lock()
		defer mu.Unlock()
		got := strings.Join(seen, ", ")
		const want = "outer tools/call, inner tools/call, outer prompts/list, inner prompts/list, outer com.example/unknown, inner com.example/unknown"
		if got != want {
			t.Errorf("got calls %s, want %s", got, want)
		}
	})
}

type noteKey struct{}

// capabilitiesOf returns the capabilities that the server declares.
func capabilitiesOf(t *testing.T, c *mcptest.Client) map[string]json.RawMessage {
	t.Helper()
	if c.Modern() {
		return decode[struct {
			Capabilities map[string]json.RawMessage
		}](t, c.Call("server/discover", nil)).Capabilities
	}
	_, answer, _ := strings.Cut(c.Transcript(), "-- server --\n") // of initialize
	answer, _, _ = strings.Cut(answer, "\n")
	return decode[struct {
		Result struct {
			Capabilities map[string]json.RawMessage
		}
	}](t, json.RawMessage(answer)).Result.Capabilities
}

// Capabilities are derived from the registered features; methods of the others are not found.
//
// Requirement: RPC-31, TOOL-01, RES-01, PRM-01, CMP-01, LOG-01
func TestCapabilitiesAreDerived(t *testing.T) {
	empty, full := newServer(t, nil), changingServer(t, nil)
	mcp.AddPrompt(full, &mcp.Prompt{Name: "complete", Arguments: []mcp.PromptArgument{{Name: "a"}}, Complete: map[string]mcp.CompleteFunc{
		"a": func(context.Context, string, map[string]string) ([]string, error) { return nil, nil },
	}}, func(context.Context, map[string]string) (string, error) { return "", nil })
	methods := map[string]string{
		"tools/list": "tools", "tools/call": "tools", "prompts/list": "prompts", "prompts/get": "prompts", "resources/list": "resources",
		"resources/templates/list": "resources", "resources/read": "resources", "completion/complete": "completions",
	}
	mcptest.Run(t, empty, func(t *testing.T, c *mcptest.Client) {
		if got := capabilitiesOf(t, c); len(got) != 1 || got["logging"] == nil {
			t.Errorf("got %s", got)
		}
		for method := range methods {
			_, err := c.Try(method, object{"name": "x", "uri": "x://x"})
			if c.Modern() && c.OverHTTP() && err != nil && err.Code == driver.CodeHeaderMismatch {
				continue // the test client mirrors parameters in headers
			}
			wantCode(t, method, err, mcp.CodeMethodNotFound)
		}
	})
	mcptest.Run(t, full, func(t *testing.T, c *mcptest.Client) {
		want := map[string]string{
			"tools": `{"listChanged":true}`, "prompts": `{"listChanged":true}`, "resources": `{"subscribe":true,"listChanged":true}`,
			"logging": `{}`, "completions": `{}`,
		}
		if !c.Since("2025-03-26") {
			delete(want, "completions")
		}
		got := capabilitiesOf(t, c)
		for name, value := range want {
			if string(got[name]) != value {
				t.Errorf("%s: got %s, want %s", name, got[name], value)
			}
		}
		if len(got) != len(want) {
			t.Errorf("got %s", got)
		}
	})
}

func TestExtensionsAreDeclaredAndServed(t *testing.T) {
	s := newServer(t, &mcp.ServerOptions{Experimental: object{"x": object{"y": 1}}})
	s.AddExtension("com.example/search", object{"fuzzy": true})
	s.AddExtension("com.example/plain", nil)
	s.HandleMethod("com.example/search", mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
		declared := string(req.Capabilities().Extensions["com.example/search"])
		return mcp.RawResult(`{"resultType":"complete","declared":` + fmt.Sprintf("%q", declared) + `}`), nil
	}))
	caps := object{"extensions": object{"com.example/search": object{"a": 1}}}
	mcptest.RunOn(t, s, mcptest.Combinations(), &mcptest.Options{Capabilities: caps}, func(t *testing.T, c *mcptest.Client) {
		got := capabilitiesOf(t, c)
		if string(got["extensions"]) != `{"com.example/plain":{},"com.example/search":{"fuzzy":true}}` || string(got["experimental"]) != `{"x":{"y":1}}` {
			t.Errorf("got %s", got)
		}
		res := string(c.Call("com.example/search", object{"q": 1}))
		if !strings.Contains(res, `"declared":"{\"a\":1}"`) {
			t.Errorf("got %s", res)
		}
	})
	for what, mistake := range map[string]func(){
		"no prefix":     func() { s.AddExtension("search", nil) },
		"no object":     func() { s.AddExtension("com.example/list", []int{1}) },
		"no JSON":       func() { s.AddExtension("com.example/chan", make(chan int)) },
		"core method":   func() { s.HandleMethod("tools/call", s) },
		"legacy method": func() { s.HandleMethod("logging/setLevel", s) },
		"twice":         func() { s.HandleMethod("com.example/search", s) },
		"no handler":    func() { s.HandleMethod("com.example/other", nil) },
	} {
		mustPanic(t, what, "mcp: ", mistake)
	}
}

func TestInvalidServerOptionsPanic(t *testing.T) {
	for what, opts := range map[string]*mcp.ServerOptions{
		"page size":    {PageSize: -1},
		"short key":    {StateKeys: [][]byte{make([]byte, 31)}},
		"cache":        {Cache: mcp.Cache{TTL: -1 * time.Millisecond}},
		"experimental": {Experimental: object{"x": make(chan int)}},
		"a number":     {Experimental: object{"x": 1}},
		"nil":          {Experimental: object{"x": nil}},
	} {
		mustPanic(t, what, "mcp: NewServer", func() { mcp.NewServer("test", "1", opts) })
	}
	mustPanic(t, "experimental", `Experimental: "x": it encodes to "[]", must encode to a JSON object`, func() {
		mcp.NewServer("test", "1", &mcp.ServerOptions{Experimental: object{"x": []int{}}})
	})
	mustPanic(t, "no name", "mcp: NewServer", func() { mcp.NewServer("", "1", nil) })
}

// Requirement: META-13, CACHE-01
func TestDiscoverDescribesTheServer(t *testing.T) {
	s := newServer(t, &mcp.ServerOptions{
		Title: "Test Server", Description: "Tests.", WebsiteURL: "https://example.com", Instructions: "Be kind.",
		Icons: []mcp.Icon{{Src: "https://example.com/i.png", MIMEType: "image/png", Sizes: []string{"48x48"}}},
		Cache: mcp.Cache{TTL: 60_000 * time.Millisecond, Public: true},
	})
	addValueTool(s, "tool", "x")
	const info = `{"name":"test","version":"1","title":"Test Server","description":"Tests.","websiteUrl":"https://example.com",` +
		`"icons":[{"src":"https://example.com/i.png","mimeType":"image/png","sizes":["48x48"]}]}`
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		const want = `{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":` + info + `},` +
			`"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],` +
			`"capabilities":{"tools":{"listChanged":true},"logging":{}},"instructions":"Be kind.","ttlMs":60000,"cacheScope":"public"}`
		if got := string(c.Call("server/discover", nil)); got != want {
			t.Errorf("got  %s,\nwant %s", got, want)
		}
		if got := string(c.Call("tools/list", nil)); !strings.Contains(got, info) || !strings.Contains(got, `"ttlMs":60000,"cacheScope":"public"`) {
			t.Errorf("list: got %s", got)
		}
		if got := string(c.Call("tools/call", object{"name": "tool"})); !strings.Contains(got, info) || strings.Contains(got, "ttlMs") {
			t.Errorf("call: got %s", got)
		}
	})
	mcptest.RunOn(t, s, mcptest.Before(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		_, err := c.Try("server/discover", nil)
		wantCode(t, "discover in a session", err, mcp.CodeMethodNotFound)
		text := c.Transcript()
		for member, since := range map[string]string{
			`"name":"test"`: "2024-11-05", "Be kind.": "2024-11-05", "Test Server": "2025-06-18", "websiteUrl": "2025-11-25", "48x48": "2025-11-25",
		} {
			if strings.Contains(text, member) != c.Since(since) {
				t.Errorf("want %s since %s, got %s", member, since, text)
			}
		}
	})
}

// A result that already has a serverInfo, such as that of a proxy, gets no second one.
//
// Requirement: META-13
func TestServerInfoOfAResultIsKept(t *testing.T) {
	s := newServer(t, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "proxy"}, func(context.Context, struct{}) (*mcp.CallToolResult, error) {
		own := object{"name": "upstream", "version": "2"}
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{}, Meta: mcp.Meta{"io.modelcontextprotocol/serverInfo": own}}, nil
	})
	got, err := serveModern(t, s, "tools/call", object{"name": "proxy"})
	want(t, got, err, "upstream")
	if strings.Count(got, "serverInfo") != 1 {
		t.Errorf("got %s", got)
	}
}

// Capabilities, log level and client info of one request do not apply to the next.
//
// Requirement: STL-01
func TestRequestsAreIndependent(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "roots", func(ctx context.Context) (string, error) {
		roots, err := mcp.Roots(ctx)
		return fmt.Sprint(len(roots)), err
	})
	addTool(s, "log", func(ctx context.Context) (string, error) {
		mcp.Logger(ctx).Info("hello")
		return mcp.RequestFrom(ctx).ClientInfo().Name, nil
	})
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		callTool(t, c, "roots", nil)
		c.Options.Capabilities = object{}
		_, err := c.Try("tools/call", object{"name": "roots"})
		wantCode(t, "capabilities", err, driver.CodeMissingRequiredClientCapability) // Requirement: META-12
		c.Options.LogLevel = "debug"
		callTool(t, c, "log", nil)
		c.Options.LogLevel = ""
		callTool(t, c, "log", nil)
		if got := len(c.Notifications(logged)); got != 1 {
			t.Errorf("got %d log messages, want 1", got)
		}
		res := decode[toolResult](t, c.Call("tools/call", object{"name": "log", "_meta": object{"io.modelcontextprotocol/clientInfo": object{}}}))
		if res.text() != "" { // META-11, META-14
			t.Errorf("got client name %q, want none", res.text())
		}
	})
}

// A malformed capability is ignored and does not affect the others.
//
// Requirement: LIFE-20
func TestMalformedCapabilitiesAreIgnored(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "caps", func(ctx context.Context) (string, error) {
		c := mcp.RequestFrom(ctx).Capabilities()
		return fmt.Sprint(c.Elicitation != nil, c.Sampling != nil, c.Roots != nil, len(c.Experimental), len(c.Extensions)), nil
	})
	for declared, want := range map[string]string{
		`{}`: "false false false 0 0",
		`{"elicitation":{},"sampling":{"tools":{},"of the future":1},"roots":{"listChanged":true},"experimental":{"a":{}}}`: "true true true 1 0",
		`{"elicitation":"yes","sampling":{},"roots":{},"extensions":{"com.example/x":{}}}`:                                  "false true true 0 1",
		`{"elicitation":null,"sampling":[],"roots":7,"experimental":{"a":{}},"extensions":1,"of the future":{}}`:            "false false false 1 0",
	} {
		on := []mcptest.Combination{{Transport: mcptest.InMemory, Revision: "2025-11-25"}, {Transport: mcptest.HTTP, Revision: mcptest.Modern}}
		opts := &mcptest.Options{Capabilities: decode[object](t, json.RawMessage(declared))}
		mcptest.RunOn(t, s, on, opts, func(t *testing.T, c *mcptest.Client) {
			if got := callTool(t, c, "caps", nil).text(); got != want {
				t.Errorf("%s: got %s, want %s", declared, got, want)
			}
		})
	}
}

func TestRequestDescribesItsCaller(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "who", func(ctx context.Context) (string, error) {
		req := mcp.RequestFrom(ctx)
		trace, _ := req.Meta("traceparent")
		caps := req.Capabilities()
		return fmt.Sprintf("%s %s %s/%s %s %s %v %v %v", req.Method, req.Revision(), req.ClientInfo().Name, req.ClientInfo().Version,
			req.Principal.Subject, trace, caps.Elicitation != nil, caps.Sampling != nil, req.Header != nil), nil
	})
	opts := &mcptest.Options{Principal: &mcp.Principal{Subject: "ada"}}
	mcptest.RunOn(t, s, mcptest.Combinations(), opts, func(t *testing.T, c *mcptest.Client) {
		res := decode[toolResult](t, c.Call("tools/call", object{"name": "who", "_meta": object{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}))
		const trace = `"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`
		want := fmt.Sprintf(`tools/call %s mcptest/1 ada %s %v true %v`,
			c.Revision, trace, c.Since("2025-06-18"), c.OverHTTP())
		if res.text() != want {
			t.Errorf("got  %s,\nwant %s", res.text(), want)
		}
	})
}
