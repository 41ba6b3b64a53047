package apps_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/access"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const clockHTML = "<!DOCTYPE html><title>clock</title>"

// emptyURIs are the URIs of the empty resources of the server clock. A browser must follow none.
var emptyURIs = []string{"file:///empty.txt", "ui://x", "javascript:alert(1)", "JavaScript:alert(1)", "vbscript:x",
	"data:text/html,x", "about:blank", "tel:1", "ftp://a.example/b", "ftps://a.example/b",
	"mailto:a@b.example"}

func newClock() *mcp.Server {
	s := mcp.NewServer("clock", "1", nil)
	for _, uri := range emptyURIs {
		mcp.AddResource(s, &mcp.Resource{URI: uri, Name: "empty"},
			func(context.Context, string) (string, error) { return "", nil })
	}
	views := apps.New(s)
	views.Add(&apps.View{URI: "ui://clock/face", Name: "face"}, clockHTML)
	mcp.AddTool(s, views.WithUI(&mcp.Tool{Name: "time"}, &apps.ToolUI{View: "ui://clock/face"}),
		func(context.Context, map[string]any) (string, error) { return "noon", nil })
	return s
}

func connect(context.Context, string, *mcp.Principal) (mcp.Transport, error) {
	return mcp.InMemory(newClock()), nil
}

// A viewer is a browser that shows the app of a run.
type viewer struct {
	*consoletest.Visitor
	t      *testing.T
	base   string
	client *http.Client
	load   string
	source string // the URL of the document

	revision string // of a run; "" for the connection of the host
}

func newViewer(t *testing.T, prepare func(*console.Options)) *viewer {
	t.Helper()
	s := consoletest.New(t, func(o *console.Options) {
		o.ViewAddr = "127.0.0.1:0"
		o.Connect = connect
		o.Mask = func(text string) string { return strings.ReplaceAll(text, "a secret", "[secret]") }
		if prepare != nil {
			prepare(o)
		}
	})
	v := &viewer{Visitor: s.Visitor(), t: t, base: s.Base, client: s.Browser()}
	v.Await("/explore?server=fs&kind=tools&name=time", "app</span>")
	v.run()
	return v
}

// An app of a run in a selected revision receives the id of the call, although the traffic of the run is recorded.
func TestAppOfSelectedRevisionReceivesCallID(t *testing.T) {
	mcptest.NoLeaks(t)
	v := newViewer(t, func(o *console.Options) {
		o.Dial = func(context.Context, string, *mcp.Principal) (mcp.Transport, error) {
			return mcp.Trace(mcp.InMemory(newClock()), func(mcp.Frame) {}), nil
		}
	})
	v.revision = "2025-11-25"
	v.run()
	next := v.open()
	v.document("")
	v.post(`{"jsonrpc":"2.0","id":1,"method":"ui/initialize","params":{"appCapabilities":{}}}`)
	if got := next(); !regexp.MustCompile(`"toolInfo":\{"id":[^,]+,"tool":\{"name":"time"`).MatchString(got) {
		t.Errorf("the response to ui/initialize: %s", got)
	}
}

// start runs the tool, and returns the page of the run.
func (v *viewer) start() string {
	return v.Post("/explore/run", url.Values{"at-server": {"fs"}, "at-kind": {"tools"}, "at-name": {"time"},
		"at-timeout": {"60"}, "at-revision": {v.revision}, "mode": {"json"}, "text": {"{}"}})
}

// run runs the tool, and opens its app.
func (v *viewer) run() {
	v.t.Helper()
	text := v.Await(v.start(), "Show the app")
	id := regexp.MustCompile(`name="run" value="(\d+)"`).FindStringSubmatch(text)
	at := v.Post("/apps/open", url.Values{"run": {id[1]}})
	_, v.load, _ = strings.Cut(at, "load=")
	res, text := v.Send(http.MethodGet, at, nil)
	source := regexp.MustCompile(`data-source="([^"]+)"`).FindStringSubmatch(text)
	if source == nil {
		v.t.Fatalf("GET %s: status %d, no document in\n%s", at, res.StatusCode, text)
	}
	v.source = source[1]
	origin, _, _ := strings.Cut(v.source, "/view/")
	if policy := res.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "frame-src "+origin+";") {
		v.t.Errorf("policy %q, want frames of %s only", policy, origin)
	}
}

// document returns the response of the second listener.
func (v *viewer) document(host string) (*http.Response, string) {
	v.t.Helper()
	source := strings.Replace(v.source, "localhost", "127.0.0.1", 1) // without the resolver
	req, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, source, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	if host != "" {
		req.Host = host
	}
	return v.do(req)
}

func (v *viewer) do(req *http.Request) (*http.Response, string) {
	v.t.Helper()
	res, err := v.client.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return res, string(text)
}

// open opens the stream, and returns a function that reads the next message for the document.
func (v *viewer) open() (next func() string) {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, v.base+"/apps/stream?load="+v.load, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	res, err := v.client.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		v.t.Fatalf("stream: %v, %v", res, err)
	}
	v.t.Cleanup(func() { _ = res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	return func() string {
		v.t.Helper()
		for lines.Scan() {
			var line struct {
				Message json.RawMessage
				End     string
			}
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				v.t.Fatal(err)
			}
			if line.Message != nil || line.End != "" {
				return string(line.Message) + line.End
			}
		}
		v.t.Fatal("the stream ended")
		return ""
	}
}

// post sends messages of the document.
func (v *viewer) post(messages ...string) {
	v.t.Helper()
	res, text := v.raw("/apps/message?load="+v.load, strings.Join(messages, "\n"))
	if res.StatusCode != http.StatusNoContent {
		v.t.Fatalf("messages: status %d, %s", res.StatusCode, text)
	}
}

func (v *viewer) raw(path, body string) (*http.Response, string) {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.base+path, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	return v.do(req)
}

// question returns the ID of the request of the app on a page. The badge of the page may name a request
// that the page does not contain yet.
func (v *viewer) question(at string) string {
	v.t.Helper()
	shown := v.Await(at, `name="question" value="`)
	return regexp.MustCompile(`name="question" value="(\d+)"`).FindStringSubmatch(shown)[1]
}

func TestAppsTalkAndWaitForThePerson(t *testing.T) {
	v := newViewer(t, nil)
	if res, _ := v.document(""); res.StatusCode != http.StatusGone {
		t.Errorf("the document without a stream: status %d, want 410", res.StatusCode)
	}
	next := v.open()
	if res, _ := v.document("evil.example"); res.StatusCode != http.StatusForbidden {
		t.Errorf("the document at another host: status %d, want 403", res.StatusCode)
	}
	res, text := v.document("")
	policy := res.Header.Get("Content-Security-Policy")
	if text != clockHTML || !strings.Contains(policy, "sandbox "+apps.Sandbox+"; frame-ancestors "+v.base) ||
		len(res.Cookies()) > 0 {
		t.Errorf("the document: status %d, %q, %v", res.StatusCode, text, res.Header)
	}
	if res, _ := v.document(""); res.StatusCode != http.StatusGone {
		t.Errorf("the document again: status %d, want 410", res.StatusCode)
	}
	v.post(`{"jsonrpc":"2.0","id":1,"method":"ui/initialize","params":{"appCapabilities":{}}}`)
	if got := next(); !strings.Contains(got, `"serverTools"`) ||
		!regexp.MustCompile(`"toolInfo":\{"id":[1-9]\d*,"tool":\{"name":"time"`).MatchString(got) {
		t.Errorf("the response to ui/initialize: %s", got)
	}
	v.post(`{"jsonrpc":"2.0","method":"ui/notifications/initialized"}`)
	for _, want := range []string{"tool-input", "tool-result"} {
		if got := next(); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	at := "/apps?load=" + v.load
	for id, answer := range map[int]string{2: "decline", 3: "accept"} {
		v.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"time","arguments":`+
			`{"zone":"a secret","n":1e2}}}`, id))
		shown := v.Await("/inbox", `name="question" value="`)
		for _, want := range []string{"call the tool time", "(1) Inbox", `href="` + at, "ui://clock/face",
			"the local user", "The server claims",
			"not pinned", "&#34;zone&#34;: &#34;[secret]&#34;", "1e2", "Approve once"} {
			if !strings.Contains(shown, want) {
				t.Errorf("the Inbox lacks %q:\n%s", want, shown)
			}
		}
		form := url.Values{"question": {v.question(at)}, "action": {answer}}
		if to := v.Post("/inbox/answer", form); to != at {
			t.Errorf("after the answer the browser is at %s, want %s", to, at)
		}
		if got := next(); strings.Contains(got, "noon") != (answer == "accept") {
			t.Errorf("%s: got %s", answer, got)
		}
		form.Set("action", "accept")
		if res, text := v.Send(http.MethodPost, "/inbox/answer", form); res.StatusCode != http.StatusConflict ||
			strings.Contains(text, "approved once") != (answer == "accept") {
			t.Errorf("an answer again: status %d, %s", res.StatusCode, text)
		}
	}
	v.Post("/apps/set", url.Values{"load": {v.load}, "theme": {"dark"}, "width": {"390"}, "mode": {"inline"}})
	if got := next(); !strings.Contains(got, `"theme":"dark"`) || !strings.Contains(got, `"width":390`) {
		t.Errorf("after a change of the settings got %s", got)
	}
	v.post("not JSON", `{"jsonrpc":"2.0","id":"x","method":"ui/nothing"}`)
	v.Await(at, "ui/nothing")
}

// A page that cancels its request withdraws the question of the person.
func TestAppsCancelTheirRequests(t *testing.T) {
	v := newViewer(t, nil)
	next := v.open()
	v.post(`{"jsonrpc":"2.0","id":1,"method":"ui/initialize","params":{"appCapabilities":{}}}`)
	next()
	v.post(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"time"}}`)
	at := "/apps?load=" + v.load
	id := v.question(at)
	v.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	v.Await("/inbox", "Nothing waits for a decision")
	form := url.Values{"question": {id}, "action": {"accept"}}
	if res, text := v.Send(http.MethodPost, "/inbox/answer", form); res.StatusCode != http.StatusConflict {
		t.Errorf("an answer after the cancellation: status %d, %s", res.StatusCode, text)
	}
	v.post(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	if got := next(); !strings.Contains(got, `"id":3`) {
		t.Errorf("after the cancellation got %s, want the response to the next request only", got)
	}
}

func TestAppsOfferFilesAndEnd(t *testing.T) {
	v := newViewer(t, nil)
	next := v.open()
	v.post(`{"jsonrpc":"2.0","id":1,"method":"ui/initialize","params":{"appCapabilities":{}}}`)
	next()
	v.post(`{"jsonrpc":"2.0","id":2,"method":"ui/download-file","params":{"contents":[{"type":"resource",` +
		`"resource":{"uri":"x:/..%2Fexport.html","text":"<script>"}},` +
		`{"type":"resource_link","name":"f","uri":"ui://clock/face"}]}}`)
	at := "/apps?load=" + v.load
	v.Await(at, "_export.html</strong>")
	v.Post("/inbox/answer", url.Values{"question": {v.question(at)}, "action": {"accept"}})
	if got := next(); !strings.Contains(got, `"result":{}`) {
		t.Errorf("the response to a download: %s", got)
	}
	for n, want := range []string{"<script>", clockHTML} {
		res, text := v.Send(http.MethodGet, fmt.Sprintf("/apps/file?load=%s&file=%d", v.load, n), nil)
		if text != want || res.Header.Get("Content-Type") != "application/octet-stream" ||
			!strings.HasPrefix(res.Header.Get("Content-Disposition"), "attachment") {
			t.Errorf("file %d: %q, %v", n, text, res.Header)
		}
	}
	v.post(`{"jsonrpc":"2.0","method":"ui/notifications/request-teardown"}`)
	if got := next(); got != "The app asked to be closed." {
		t.Errorf("after the request to be closed: %s", got)
	}
	v.Await(at, "Show the app again")
	res, _ := v.Send(http.MethodPost, "/apps/set", url.Values{"load": {"99"}})
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("settings of an unknown app: status %d", res.StatusCode)
	}
}

// The page links to the web only: it offers a resource of the server as a file, also if the resource is empty.
func TestAppsLinkOnlyToTheWeb(t *testing.T) {
	v := newViewer(t, nil)
	next := v.open()
	v.post(`{"jsonrpc":"2.0","id":1,"method":"ui/initialize","params":{"appCapabilities":{}}}`)
	next()
	const web = "https://a.example/x?a=1&b=%22%3E'"
	contents := []map[string]string{{"type": "resource_link", "name": "web", "uri": web}}
	for _, uri := range emptyURIs {
		contents = append(contents, map[string]string{"type": "resource_link", "name": "empty", "uri": uri})
	}
	request, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 2, "method": "ui/download-file",
		"params": map[string]any{"contents": contents}})
	if err != nil {
		t.Fatal(err)
	}
	v.post(string(request))
	at := "/apps?load=" + v.load
	v.Post("/inbox/answer", url.Values{"question": {v.question(at)}, "action": {"accept"}})
	if got := next(); !strings.Contains(got, `"result":{}`) {
		t.Fatalf("the response to a download: %s", got)
	}
	_, shown, _ := strings.Cut(v.See(at), `<section id="app-files"`)
	shown, _, _ = strings.Cut(shown, "</section>")
	links := regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(shown, -1)
	if len(links) != len(contents) {
		t.Fatalf("got %d links, want %d: %s", len(links), len(contents), shown)
	}
	for i, link := range links {
		want := fmt.Sprintf("/apps/file?file=%d&load=%s", i, v.load)
		if i == 0 {
			want = web
		}
		if got := html.UnescapeString(link[1]); got != want {
			t.Errorf("%s: the link is %q, want %q", contents[i]["uri"], got, want)
		}
		if i == 0 {
			continue
		}
		if res, text := v.Send(http.MethodGet, want, nil); res.StatusCode != http.StatusOK || text != "" {
			t.Errorf("%s: status %d, %q, want an empty file", contents[i]["uri"], res.StatusCode, text)
		}
	}
}

// A proxy serves the page of an app at its own origin.
func TestAppsHaveTheOriginOfAProxy(t *testing.T) {
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	v := newViewer(t, func(o *console.Options) { o.ViewAddr, o.ViewOrigin = addr, "https://views.example" })
	v.open()
	if !strings.HasPrefix(v.source, "https://views.example/view/") {
		t.Errorf("the app is at %s, want the origin of the proxy", v.source)
	}
	v.source = strings.Replace(v.source, "https://views.example", "http://"+addr, 1)
	if res, _ := v.document(""); res.StatusCode != http.StatusForbidden {
		t.Errorf("the document at the address: status %d, want 403", res.StatusCode)
	}
	res, text := v.document("views.example")
	policy := res.Header.Get("Content-Security-Policy")
	if text != clockHTML || !strings.Contains(policy, "frame-ancestors "+v.base) {
		t.Errorf("the document: status %d, %q, %q", res.StatusCode, text, policy)
	}
}

// A console that other machines open needs an origin for apps, and says how to set the origin.
func TestRemoteConsolesNameTheFlagForApps(t *testing.T) {
	s := consoletest.New(t, func(o *console.Options) {
		o.Connect, o.Access = connect, &access.Access{URL: "https://console.example.com"}
	})
	v := &viewer{Visitor: s.Visitor(), t: t}
	v.Await("/explore?server=fs&kind=tools&name=time", "app</span>")
	text := v.Await(v.start(), "--view-origin URL")
	if strings.Contains(text, "Show the app") {
		t.Error("the page offers an app that cannot be shown")
	}
}

// Browsers may connect to localhost at ::1: a program that has the default port there must not get the
// requests for apps, nor keep the console from starting.
func TestAppsUseAnotherPortThanOtherPrograms(t *testing.T) {
	var config net.ListenConfig
	first, err := config.Listen(t.Context(), "tcp", "[::1]:0")
	if err != nil {
		t.Skip("without IPv6: ", err)
	}
	defer first.Close()
	_, standard, err := net.SplitHostPort(console.DefaultViewAddr)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := config.Listen(t.Context(), "tcp", "[::1]:"+standard); err == nil { // or another program has it
		defer l.Close()
	}
	v := newViewer(t, func(o *console.Options) { o.ViewAddr = "" })
	if u, err := url.Parse(v.source); err != nil || u.Port() == standard {
		t.Errorf("the app is at %s, %v, want another port than %s", v.source, err, standard)
	}
	_, port, err := net.SplitHostPort(first.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, err = console.New(&console.Options{Addr: "127.0.0.1:0", ViewAddr: "127.0.0.1:" + port, Connect: connect,
		Admin: func(*mcp.Principal) *http.Client { return v.client }, Gateway: true})
	if err == nil || !strings.Contains(err.Error(), "another program listens at [::1]:"+port) {
		t.Errorf("with a given address got %v, want an error that names the port", err)
	}
}

// A console that other machines open has no second origin unless it is configured.
func TestRemoteConsolesShowNoApps(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, func(o *console.Options) {
		o.Connect = connect
		o.Authenticate = func(*http.Request) (*mcp.Principal, page.Role, error) {
			return &mcp.Principal{Subject: "ann"}, page.RoleOperator, nil
		}
	})
	res, _ := s.Send(s.Stranger(), http.MethodPost, "/apps/open", url.Values{"run": {"1"}})
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("a remote console without a second origin: status %d, want 404", res.StatusCode)
	}
}
