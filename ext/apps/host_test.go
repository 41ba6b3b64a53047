package apps_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestHostReadsToolsAndPage(t *testing.T) {
	runOn(t, mcptest.Combinations(), newClock(t), apps.Declare(nil), func(t *testing.T, c *mcp.Client) {
		h := apps.NewHost(c, &apps.HostOptions{Logger: logger(t)})
		tools, err := h.ModelTools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range tools {
			names = append(names, tool.Name)
		}
		if got := strings.Join(names, " "); got != "ask plain time" {
			t.Errorf("tools of the model %q, want \"ask plain time\"", got)
		}
		p, err := h.Page(t.Context(), "time")
		if err != nil {
			t.Fatal(err)
		}
		if p.HTML != clockHTML || p.URI != clockURI || len(p.Dropped) > 0 {
			t.Errorf("page %+v", p)
		}
		wantJSON(t, "frame", p.Frame, clockMeta)
		if got := p.Allow(); got != "geolocation; clipboard-write" {
			t.Errorf("allow is %q", got)
		}
		if p, err := h.Page(t.Context(), "plain"); p != nil || err != nil {
			t.Errorf("page of a tool without a view: %v, %v", p, err)
		}
		if p, err := h.Page(t.Context(), "unknown"); err == nil {
			t.Errorf("page of an unknown tool: %v, want an error", p)
		}
	})
}

// Requirement: UI-04
func TestPageHeader(t *testing.T) {
	p := &apps.Page{URI: clockURI, HTML: clockHTML, Frame: clockFrame()}
	h, err := p.Header(&apps.HeaderOptions{Embedder: "https://host.example"})
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	maps.Copy(header, h)
	for name, want := range map[string]string{
		"Content-Security-Policy": p.Policy() + "; sandbox allow-scripts allow-forms; frame-ancestors https://host.example",
		"Permissions-Policy":      "camera=(), microphone=()",
		"X-Content-Type-Options":  "nosniff",
		"Referrer-Policy":         "no-referrer",
		"Content-Type":            "text/html; charset=utf-8",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
	if strings.Contains(apps.Sandbox, "allow-same-origin") || strings.Contains(apps.Sandbox, "top-navigation") {
		t.Errorf("sandbox %q allows same-origin or top-navigation", apps.Sandbox)
	}
	if h, err := p.Header(&apps.HeaderOptions{OwnOrigin: true}); err != nil ||
		!strings.HasSuffix(h["Content-Security-Policy"][0], "; sandbox allow-scripts allow-forms allow-same-origin") {
		t.Errorf("header with OwnOrigin: %v, %v", h, err)
	}
	if h, err := p.Header(nil); err != nil ||
		!strings.HasSuffix(h["Content-Security-Policy"][0], "; sandbox "+apps.Sandbox) {
		t.Errorf("header without options: %v, %v", h, err)
	}
	for _, bad := range []string{"host.example", "https://host.example; sandbox", "*"} {
		if h, err := p.Header(&apps.HeaderOptions{Embedder: bad}); err == nil {
			t.Errorf("embedder %q: got %v", bad, h)
		}
	}
	if p.Digest() != (&apps.Page{HTML: clockHTML}).Digest() || p.Digest() == (&apps.Page{HTML: "other"}).Digest() {
		t.Error("the digest does not depend on the HTML alone")
	}
}

// A hostileServer is a server with invalid metadata and contents.
type hostileServer struct {
	toolMeta, listMeta string
	contents           string
}

func (s hostileServer) client(t testing.TB, opts *apps.HostOptions) *apps.Host {
	t.Helper()
	server := mcp.NewServer("hostileServer", "1", &mcp.ServerOptions{Logger: logger(t), Middleware: []mcp.Middleware{
		func(next mcp.Handler) mcp.Handler {
			return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				switch req.Method {
				case "tools/list":
					return s.raw(`"tools":[{"name":"t","inputSchema":{"type":"object"}%s}]`, s.toolMeta), nil
				case "resources/list":
					return s.raw(`"resources":[{"uri":"ui://v","name":"v"%s}]`, s.listMeta), nil
				case "resources/read":
					return mcp.RawResult(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[` + s.contents + `]}`), nil
				}
				return next.ServeMCP(ctx, req)
			})
		},
	}})
	mcp.AddTool(server, &mcp.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) { return "", nil })
	mcp.AddResource(server, &mcp.Resource{URI: "ui://v", Name: "v"},
		func(context.Context, string) (string, error) { return "", nil })
	if opts == nil {
		opts = &apps.HostOptions{}
	}
	opts.Logger = logger(t)
	return apps.NewHost(mcptest.Dial(t, server, modernInMemory, apps.Declare(nil)), opts)
}

func (hostileServer) raw(format, meta string) mcp.RawResult {
	if meta != "" {
		meta = `,"_meta":` + meta
	}
	return mcp.RawResult(`{"resultType":"complete","ttlMs":0,"cacheScope":"private",` + fmt.Sprintf(format, meta) + `}`)
}

const (
	hostileTool = `{"ui":{"resourceUri":"ui://v"}}`
	hostileView = `{"uri":"ui://v","mimeType":"text/html;profile=mcp-app","text":"<!doctype html>"`
)

// Requirement: EXT-08
func TestInvalidPagesAreRefused(t *testing.T) {
	for name, s := range map[string]hostileServer{
		"another scheme":                 {toolMeta: `{"ui":{"resourceUri":"https://example.com/"}}`},
		"a file":                         {toolMeta: `{"ui":{"resourceUri":"file:///etc/passwd"}}`},
		"a control character":            {toolMeta: `{"ui":{"resourceUri":"ui://\u0000"}}`},
		"another scheme in the flat key": {toolMeta: `{"ui/resourceUri":"javascript:alert(1)"}`},
		"ui is a string":                 {toolMeta: `{"ui":"ui://v"}`},
		"no contents":                    {toolMeta: hostileTool},
		"two contents":                   {toolMeta: hostileTool, contents: hostileView + `},` + hostileView + `}`},
		"another URI":                    {toolMeta: hostileTool, contents: `{"uri":"ui://w","mimeType":"text/html;profile=mcp-app","text":"x"}`},
		"plain HTML":                     {toolMeta: hostileTool, contents: `{"uri":"ui://v","mimeType":"text/html","text":"x"}`},
		"no type":                        {toolMeta: hostileTool, contents: `{"uri":"ui://v","text":"x"}`},
		"another charset":                {toolMeta: hostileTool, contents: `{"uri":"ui://v","mimeType":"text/html;profile=mcp-app;charset=utf-7","text":"x"}`},
		"an empty text":                  {toolMeta: hostileTool, contents: `{"uri":"ui://v","mimeType":"text/html;profile=mcp-app","text":""}`},
		"text and blob":                  {toolMeta: hostileTool, contents: hostileView + `,"blob":"eA=="}`},
		"a blob that is not UTF-8": {toolMeta: hostileTool,
			contents: `{"uri":"ui://v","mimeType":"text/html;profile=mcp-app","blob":"/w=="}`},
		"too large":                  {toolMeta: hostileTool, contents: `{"uri":"ui://v","mimeType":"text/html;profile=mcp-app","text":"` + strings.Repeat("x", 1001) + `"}`},
		"ui of the view is a string": {toolMeta: hostileTool, contents: hostileView + `,"_meta":{"ui":"x"}}`},
		"csp is a string":            {toolMeta: hostileTool, contents: hostileView + `,"_meta":{"ui":{"csp":"default-src *"}}}`},
		"a list of numbers":          {toolMeta: hostileTool, contents: hostileView + `,"_meta":{"ui":{"csp":{"connectDomains":[1]}}}}`},
		"camera true":                {toolMeta: hostileTool, contents: hostileView + `,"_meta":{"ui":{"permissions":{"camera":true}}}}`},
		"large metadata":             {toolMeta: hostileTool, contents: hostileView + `,"_meta":{"ui":{"x":"` + strings.Repeat("x", 70_000) + `"}}}`},
		"ui of the list is an array": {toolMeta: hostileTool, contents: hostileView + `}`, listMeta: `{"ui":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := s.client(t, &apps.HostOptions{MaxPage: 1000}).Page(t.Context(), "t")
			if err == nil {
				t.Errorf("got the page %+v, want an error", p)
			}
			t.Log(err)
		})
	}
}

func TestInvalidMetadataIsDropped(t *testing.T) {
	const asked = `,"_meta":{"ui":{"csp":{
		"connectDomains":["https://a.example/","http://localhost:3000","https://router","https://nas.local","https://a.example; script-src *"],
		"resourceDomains":["https://cdn.example","'unsafe-eval'","data:"]},
		"permissions":{"camera":{},"microphone":null},"domain":"evil/path","later":{}}}}`
	s := hostileServer{toolMeta: hostileTool, contents: hostileView + asked}
	p, err := s.client(t, nil).Page(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	wantJSON(t, "frame", p.Frame, `{"csp":{"connectDomains":["https://a.example"],"resourceDomains":["https://cdn.example"]},"permissions":{"camera":{}}}`)
	if len(p.Dropped) != 7 {
		t.Errorf("%d values are dropped, want 7: %q", len(p.Dropped), p.Dropped)
	}
	p, err = s.client(t, &apps.HostOptions{InsecureLocal: true}).Page(t.Context(), "t")
	if err != nil || len(p.Frame.CSP.ConnectDomains) != 4 {
		t.Errorf("with local origins: %+v, %v", p, err)
	}
}

func TestPrivateNamesAreDropped(t *testing.T) {
	for name, local := range map[string]bool{
		"router": true, "a.local": true, "a.internal": true, "a.lan": true, "nas.home": true, "a.b.home.arpa": true, "wiki.corp": true,
		"wiki.intranet": true, "a.private": true, "x.localdomain": true, "*.nas.home": true, "NAS.Home": true,
		"home.example": false, "corp.com": false, "a.localdomain.org": false, "nothome": true, "a.nothome": false,
	} {
		s := hostileServer{toolMeta: hostileTool, contents: hostileView + `,"_meta":{"ui":{"csp":{"connectDomains":["https://` + name + `"]}}}}`}
		p, err := s.client(t, nil).Page(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		if dropped := len(p.Frame.CSP.ConnectDomains) == 0; dropped != local || len(p.Dropped) > 1 {
			t.Errorf("%s: dropped is %v: %q", name, dropped, p.Dropped)
		}
	}
}

func TestFrameFromResourceList(t *testing.T) {
	s := hostileServer{toolMeta: `{"ui/resourceUri":"ui://v"}`, contents: hostileView + `}`, listMeta: `{"ui":{"permissions":{"camera":{}}}}`}
	p, err := s.client(t, nil).Page(t.Context(), "t")
	if err != nil || p.Allow() != "camera" {
		t.Errorf("page %+v, %v", p, err)
	}
	s.contents = hostileView + `,"_meta":{"ui":{}}}`
	if p, err = s.client(t, nil).Page(t.Context(), "t"); err != nil || p.Allow() != "" {
		t.Errorf("contents without permissions: %+v, %v", p, err)
	}
}

func TestVisibility(t *testing.T) {
	for meta, want := range map[string]string{
		`{}`:                                    "model app",
		`{"ui":null}`:                           "model app",
		`{"ui":{}}`:                             "model app",
		`{"ui":{"visibility":["app"]}}`:         "app",
		`{"ui":{"visibility":["model"]}}`:       "model",
		`{"ui":{"visibility":["model","x"]}}`:   "model",
		`{"ui":{"visibility":["app","model"]}}`: "model app",
		`{"ui":{"visibility":[]}}`:              "",
		`{"ui":{"visibility":["Model"]}}`:       "",
		`{"ui":{"visibility":"app"}}`:           "",
		`{"ui":{"visibility":[["app"]]}}`:       "",
		`{"ui":"app"}`:                          "",
		`{"ui":{"resourceUri":7}}`:              "",
	} {
		tool := &mcp.Tool{Name: "t"}
		if err := json.Unmarshal([]byte(meta), &tool.Meta); err != nil {
			t.Fatal(err)
		}
		u, err := apps.ToolUIOf(tool)
		var who []string
		if u.ForModel() {
			who = append(who, "model")
		}
		if u.ForApp() {
			who = append(who, "app")
		}
		if got := strings.Join(who, " "); got != want {
			t.Errorf("%s: visible to %q, want %q (%v)", meta, got, want, err)
		}
	}
}

func TestLongOriginListsAreTruncated(t *testing.T) {
	var asked []string
	for i := range 40 {
		asked = append(asked, fmt.Sprintf(`"https://a%d.example"`, i))
	}
	s := hostileServer{toolMeta: hostileTool, contents: hostileView + `,"_meta":{"ui":{"csp":{"frameDomains":[` + strings.Join(asked, ",") + `]}}}}`}
	p, err := s.client(t, nil).Page(t.Context(), "t")
	if err != nil || len(p.Frame.CSP.FrameDomains) != 32 || len(p.Dropped) != 1 {
		t.Errorf("page %+v, %v", p, err)
	}
}
