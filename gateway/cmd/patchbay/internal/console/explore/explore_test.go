package explore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// An echoServer has tools that show how a run reaches a server. It records the params of calls.
type echoServer struct {
	*mcp.Server
	mu      sync.Mutex // guards the fields below
	params  []string
	called  chan struct{} // closed by the next call
	stopped chan struct{} // closed when the tool wait is cancelled
}

func newEchoServer(revision string) *echoServer {
	e := &echoServer{called: make(chan struct{}), stopped: make(chan struct{})}
	record := func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if arguments, ok := req.Param("arguments"); ok && req.Method == "tools/call" {
				e.mu.Lock()
				e.params = append(e.params, string(arguments))
				close(e.called)
				e.called = make(chan struct{})
				e.mu.Unlock()
			}
			return next.ServeMCP(ctx, req)
		})
	}
	e.Server = mcp.NewServer("echo", "1", &mcp.ServerOptions{Revisions: []string{revision},
		Middleware: []mcp.Middleware{record}})
	schema := json.RawMessage(`{"type":"object","properties":{"n":{"type":"number","maximum":1e30},"s":{"type":"string"},
		"o":{"type":"object","additionalProperties":{}},"l":{"type":"array","items":{"type":"string"}}}}`)
	mcp.AddTool(e.Server, &mcp.Tool{Name: "echo", InputSchema: schema},
		func(ctx context.Context, _ map[string]any) (map[string]any, error) {
			mcp.Progress(ctx, 1, 2, "half of it")
			mcp.Logger(ctx).Info("a log line")
			return map[string]any{"rows": []any{map[string]any{"id": 1, "name": "<b>x</b>"}}}, nil
		})
	mcp.AddTool(e.Server, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		name, err := mcp.Ask[string](ctx, "name", "Which name?", nil)
		if errors.Is(err, mcp.ErrDeclined) {
			return "declined", nil
		}
		return "hello " + name, err
	})
	mcp.AddTool(e.Server, &mcp.Tool{Name: "model"}, func(ctx context.Context, _ struct{}) (string, error) {
		r, err := mcp.Sample(ctx, "s", &mcp.CreateMessageParams{MaxTokens: 9, Messages: []mcp.SamplingMessage{
			{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("Sum up.")}}}})
		if err != nil {
			return "", err
		}
		return "the model says " + r.Text(), nil
	})
	mcp.AddTool(e.Server, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		close(e.stopped)
		return "", context.Cause(ctx)
	})
	return e
}

// received reports whether the server receives the arguments of a call, within a generous time.
func (e *echoServer) received(arguments string) bool {
	for limit := time.After(30 * time.Second); ; {
		e.mu.Lock()
		called := e.called
		e.mu.Unlock()
		if e.last() == arguments {
			return true
		}
		select {
		case <-called:
		case <-limit:
			return false
		}
	}
}

func (e *echoServer) last() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.params) == 0 {
		return ""
	}
	return e.params[len(e.params)-1]
}

// A visitor uses Explore as a browser without scripts.
type visitor struct {
	*consoletest.Visitor
	t *testing.T
}

// newVisitor serves a console whose server fs is reached with transport.
func newVisitor(t *testing.T, transport func() mcp.Transport) *visitor {
	t.Helper()
	s := consoletest.New(t, func(o *console.Options) {
		o.Connect = func(_ context.Context, server string, _ *mcp.Principal) (mcp.Transport, error) {
			if server != "fs" {
				return nil, errors.New("no such server")
			}
			return transport(), nil
		}
	})
	return &visitor{s.Visitor(), t}
}

// run posts the values of the editor for a tool and returns the page of the run.
func (v *visitor) run(tool string, values url.Values) string {
	v.t.Helper()
	all := url.Values{"at-server": {"fs"}, "at-kind": {"tools"}, "at-name": {tool}, "at-timeout": {"60"},
		"mode": {"form"}, "open:": {""}, "do": {"run"}}
	for name, value := range values {
		all[name] = value
	}
	return v.Post("/explore/run", all)
}

var runID = regexp.MustCompile(`run=(\d+)`)

func (v *visitor) runID(page string) string {
	v.t.Helper()
	found := runID.FindStringSubmatch(page)
	if found == nil {
		v.t.Fatalf("%s shows no run", page)
	}
	return found[1]
}

// TestRunsReachServers runs tools over each transport, with a session and without.
func TestRunsReachServers(t *testing.T) {
	for _, kind := range mcptest.Transports() {
		for _, revision := range []string{"2025-11-25", mcptest.Modern} {
			t.Run(kind+" "+revision, func(t *testing.T) {
				server := newEchoServer(revision)
				v := newVisitor(t, func() mcp.Transport { return mcptest.Transport(t, server, kind) })
				v.Await("/explore?server=fs", `name=echo&amp;server=fs`)

				const typed = `{ "n":12345678901234567890.10,  "s" : "caf\u00e9 \/" }`
				at := v.run("echo", url.Values{"mode": {"json"}, "text": {typed}})
				page := v.Await(at, "&lt;b&gt;x&lt;/b&gt;")
				for _, want := range []string{"revision <span class=\"data\">" + revision, `<th scope="col">id</th>`, "half of it",
					"patchbay call fs echo"} {
					if !strings.Contains(page, want) {
						t.Errorf("the page of the run lacks %q:\n%s", want, page)
					}
				}
				if got := server.last(); got != typed {
					t.Errorf("the server received the arguments %s, want %s", got, typed)
				}
				v.run("echo", url.Values{"/n": {"1.50"}, "/s": {"a\r\nb"}, "open:/o": {"", "=k"}, "/o/k": {"[1.0]"}})
				const assembled = `{"n":1.50,"s":"a\nb","o":{"k":[1.0]}}`
				if !server.received(assembled) {
					t.Errorf("the server received the arguments %s, want %s", server.last(), assembled)
				}

				at = v.run("ask", nil)
				v.Await(at, "Which name?")
				answer := url.Values{"question": {"1"}, "action": {"accept"}, "open:": {""}}
				v.Post("/inbox/answer", answer)
				v.Await(at, "missing required property")
				answer.Set("/value", "Ann")
				v.Post("/inbox/answer", answer)
				v.Await(at, "hello Ann")
				at = v.run("ask", nil)
				v.Await(at, "Which name?")
				v.Post("/inbox/answer", url.Values{"question": {"2"}, "action": {"decline"}})
				v.Await(at, ">declined</pre>")

				at = v.run("model", nil)
				v.Await(at, "Sum up.")
				v.Post("/inbox/answer", url.Values{"question": {"3"}, "action": {"accept"}, "text": {"all"}})
				v.Await(at, "the model says all")

				server.mu.Lock()
				called := server.called
				server.mu.Unlock()
				at = v.run("wait", nil)
				<-called
				v.Await(at, ">running</span>")
				v.Post("/explore/cancel", url.Values{"run": {v.runID(at)}})
				v.Await(at, ">cancelled</span>")
				<-server.stopped
			})
		}
	}
}

// The editor keeps the typed text when it is switched between form and JSON, and when it is
// refused.
func TestEditorKeepsTheTypedText(t *testing.T) {
	server := newEchoServer(mcptest.Modern)
	v := newVisitor(t, func() mcp.Transport { return mcp.InMemory(server) })
	v.Await("/explore?server=fs", `name=echo&amp;server=fs`)
	for _, test := range []struct {
		name   string
		values url.Values
		want   []string
	}{
		{"form to JSON", url.Values{"/n": {"1.0"}, "/s": {"é"}, "do": {"json"}}, []string{"{\n  \"n\": 1.0,\n  \"s\": \"é\"\n}</textarea>"}},
		{"JSON to form", url.Values{"mode": {"json"}, "text": {`{"n":1.0}`}, "do": {"form"}}, []string{`name="/n" value="1.0"`}},
		{"JSON that no form shows", url.Values{"mode": {"json"}, "text": {"\n" + `{"n": "1"}`}, "do": {"form"}},
			[]string{`">` + "\n\n" + `{&#34;n&#34;: &#34;1&#34;}</textarea>`,
				"The form cannot show this text: /n is a string"}},
		{"invalid JSON", url.Values{"mode": {"json"}, "text": {"{\r\n  \"n\": x}"}}, []string{"line 2, column 8"}},
		{"no object", url.Values{"mode": {"json"}, "text": {"[]"}}, []string{"must be a JSON object"}},
		{"invalid number", url.Values{"/n": {"twelve"}}, []string{"want a number", `value="twelve"`}},
		{"against the schema", url.Values{"/n": {"1e31"}}, []string{`value="anyway"`, `class="error data"`}},
		{"add an item", url.Values{"add": {"/l"}, "/s": {"\nkept"}},
			[]string{`name="/l/0"`, `">` + "\n\nkept</textarea>"}}, // browsers drop the first line end
		{"many fields", url.Values{"open:/l": {"499"}, "add": {"/l"}}, nil},
	} {
		values := url.Values{"at-server": {"fs"}, "at-kind": {"tools"}, "at-name": {"echo"}, "at-timeout": {"60"},
			"mode": {"form"}, "open:": {""}, "do": {"run"}}
		for name, value := range test.values {
			values[name] = value
		}
		res, text := v.Send(http.MethodPost, "/explore/run", values)
		if test.want == nil {
			if res.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: status %d, want 400", test.name, res.StatusCode)
			}
			continue
		}
		if res.StatusCode != http.StatusSeeOther {
			t.Fatalf("%s: status %d\n%s", test.name, res.StatusCode, text)
		}
		page := v.See(res.Header.Get("Location"))
		for _, want := range test.want {
			if !strings.Contains(page, want) && !strings.Contains(html.UnescapeString(page), want) {
				t.Errorf("%s: the page lacks %q:\n%s", test.name, want, page)
			}
		}
	}
	if got := server.last(); got != "" {
		t.Errorf("the server received %s, want no call", got)
	}
	v.run("echo", url.Values{"/n": {"1e31"}, "do": {"anyway"}})
	if !server.received(`{"n":1e31}`) {
		t.Errorf("the server received %q, want the invalid arguments", server.last())
	}
}

// Text of a server is shown as text, with hidden characters escaped, and its data with the type
// that the data itself has.
func TestHostileServersAreShownAsText(t *testing.T) {
	const evil = `</textarea><script>alert(1)</script><img src=x onerror=alert(1)>` + "\u202e\u200b"
	png := []byte("\x89PNG\r\n\x1a\n and more")
	server := mcp.NewServer(evil, "1", nil)
	schema := json.RawMessage(fmt.Sprintf(`{"type":"object","title":%[1]q,"description":%[1]q,"properties":{%[1]q:{"type":"string",
		"title":%[1]q,"description":%[1]q,"default":%[1]q},"e":{"enum":[%[1]q]},"f":{"type":"object","properties":{%[1]q:{}}}}}`,
		strings.NewReplacer("\u202e", "", "\u200b", "").Replace(evil)))
	mcp.AddTool(server, &mcp.Tool{Name: "evil", Title: evil, Description: evil, InputSchema: schema},
		func(context.Context, map[string]any) (*mcp.CallToolResult, error) {
			svg := &mcp.ResourceContents{URI: "x:svg", MIMEType: "image/svg+xml", Text: "<svg onload=alert(1)>"}
			return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.Text(evil),
				&mcp.ImageContent{MIMEType: "image/svg+xml", Data: []byte("<svg onload=alert(1)></svg>")},
				&mcp.ImageContent{MIMEType: "text/html", Data: png}, &mcp.EmbeddedResource{Resource: svg},
				&mcp.ResourceLink{URI: "javascript:alert(1)", Name: evil}}}, nil
		})
	v := newVisitor(t, func() mcp.Transport { return mcp.InMemory(server) })
	pages := []string{v.Await("/explore?server=fs", "name=evil")}
	at := v.Post("/explore/run", url.Values{"at-server": {"fs"}, "at-kind": {"tools"}, "at-name": {"evil"},
		"at-timeout": {"9"}, "mode": {"json"}, "text": {"{}"}})
	pages = append(pages, v.Await(at, "shown as source"), v.See("/explore?server=fs&tab=schema"),
		v.See("/explore?server=fs&tab=definition"))
	for i, page := range pages {
		for _, forbidden := range []string{"<script>alert", "<img src=x", "<svg onload", "\u202e", "href=\"javascript:"} {
			if strings.Contains(page, forbidden) {
				t.Errorf("page %d contains %q", i, forbidden)
			}
		}
	}
	if !strings.Contains(pages[0], `\u{202e}`) {
		t.Errorf("hidden characters are not visible:\n%s", pages[0])
	}
	for part, want := range []string{"text/plain; charset=utf-8", "text/plain; charset=utf-8", "image/png"} {
		res, _ := v.Send(http.MethodGet, fmt.Sprintf("/explore/data?run=%s&part=%d", v.runID(at), part), nil)
		if got := res.Header.Get("Content-Type"); got != want || res.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("part %d: got type %q, want %q", part, got, want)
		}
	}
	for _, part := range []string{"-2", "5", "x"} {
		res, _ := v.Send(http.MethodGet, "/explore/data?run="+v.runID(at)+"&part="+part, nil)
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("part %s: status %d, want 404", part, res.StatusCode)
		}
	}
}

func TestManyToolsAreListedAndFiltered(t *testing.T) {
	server := mcp.NewServer("many", "1", nil)
	for i := range 1000 {
		mcp.AddTool(server, &mcp.Tool{Name: fmt.Sprintf("tool_%04d", i)},
			func(context.Context, struct{}) (string, error) { return "", nil })
	}
	v := newVisitor(t, func() mcp.Transport { return mcp.InMemory(server) })
	row := regexp.MustCompile(`<span class="name data">(\w+)`)
	names := func(page string) (all []string) {
		list := page[strings.Index(page, `<ul id="items"`):]
		for _, found := range row.FindAllStringSubmatch(list[:strings.Index(list, "</ul>")], -1) {
			all = append(all, found[1])
		}
		return all
	}
	all := names(v.Await("/explore?server=fs", "tool_0999"))
	if len(all) != 1000 || !slices.IsSorted(all) {
		t.Errorf("listed %d tools, want 1000 in the order of the server", len(all))
	}
	want := []string{"tool_0990", "tool_0991", "tool_0992", "tool_0993", "tool_0994", "tool_0995", "tool_0996",
		"tool_0997", "tool_0998", "tool_0999"}
	if got := names(v.See("/explore?server=fs&q=L_099")); !slices.Equal(got, want) {
		t.Errorf("filtered: got %q, want %q", got, want)
	}
}

// The history of a server contains its last runs, and the runs of another person are invisible.
// Large drafts take the place of the oldest, long before there are 200 drafts.
func TestDraftsAreBounded(t *testing.T) {
	mcptest.NoLeaks(t)
	e := newEchoServer(mcptest.Modern)
	v := newVisitor(t, func() mcp.Transport { return mcp.InMemory(e.Server) })
	v.Await("/explore?server=fs", `name=echo&amp;server=fs`)
	const first = "the first draft"
	invalid := func(text string) url.Values { return url.Values{"mode": {"json"}, "text": {text}} }
	at := v.run("echo", invalid(first))
	if page := v.See(at); !strings.Contains(page, first) {
		t.Fatalf("got %s, want the draft", page)
	}
	for range 5 {
		v.run("echo", invalid(strings.Repeat("x", 7<<19)))
	}
	if page := v.See(at); strings.Contains(page, first) {
		t.Error("17 MiB of later drafts are kept beside the first draft")
	}
}

func TestHistoryIsBounded(t *testing.T) {
	server := newEchoServer(mcptest.Modern)
	v := newVisitor(t, func() mcp.Transport { return mcp.InMemory(server) })
	v.Await("/explore?server=fs", `name=echo&amp;server=fs`)
	var at string
	for range 205 {
		at = v.run("echo", nil)
		v.Await(at, ">done</span>")
	}
	if page := v.See(at); !strings.Contains(page, "History: 200 runs") {
		t.Errorf("the page does not show 200 runs:\n%s", page)
	}
	if page := v.See("/explore?server=fs&name=echo&run=3"); strings.Contains(page, "<h3>Run 3</h3>") {
		t.Error("the page shows a run that left the history")
	}
}

// A page is drawn while its server does not respond, and names the error of a server that fails.
func TestServersThatDoNotRespond(t *testing.T) {
	v := newVisitor(t, func() mcp.Transport { return mcp.Command("/no/such/program") })
	page := v.See("/explore?server=fs")
	if !strings.Contains(page, "Connecting to fs") && !strings.Contains(page, "/no/such/program") {
		t.Errorf("the page shows no state:\n%s", page)
	}
	v.Await("/explore?server=fs", "/no/such/program")
	v.Await("/explore?server=broken", "no such server")
	if res, _ := v.Send(http.MethodGet, "/explore?server=none", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown server: status %d, want 404", res.StatusCode)
	}
}

// A server that logs and asks without end neither fills the memory nor the page.
func TestRunsOfTalkativeServersAreBounded(t *testing.T) {
	server := mcp.NewServer("talker", "1", &mcp.ServerOptions{Revisions: []string{"2025-11-25"}})
	mcp.AddTool(server, &mcp.Tool{Name: "talk"}, func(ctx context.Context, _ struct{}) (string, error) {
		mcp.Logger(ctx).Info(strings.Repeat("noise", 1<<20))
		large := mcp.SamplingMessage{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text(strings.Repeat("x", 1<<20))}}
		_, err := mcp.Sample(ctx, "large", &mcp.CreateMessageParams{MaxTokens: 9, Messages: []mcp.SamplingMessage{large}})
		return "", err
	})
	v := newVisitor(t, func() mcp.Transport { return mcptest.Transport(t, server, mcptest.Transports()[0]) })
	v.Await("/explore?server=fs", "name=talk")
	page := v.Await(v.run("talk", nil), "must have at most 262144")
	if strings.Contains(page, "noisenoise") || !strings.Contains(page, "a message of 5242") {
		t.Errorf("the page of %d bytes contains a large log message", len(page))
	}
}
