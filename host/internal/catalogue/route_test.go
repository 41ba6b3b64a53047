package catalogue_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/uritemplate"
)

// resourcesAnd returns a server with resources and templates.
func resourcesAnd(name string, uris, templates []string) catalogue.Server {
	return server(name, map[catalogue.Kind][]string{
		catalogue.Resources: each(resource, uris), catalogue.Templates: each(template, templates)})
}

func wantRoute(t *testing.T, c *catalogue.Catalogue, uri, server, original string) {
	t.Helper()
	r, ok := c.Route(uri)
	if r.Server != server || r.URI != original || ok != (server != "") {
		t.Errorf("%s: got %+v, %t, want %q of %q", uri, r, ok, original, server)
	}
}

func TestTheFirstServerKeepsAURI(t *testing.T) {
	c := merge(nil, withURIs("a", "file:///x", "ui://app/page"), withURIs("b", "file:///x", "ui://app/page", "file:///y?q#f"))
	wantNames(t, c, catalogue.Resources, "file:///x", "ui://app/page",
		"patchbay://b/file%3A%2F%2F%2Fx", "file:///y?q#f", "ui://patchbay/b/ui%3A%2F%2Fapp%2Fpage")
	wantRoute(t, c, "file:///x", "a", "file:///x")
	wantRoute(t, c, "patchbay://b/file%3A%2F%2F%2Fx", "b", "file:///x")
	wantRoute(t, c, "ui://patchbay/b/ui%3A%2F%2Fapp%2Fpage", "b", "ui://app/page")
	wantRoute(t, c, "file:///y?q#f", "b", "file:///y?q#f")
	wantRoute(t, c, "file:///z", "", "")
	wantRoute(t, c, "patchbay://c/file%3A%2F%2F%2Fx", "", "")
	wantRoute(t, c, "patchbay://a/file%3A%2F%2F%2Fx", "a", "file:///x")
	if got := string(c.Items(catalogue.Resources)[2].Definition()); got != resource("patchbay://b/file%3A%2F%2F%2Fx") {
		t.Errorf("got the definition %s", got)
	}
	if r, _ := c.Route("patchbay://b/file%3A%2F%2F%2Fx"); r.Item != c.Items(catalogue.Resources)[2] {
		t.Error("the route has another item")
	}
}

func TestServersCannotSquatOnMappedURIs(t *testing.T) {
	mapped := "patchbay://b/file%3A%2F%2F%2Fx"
	c := merge(nil, withURIs("a", "file:///x", mapped, "ui://patchbay/b/x"), withURIs("b", "file:///x"))
	wantRoute(t, c, mapped, "b", "file:///x")
	for _, item := range c.Items(catalogue.Resources) {
		wantRoute(t, c, item.Public, item.Server, item.Original)
	}
	if got := len(c.Items(catalogue.Resources)); got != 4 {
		t.Errorf("got %d resources, want 4", got)
	}
}

func TestMostSpecificTemplateIsUsed(t *testing.T) {
	c := merge(nil, resourcesAnd("a", []string{"file:///home/readme"}, []string{"file:///{+path}", "db://{table}{?q*}"}),
		resourcesAnd("b", nil, []string{"file:///home/{name}", "file:///{+path}", "{+any}"}))
	wantRoute(t, c, "file:///home/readme", "a", "file:///home/readme")
	wantRoute(t, c, "file:///home/x", "b", "file:///home/x")
	wantRoute(t, c, "file:///etc/x", "a", "file:///etc/x")
	wantRoute(t, c, "db://users?q=1&q=2", "a", "db://users?q=1&q=2")
	wantRoute(t, c, "other:x", "b", "other:x")
	wantRoute(t, c, "patchbay://b/file:///etc/x", "b", "file:///etc/x")
	if r, _ := c.Route("patchbay://b/file:///etc/x"); r.Item == nil || r.Item.Original != "file:///{+path}" {
		t.Errorf("got %+v, want the template of b", r)
	}
}

func TestExpansionsOfMappedTemplatesLeadBack(t *testing.T) {
	for _, text := range []string{"file:///{+path}", "x://{a}/b%20c/{b}{?c,d*}", "ui://v/{id}", "s:{x}#{y}", "{+u}"} {
		c := merge(nil, resourcesAnd("a", nil, []string{text}), resourcesAnd("b", nil, []string{text}))
		public, err := uritemplate.Parse(c.Items(catalogue.Templates)[1].Public)
		if err != nil || public.String() == text {
			t.Fatalf("%s: %v", public, err)
		}
		original, _ := uritemplate.Parse(text)
		for _, value := range []string{"a", "a/b c", "100%", "ä:?#", "http://x/%20"} {
			vars := map[string]any{"path": value, "a": value, "b": "x", "c": value, "d": []string{value, "y"}, "id": value,
				"x": value, "y": value, "u": "x:" + value}
			mapped, err := public.Expand(vars)
			want, err2 := original.Expand(vars)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			wantRoute(t, c, mapped, "b", want)
			if r, _ := c.Route(mapped); r.Item == nil {
				t.Errorf("%s: the route has no template", mapped)
			}
		}
	}
}

func TestHiddenResourcesAreNotReached(t *testing.T) {
	o := &catalogue.Options{Visible: func(i *catalogue.Item) bool { return !strings.Contains(i.Original, "secret") }}
	c := merge(o, resourcesAnd("a", []string{"file:///secret"}, []string{"file:///{+path}"}),
		resourcesAnd("b", []string{"file:///secret"}, []string{"secret://{x}", "{+any}"}))
	for _, uri := range []string{"file:///secret", "patchbay://a/file%3A%2F%2F%2Fsecret", "patchbay://b/file%3A%2F%2F%2Fsecret",
		"patchbay://a/file:///secret", "patchbay://b/file:///secret"} {
		wantRoute(t, c, uri, "", "")
	}
	wantRoute(t, c, "file:///other", "a", "file:///other")
	o.Visible = func(i *catalogue.Item) bool { return i.Kind != catalogue.Templates }
	c = merge(o, resourcesAnd("b", nil, []string{"secret://{x}"}))
	wantRoute(t, c, "patchbay://b/secret%3A%2F%2Fx", "", "")
	wantRoute(t, c, "patchbay://b/open%3A%2F%2Fx", "b", "open://x")
}

func TestPublicURIsLeadBackToTheirServer(t *testing.T) {
	c := merge(nil, resourcesAnd("a", []string{"file:///x"}, []string{"file:///home/{+p}"}),
		resourcesAnd("b", []string{"file:///x", "file:///b"}, []string{"db://{x}"}))
	for uri, want := range map[string]string{
		"file:///x":        "patchbay://b/file%3A%2F%2F%2Fx",
		"file:///b":        "file:///b",
		"file:///home/1":   "patchbay://b/file%3A%2F%2F%2Fhome%2F1",
		"db://1":           "db://1",
		"unknown:1":        "unknown:1",
		"patchbay://a/x:y": "patchbay://b/patchbay%3A%2F%2Fa%2Fx%3Ay",
	} {
		got := c.PublicURI("b", uri)
		if got != want {
			t.Errorf("%s: got %s, want %s", uri, got, want)
		}
		if got != "unknown:1" {
			wantRoute(t, c, got, "b", uri)
		}
	}
	if got := c.PublicURI("a", "file:///x"); got != "file:///x" {
		t.Errorf("got %s, want the unchanged URI of a", got)
	}
}

// Design, section 14: prefix breaks app pages.
func TestTrapPrefixBreaksAppPages(t *testing.T) {
	app := func(name, meta string) string {
		return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},"_meta":%s}`, name, meta)
	}
	servers := []catalogue.Server{}
	for _, name := range []string{"clock", "timer"} {
		servers = append(servers, server(name, map[catalogue.Kind][]string{
			catalogue.Resources: {resource("ui://app/main")},
			catalogue.Tools: {
				app("show", `{"ui":{"resourceUri":"ui://app/main","visibility":["model","app"]},"ui/resourceUri":"ui://app/main","x":1}`),
				app(name+"_tick", `{"ui":{"visibility":["app"]}}`),
				app(name+"_model", `{"ui":{"visibility":["model"]}}`),
				tool("plain"),
			}}))
	}
	c := merge(nil, append(servers, withTools("other", "clock_tick", "plain"))...)
	// The tool of the later server leads to its own page.
	want := `{"ui":{"resourceUri":"ui://patchbay/timer/ui%3A%2F%2Fapp%2Fmain","visibility":["model","app"]},` +
		`"ui/resourceUri":"ui://patchbay/timer/ui%3A%2F%2Fapp%2Fmain","x":1}`
	if got := string(c.Find(catalogue.Tools, "timer__show").Definition()); got != app("timer__show", want) {
		t.Errorf("got  %s\nwant %s", got, app("timer__show", want))
	}
	wantRoute(t, c, "ui://patchbay/timer/ui%3A%2F%2Fapp%2Fmain", "timer", "ui://app/main")
	if got := string(c.Find(catalogue.Tools, "clock__show").Definition()); !strings.Contains(got, `"resourceUri":"ui://app/main"`) {
		t.Errorf("got %s, want the unchanged page", got)
	}
	// A page calls the tools of its server by their original names.
	for name, want := range map[string]string{"clock_tick": "clock__clock_tick", "timer_tick": "timer__timer_tick", "show": "",
		"clock_model": "", "plain": "", "clock__clock_tick": "", "none": ""} {
		got := ""
		if item := c.AppTool(name); item != nil {
			got = item.Public
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	hidden := merge(&catalogue.Options{Visible: func(i *catalogue.Item) bool { return i.Server != "clock" }}, servers...)
	if item := hidden.AppTool("clock_tick"); item != nil {
		t.Errorf("a page reaches the hidden tool %s", item.Public)
	}
}

func TestCompletionReferencesLeadToTheirServer(t *testing.T) {
	a := server("a", map[catalogue.Kind][]string{catalogue.Prompts: {prompt("ask")}, catalogue.Templates: {template("file:///{+path}")}})
	b := server("b", map[catalogue.Kind][]string{catalogue.Prompts: {prompt("ask me")},
		catalogue.Templates: {template("file:///{+path}"), template("db://{x}")}, catalogue.Resources: {resource("x:1")}})
	c := merge(nil, a, b)
	asked := publicNames(c, catalogue.Prompts)[1]
	for ref, want := range map[string]string{
		`{"type":"ref/prompt","name":"a__ask"}`:                        `a {"type":"ref/prompt","name":"ask"}`,
		`{ "name":"` + asked + `","title":"T", "type":"ref/prompt"}`:   `b { "name":"ask me","title":"T", "type":"ref/prompt"}`,
		`{"type":"ref/resource","uri":"file:///{+path}"}`:              `a {"type":"ref/resource","uri":"file:///{+path}"}`,
		`{"type":"ref/resource","uri":"patchbay://b/file:///{+path}"}`: `b {"type":"ref/resource","uri":"file:///{+path}"}`,
		`{"type":"ref/resource","uri":"db://1"}`:                       `b {"type":"ref/resource","uri":"db://1"}`,
		`{"type":"ref/resource","uri":"x:1"}`:                          `b {"type":"ref/resource","uri":"x:1"}`,
		`{"type":"ref/prompt","name":"ask"}`:                           "",
		`{"type":"ref/prompt","uri":"x:1"}`:                            "",
		`{"type":"ref/other","name":"a__ask"}`:                         "",
		`{"type":"ref/resource","uri":"none:1"}`:                       "",
		`{"type":"ref/prompt","name":"a__ask"`:                         "",
		`[]`:                                                           "",
	} {
		got := ""
		if server, own, ok := c.Reference([]byte(ref)); ok {
			got = server + " " + string(own)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", ref, got, want)
		}
	}
}

// TestHostileTemplatesCostBoundedWork checks that the templates of one server cannot make routing
// slow. Without a bound, it takes seconds.
func TestHostileTemplatesCostBoundedWork(t *testing.T) {
	var templates []string
	for i := range catalogue.MaxTemplates {
		templates = append(templates, fmt.Sprintf("{+a}x{+b}y{+c}%d{?d,e,f*}", i))
	}
	c := merge(nil, resourcesAnd("a", []string{"x:1"}, []string{"{+any}"}), resourcesAnd("b", []string{"x:1"}, templates))
	long := "file:///" + strings.Repeat("x", 8000)
	// More URIs than the budget suffices for: the rest is mapped, so that all lead back to b.
	var blocks []string
	for range 2 {
		blocks = append(blocks, `{"type":"resource_link","name":"x","uri":"`+long+`"}`)
	}
	result := string(c.MapResult("b", "tools/call", []byte(`{"content":[`+strings.Join(blocks, ",")+`]}`)))
	if !strings.Contains(result, `"uri":"patchbay://b/file%3A`) {
		t.Error("all URIs were compared with all templates")
	}
	wantRoute(t, c, "file:///short", "a", "file:///short")
	wantRoute(t, c, long, "", "") // the template of a is behind those of b
	if _, ok := c.Route("file:///" + strings.Repeat("x", 100_000)); ok {
		t.Error("found a URI that is too long")
	}
}

// FuzzMappedURI checks that mapped URIs lead back to their server and original.
func FuzzMappedURI(f *testing.F) {
	for _, uri := range []string{"file:///a b", "ui://x/y", "patchbay://b/x", "a", "ui://patchbay/a/x", "x:%2f%", "é:", "x?y#z"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		if uri == "" || len(uri) > 8<<10 || !utf8.ValidString(uri) {
			return
		}
		c := merge(nil, withURIs("a", uri), withURIs("b", uri))
		for i, name := range []string{"a", "b"} {
			public := c.Items(catalogue.Resources)[i].Public
			wantRoute(t, c, public, name, uri)
			if i == 1 && uritemplate.CheckURI(public) != nil && len(uri) < 2000 {
				t.Errorf("%q is not a URI", public)
			}
			if i == 1 {
				if _, err := url.Parse(public); err != nil {
					t.Error(err)
				}
				wantRoute(t, merge(nil, withURIs("a", "x:1"), withURIs("b", "x:1")), public, "b", uri) // not listed
			}
		}
	})
}
