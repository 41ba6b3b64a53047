package apps_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const clockMeta = `{"csp":{"connectDomains":["https://api.example.com","wss://live.example.com"],
	"resourceDomains":["https://*.cdn.example.com"]},"permissions":{"geolocation":{},"clipboardWrite":{}},
	"domain":"clock.host.example","prefersBorder":true}`

// Requirement: UI-02
func TestViewsAndToolsAreDeclared(t *testing.T) {
	runOn(t, mcptest.Combinations(), newClock(t), apps.Declare(nil), func(t *testing.T, c *mcp.Client) {
		tools := listed(t, c)
		wantJSON(t, "_meta of the tool for both", tools["time"].Meta, `{"ui":{"resourceUri":"ui://clock/face"},"ui/resourceUri":"ui://clock/face"}`)
		wantJSON(t, "meta of the tool for views", tools["refresh"].Meta,
			`{"ui":{"resourceUri":"ui://clock/face","visibility":["app"]},"ui/resourceUri":"ui://clock/face"}`)
		if tools["plain"].Meta != nil {
			t.Errorf("_meta of a tool without a view: %v, want none", tools["plain"].Meta)
		}
		for r, err := range c.Resources(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if r.URI != clockURI || r.MIMEType != apps.MIMEType {
				t.Errorf("resource %s of type %s", r.URI, r.MIMEType)
			}
			wantJSON(t, "meta of the listed view", r.Meta["ui"], clockMeta)
		}
		res, err := c.ReadResource(t.Context(), clockURI)
		if err != nil || len(res.Contents) != 1 {
			t.Fatalf("read: %v, %v", res, err)
		}
		got := res.Contents[0]
		if got.Text != clockHTML || got.MIMEType != apps.MIMEType || got.URI != clockURI {
			t.Errorf("contents %+v", got)
		}
		wantJSON(t, "meta of the contents", got.Meta["ui"], clockMeta) // UI-03
	})
}

func listed(t *testing.T, c *mcp.Client) map[string]*mcp.Tool {
	t.Helper()
	tools := map[string]*mcp.Tool{}
	for tool, err := range c.Tools(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		tools[tool.Name] = tool
	}
	return tools
}

// Requirement: UI-01, EXT-07
func TestSupported(t *testing.T) {
	s := newClock(t)
	call := func(t *testing.T, c *mcp.Client) string {
		t.Helper()
		text, err := mcp.CallTool[*mcp.CallToolResult](t.Context(), c, "time", clockInput{"UTC"})
		if err != nil {
			t.Fatal(err)
		}
		return text.Text()
	}
	runOn(t, mcptest.Combinations(), s, apps.Declare(nil), func(t *testing.T, c *mcp.Client) {
		if got := call(t, c); got != "shown" {
			t.Errorf("result for a client with views %q, want shown", got)
		}
	})
	runOn(t, mcptest.Combinations(), s, nil, func(t *testing.T, c *mcp.Client) { // UI-06
		if got := call(t, c); got != "noon in UTC" {
			t.Errorf("result for a client without views %q, want noon in UTC", got)
		}
	})
	for settings, want := range map[string]bool{
		`{"mimeTypes":["text/plain","text/html; profile=\"mcp-app\""]}`:      true,
		`{"mimeTypes":["text/html;profile=mcp-app;charset=UTF-8"],"more":1}`: true,
		`{"mimeTypes":["text/html"]}`:                                        false,
		`{"mimeTypes":["text/html;profile=mcp-app;charset=utf-16"]}`:         false,
		`{"mimeTypes":"text/html;profile=mcp-app"}`:                          false,
		`{}`: false,
	} {
		opts := &mcp.ClientOptions{Extensions: map[string]json.RawMessage{apps.ID: json.RawMessage(settings)}}
		c := mcptest.Dial(t, s, modernInMemory, opts)
		if got := call(t, c) == "shown"; got != want {
			t.Errorf("settings %s: view shown %v", settings, got)
		}
	}
	if apps.Supported(context.Background()) {
		t.Error("Supported is true outside of a request")
	}
}

// Requirement: UI-01
func TestExtensionIsDeclared(t *testing.T) {
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			c := mcptest.Dial(t, newClock(t), on, nil)
			if _, ok := c.Capabilities().Extensions[apps.ID]; !ok {
				t.Errorf("extensions of the server: %v", c.Capabilities().Extensions)
			}
		})
	}
}

// Requirement: UI-06
func TestToolsForViewsAreHiddenFromClientsWithoutViews(t *testing.T) {
	s := newClock(t)
	runOn(t, mcptest.Combinations(), s, nil, func(t *testing.T, c *mcp.Client) {
		tools := listed(t, c)
		if tools["refresh"] != nil || tools["time"] == nil || tools["ask"] == nil || tools["plain"] == nil {
			t.Errorf("tools of a client without views: %v", tools)
		}
	})
}

func TestToolListsAreNotCachedPublicly(t *testing.T) {
	public := &mcp.ServerOptions{Logger: logger(t), Cache: mcp.Cache{TTL: time.Second, Public: true}}
	s := mcp.NewServer("test", "1", public)
	scope := func() string {
		t.Helper()
		c := mcptest.Connect(t, s, modernInMemory, nil)
		var page struct{ CacheScope string }
		if err := json.Unmarshal(c.Call("tools/list", nil), &page); err != nil {
			t.Fatal(err)
		}
		return page.CacheScope
	}
	views := apps.New(s)
	views.Add(&apps.View{URI: clockURI, Name: "clock"}, clockHTML)
	f := func(context.Context, struct{}) (string, error) { return "", nil }
	mcp.AddTool(s, views.WithUI(&mcp.Tool{Name: "both"}, &apps.ToolUI{View: clockURI}), f)
	if got := scope(); got != "public" {
		t.Errorf("cacheScope %s of a list that is equal for all clients, want public", got)
	}
	mcp.AddTool(s,
		views.WithUI(&mcp.Tool{Name: "app"}, &apps.ToolUI{Visibility: []apps.Visibility{apps.VisibilityApp}}), f)
	if got := scope(); got != "private" {
		t.Errorf("cacheScope %s of a list that depends on the client, want private", got)
	}
}

func TestWithUIDoesNotChangeTool(t *testing.T) {
	views := apps.New(newServer(t))
	views.Add(&apps.View{URI: clockURI, Name: "clock"}, clockHTML)
	tool := &mcp.Tool{Name: "time", Meta: mcp.Meta{"example.com/x": 1}}
	linked := views.WithUI(tool, &apps.ToolUI{View: clockURI})
	if len(tool.Meta) != 1 || len(linked.Meta) != 3 {
		t.Errorf("_meta of the tool %v, of the copy %v", tool.Meta, linked.Meta)
	}
}

func TestAddFileReadsFileForEachRequest(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "clock.html")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(clockHTML)
	s := newServer(t)
	apps.New(s).AddFile(&apps.View{URI: clockURI, Name: "clock"}, os.DirFS(dir), "clock.html")
	c := mcptest.Dial(t, s, modernInMemory, nil)
	write(clockHTML + "<p>2")
	res, err := c.ReadResource(t.Context(), clockURI)
	if err != nil || res.Contents[0].Text != clockHTML+"<p>2" {
		t.Errorf("read %v, %v", res, err)
	}
	write("no document")
	if res, err := c.ReadResource(t.Context(), clockURI); err == nil {
		t.Errorf("got %v for an invalid file", res.Contents[0])
	}
}

func TestInvalidViewsPanic(t *testing.T) {
	many := slices.Repeat([]string{"https://example.com"}, 33)
	for name, view := range map[string]apps.View{
		"another scheme": {URI: "https://example.com/", Name: "x"},
		"no host":        {URI: "ui://", Name: "x"},
		"a space":        {URI: "ui://a b", Name: "x"},
		"too long":       {URI: "ui://" + strings.Repeat("a", 3000), Name: "x"},
		"no scheme": {URI: "ui://a", Name: "x",
			Frame: apps.Frame{CSP: apps.CSP{ConnectDomains: []string{"example.com"}}}},
		"a directive": {URI: "ui://a", Name: "x",
			Frame: apps.Frame{CSP: apps.CSP{ResourceDomains: []string{"https://a.com; script-src *"}}}},
		"a keyword": {URI: "ui://a", Name: "x",
			Frame: apps.Frame{CSP: apps.CSP{ResourceDomains: []string{"'unsafe-eval'"}}}},
		"wss for resources": {URI: "ui://a", Name: "x",
			Frame: apps.Frame{CSP: apps.CSP{ResourceDomains: []string{"wss://a.com"}}}},
		"too many origins": {URI: "ui://a", Name: "x", Frame: apps.Frame{CSP: apps.CSP{FrameDomains: many}}},
		"no domain":        {URI: "ui://a", Name: "x", Frame: apps.Frame{Domain: "a/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := panics(t, func() { apps.New(newServer(t)).Add(&view, clockHTML) })
			if !strings.Contains(text, "ui://") {
				t.Errorf("the panic does not name the view: %s", text)
			}
			t.Log(text)
		})
	}
	for name, html := range map[string]string{
		"empty": "", "a fragment": "<p>hello", "not UTF-8": "<!doctype html>\xff", "a NUL": "<!doctype html>\x00",
		"too large": clockHTML + strings.Repeat(" ", 8<<20), "a doctype in a comment": "<!-- <!doctype html> --> <p>",
	} {
		t.Run(name, func(t *testing.T) {
			t.Log(panics(t, func() { apps.New(newServer(t)).Add(&apps.View{URI: clockURI, Name: "x"}, html) }))
			files := fstest.MapFS{"x.html": {Data: []byte(html)}}
			panics(t, func() { apps.New(newServer(t)).AddFile(&apps.View{URI: clockURI, Name: "x"}, files, "x.html") })
		})
	}
	panics(t, func() { apps.New(newServer(t)).AddFile(&apps.View{URI: clockURI, Name: "x"}, fstest.MapFS{}, "x.html") })
	panics(t, func() { apps.New(newServer(t)).AddFunc(nil, nil) })
	apps.New(newServer(t)).Add(&apps.View{URI: clockURI, Name: "x"}, "\ufeff\n<!-- made by hand -->\n<!DOCTYPE  HTML>")
}

func TestInvalidToolUIsPanic(t *testing.T) {
	for name, u := range map[string]*apps.ToolUI{
		"nil":                nil,
		"an unknown view":    {View: "ui://other"},
		"no visibility":      {View: clockURI, Visibility: []apps.Visibility{}},
		"unknown visibility": {View: clockURI, Visibility: []apps.Visibility{apps.VisibilityApp, "user"}},
	} {
		t.Run(name, func(t *testing.T) {
			views := apps.New(newServer(t))
			views.Add(&apps.View{URI: clockURI, Name: "clock"}, clockHTML)
			t.Log(panics(t, func() { views.WithUI(&mcp.Tool{Name: "time"}, u) }))
		})
	}
}
