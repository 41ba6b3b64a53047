package catalogue_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
)

// listed returns the names of a list.
func listed(l *catalogue.List) (names []string) {
	for name := range l.Digests() {
		names = append(names, name)
	}
	return names
}

func TestInvalidItemsAloneAreLeftOut(t *testing.T) {
	good := tool("good")
	deep := `{"name":"deep","inputSchema":{"type":"object","x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}}`
	for item, reason := range map[string]string{
		`7`:                                     "not an object",
		`{}`:                                    "missing name",
		`{"name":7}`:                            "missing name",
		`{"name":""}`:                           "missing name",
		`{"name":"x"}`:                          "missing inputSchema",
		`{"name":"x","inputSchema":null}`:       "missing inputSchema",
		`{"name":"x","inputSchema":[]}`:         "invalid inputSchema",
		`{"name":"x","inputSchema":{"type":7}}`: "must be \"object\"",
		`{"name":"x","inputSchema":{"type":"string"}}`:                                      "must be \"object\"",
		`{"name":"x","inputSchema":{"type":"object"},"title":7}`:                            "invalid title: must be a string",
		`{"name":"x","inputSchema":{"type":"object"},"_meta":[]}`:                           "invalid _meta",
		`{"name":"x","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes"}}`: "annotations: invalid readOnlyHint",
		`{"name":"x","inputSchema":{"type":"object"},"icons":[{"src":7}]}`:                  "icons: invalid src",
		`{"name":"x","inputSchema":{"type":"object"},"icons":[7]}`:                          "icons: an element",
		`{"name":"x","inputSchema":{"type":"object"},"icons":[{}]}`:                         "icons: missing src",
		`{"name":"` + strings.Repeat("x", 1025) + `","inputSchema":{"type":"object"}}`:      "longer than 1024",
		`{"name":"x","name":"y","inputSchema":{"type":"object"}}`:                           "key",
		deep: "deep",
		`{"name":"x","inputSchema":{"type":"object"},"description":"` + strings.Repeat("x", catalogue.MaxItemBytes) + `"}`: "bytes",
	} {
		l := catalogue.Parse(catalogue.Tools, page(catalogue.Tools, good, item, tool("other")))
		if got := fmt.Sprint(listed(l)); got != "[good other]" {
			t.Errorf("%.80s: got %s, want the other tools", item, got)
		}
		if p := l.Problems(); len(p) != 1 || p[0].Severity != catalogue.LeftOut || !strings.Contains(p[0].Reason, reason) {
			t.Errorf("%.80s: got problems %.300v, want one with %q", item, p, reason)
		}
	}
	for k, items := range map[catalogue.Kind][]string{
		catalogue.Prompts:   {`{"name":"x","arguments":{}}`, `{"name":"x","arguments":[{}]}`, `{"name":"x","arguments":[{"name":"a","required":"yes"}]}`},
		catalogue.Resources: {`{"uri":"x:1"}`, `{"name":"x"}`, `{"uri":"x:1","name":"x","size":"1"}`, resource("x:" + strings.Repeat("y", 8<<10))},
		catalogue.Templates: {template("x:{"), template("x:{y z}"), `{"uriTemplate":"x:{y}"}`},
	} {
		for _, item := range items {
			if l := catalogue.Parse(k, page(k, item)); l.Len() != 0 || len(l.Problems()) != 1 {
				t.Errorf("%s: %.80s was accepted", k, item)
			}
		}
	}
}

func TestValidItemsOfAllKindsAreListed(t *testing.T) {
	for k, item := range map[catalogue.Kind]string{
		catalogue.Tools:     `{"name":"x","inputSchema":{},"annotations":{"readOnlyHint":true,"openWorldHint":false,"title":"X"},"title":null,"x-other":7}`,
		catalogue.Prompts:   `{"name":"x","arguments":[{"name":"a","required":true}],"icons":[{"src":"data:,","sizes":["1x1"]}]}`,
		catalogue.Resources: `{"uri":"x:1","name":"x","size":12,"annotations":{"priority":0.5,"audience":["user"]}}`,
		catalogue.Templates: `{"uriTemplate":"x:{y}","name":"x","_meta":{"a":1}}`,
	} {
		if l := catalogue.Parse(k, page(k, item)); l.Len() != 1 || len(l.Problems()) != 0 {
			t.Errorf("%s was left out: %v", item, l.Problems())
		}
	}
}

func TestPagesAreJoinedAndInvalidOnesLeftOut(t *testing.T) {
	l := catalogue.Parse(catalogue.Tools, page(catalogue.Tools, tool("b")), json.RawMessage(`{"tools":[`), json.RawMessage(`{"tools":{}}`),
		json.RawMessage(`[]`), nil, page(catalogue.Tools, tool("a"), tool("c")))
	if got := fmt.Sprint(listed(l)); got != "[a b c]" {
		t.Errorf("got %s, want the tools of the valid pages", got)
	}
	if got := len(l.Problems()); got != 4 {
		t.Errorf("got %d problems, want one for each invalid page", got)
	}
}

func TestOfDuplicateNamesTheFirstIsUsed(t *testing.T) {
	second := `{"name":"x","inputSchema":{"type":"object"},"description":"delete all"}`
	l := catalogue.Parse(catalogue.Tools, page(catalogue.Tools, tool("x")), page(catalogue.Tools, second, `{"\u006eame":"x","inputSchema":{}}`))
	for name := range l.Digests() {
		raw := l.Definition(name)
		if name != "x" || string(raw) != tool("x") {
			t.Errorf("got %s, want the first definition", raw)
		}
	}
	if l.Len() != 1 || len(l.Problems()) != 2 {
		t.Errorf("got %d tools and problems %v, want one tool and two problems", l.Len(), l.Problems())
	}
	wantProblem(t, l.Problems(), catalogue.Flagged, "x", "more than once")
}

func TestInvisibleCharactersInNamesAreFlagged(t *testing.T) {
	for _, name := range []string{"a\x00b", "a\nb", "a\u202eb", "a\u200bb", "a\U000E0041b", "a\u2028b", "a\u0085b"} {
		s := withTools("s", name, "plain", "日本é")
		c := merge(nil, s)
		wantProblem(t, c.Problems(), catalogue.Flagged, name, "invisible")
		if len(c.Problems()) != 1 {
			t.Errorf("%q: got problems %v, want one", name, c.Problems())
		}
		checkNames(t, c, catalogue.DefaultMaxName, 3)
	}
}

func TestListsAreLimited(t *testing.T) {
	var items []string
	for i := range 100_000 {
		items = append(items, tool(fmt.Sprintf("tool_%d", i)))
	}
	l := catalogue.Parse(catalogue.Tools, page(catalogue.Tools, items...), page(catalogue.Tools, tool("last")))
	if l.Len() != catalogue.MaxItems || len(l.Problems()) != 1 {
		t.Errorf("got %d tools and %d problems, want %d and 1", l.Len(), len(l.Problems()), catalogue.MaxItems)
	}
	if got := len(catalogue.Parse(catalogue.Tools, page(catalogue.Tools, strings.Split(strings.Repeat("7,", 50_000)+"7", ",")...)).Problems()); got > 101 {
		t.Errorf("got %d problems, want at most 101", got)
	}
	large := page(catalogue.Tools, `{"name":"x","inputSchema":{},"description":"`+strings.Repeat("x", 1<<20-100)+`"}`)
	pages := []json.RawMessage{page(catalogue.Tools, tool("first"))}
	for range 70 {
		pages = append(pages, large)
	}
	l = catalogue.Parse(catalogue.Tools, append(pages, page(catalogue.Tools, tool("last")))...)
	if got := fmt.Sprint(listed(l)); got != "[first x]" {
		t.Errorf("got %s, want the tools of the first 64 MiB", got)
	}
	wantProblem(t, l.Problems(), catalogue.LeftOut, "", "longer than 67108864 bytes")
	items = items[:0]
	for i := range catalogue.MaxTemplates + 1 {
		items = append(items, template(fmt.Sprintf("x:%d/{y}", i)))
	}
	if got := catalogue.Parse(catalogue.Templates, page(catalogue.Templates, items...)).Len(); got != catalogue.MaxTemplates {
		t.Errorf("got %d templates, want %d", got, catalogue.MaxTemplates)
	}
}

func TestDigestsDependOnTheMeaningOfDefinitions(t *testing.T) {
	digest := func(item string) string {
		c := merge(nil, server("s", map[catalogue.Kind][]string{catalogue.Tools: {item}}))
		if len(c.Items(catalogue.Tools)) != 1 {
			t.Fatalf("%s was left out: %v", item, c.Problems())
		}
		return fmt.Sprintf("%x", c.Items(catalogue.Tools)[0].Digest)
	}
	base := digest(`{"name":"x","description":"é/","inputSchema":{"type":"object","maximum":9007199254740993}}`)
	if got := digest(` { "inputSchema" : {"maximum":9007199254740993, "type":"object"}, "description":"\u00e9\/", "name":"x" } `); got != base {
		t.Error("white space, order or escapes changed the digest")
	}
	for _, item := range []string{
		`{"name":"x","description":"e/","inputSchema":{"type":"object","maximum":9007199254740993}}`,
		`{"name":"x","description":"é/","inputSchema":{"type":"object","maximum":9007199254740992}}`,
		`{"name":"x","description":"é/","inputSchema":{"type":"object","maximum":9007199254740993},"extra":null}`,
	} {
		if digest(item) == base {
			t.Errorf("%s has the digest of another definition", item)
		}
	}
}

func TestListsAreEqualWhateverTheirOrder(t *testing.T) {
	parse := func(items ...string) *catalogue.List {
		return catalogue.Parse(catalogue.Tools, page(catalogue.Tools, items...))
	}
	a := parse(tool("x"), tool("y"))
	if !a.Equal(parse(tool("y"), tool("x"))) || a.Equal(parse(tool("y"))) || a.Equal(nil) || !parse().Equal(nil) {
		t.Error("Equal does not compare the items")
	}
}

// FuzzParse checks that lists of hostile servers have valid items only, and that catalogues of them
// are valid JSON.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"tools":[{"name":"x","inputSchema":{"type":"object","properties":{"a":{},"b":{}},"required":["a"]}},{"name":"x"}]}`), uint8(0))
	f.Add([]byte(`{"prompts":[{"name":"\u202e","arguments":[{"name":"a"}]}]}`), uint8(1))
	f.Add([]byte(`{"resources":[{"uri":"ui://patchbay/a/b","name":"x"},{"uri":"ui://patchbay/a/b"}]}`), uint8(2))
	f.Add([]byte(`{"resourceTemplates":[{"uriTemplate":"file:///{+path}","name":"x"}]}`), uint8(3))
	f.Add([]byte(`{"tools":[{"name":"x","inputSchema":{ } ,"title": null,"_meta":{"ui":{"resourceUri":"ui://a"}}}]}`), uint8(0))
	f.Add([]byte("\x830 "), uint8(0))
	f.Fuzz(func(t *testing.T, raw []byte, kind uint8) {
		k := catalogue.Kind(kind % catalogue.Kinds)
		l := catalogue.Parse(k, raw)
		var servers []catalogue.Server
		for _, name := range []string{"a", "b"} {
			s := catalogue.Server{Name: name, Options: &catalogue.ServerOptions{HideArgs: map[string][]string{"x": {"a"}}, Describe: map[string]string{"x": "y"}}}
			s.Lists[k] = l
			servers = append(servers, s)
		}
		c := catalogue.Merge(servers, nil)
		if got := len(c.Items(k)); got != 2*l.Len() {
			t.Errorf("got %d items of two servers with %d each", got, l.Len())
		}
		items, _, err := c.Page(k, "", 0)
		var decoded []map[string]json.RawMessage
		if err != nil || json.Unmarshal(items, &decoded) != nil || len(decoded) != min(len(c.Items(k)), catalogue.PageSize) {
			t.Errorf("got the page %s, %v", items, err)
		}
		for _, item := range c.Items(k) {
			if c.Find(k, item.Public) != item || c.Original(k, item.Server, item.Original) != item {
				t.Errorf("%q does not lead to its item", item.Public)
			}
			if r, ok := c.Route(item.Public); k == catalogue.Resources && (!ok || r.Item != item || r.URI != item.Original) {
				t.Errorf("%q has the route %+v", item.Public, r)
			}
		}
		c.Search(string(raw), 3)
	})
}
