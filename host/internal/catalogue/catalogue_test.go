package catalogue_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
)

// page returns a list result with the items of a kind.
func page(k catalogue.Kind, items ...string) json.RawMessage {
	return fmt.Appendf(nil, `{"%s":[%s]}`, k.Member(), strings.Join(items, ","))
}

func tool(name string) string {
	return fmt.Sprintf(`{"name":%s,"inputSchema":{"type":"object"}}`, quote(name))
}

func prompt(name string) string { return fmt.Sprintf(`{"name":%s}`, quote(name)) }

func resource(uri string) string { return fmt.Sprintf(`{"uri":%s,"name":"r"}`, quote(uri)) }

func template(uri string) string { return fmt.Sprintf(`{"uriTemplate":%s,"name":"t"}`, quote(uri)) }

func quote(s string) string {
	q, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(q)
}

// server returns a server with lists of the given items, as JSON.
func server(name string, lists map[catalogue.Kind][]string) catalogue.Server {
	s := catalogue.Server{Name: name}
	for k, items := range lists {
		s.Lists[k] = catalogue.Parse(k, page(k, items...))
	}
	return s
}

// withTools returns a server with tools of the given names.
func withTools(name string, tools ...string) catalogue.Server {
	return server(name, map[catalogue.Kind][]string{catalogue.Tools: each(tool, tools)})
}

// withURIs returns a server with resources.
func withURIs(name string, uris ...string) catalogue.Server {
	return server(name, map[catalogue.Kind][]string{catalogue.Resources: each(resource, uris)})
}

func each(f func(string) string, names []string) (items []string) {
	for _, name := range names {
		items = append(items, f(name))
	}
	return items
}

func merge(o *catalogue.Options, servers ...catalogue.Server) *catalogue.Catalogue {
	return catalogue.Merge(servers, o)
}

// publicNames returns the names or URIs of the items of a kind, in order.
func publicNames(c *catalogue.Catalogue, k catalogue.Kind) (names []string) {
	for _, item := range c.Items(k) {
		names = append(names, item.Public)
	}
	return names
}

func wantNames(t *testing.T, c *catalogue.Catalogue, k catalogue.Kind, want ...string) {
	t.Helper()
	if got := publicNames(c, k); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", k, got, want)
	}
}

// wantProblem checks that one of the problems has a severity, a name, and a reason that contains text.
func wantProblem(t *testing.T, problems []catalogue.Problem, s catalogue.Severity, name, text string) {
	t.Helper()
	for _, p := range problems {
		if p.Severity == s && p.Name == name && strings.Contains(p.Reason, text) {
			return
		}
	}
	t.Errorf("got problems %+v, want one of %q with severity %q and %q", problems, name, s, text)
}

func TestItemsAreListedInTheOrderOfServersAndNames(t *testing.T) {
	c := merge(nil, withTools("web", "search", "fetch"), withTools("fs", "read"))
	wantNames(t, c, catalogue.Tools, "web__fetch", "web__search", "fs__read")
	items, next, err := c.Page(catalogue.Tools, "", 0)
	want := "[" + tool("web__fetch") + "," + tool("web__search") + "," + tool("fs__read") + "]"
	if string(items) != want || next != "" || err != nil {
		t.Errorf("got %s, %q, %v, want %s", items, next, err, want)
	}
	item := c.Find(catalogue.Tools, "fs__read")
	if item == nil || item.Server != "fs" || item.ID != "fs" || item.Original != "read" || string(item.Raw) != tool("read") {
		t.Errorf("got %+v, want read of fs", item)
	}
	if item != c.Original(catalogue.Tools, "fs", "read") {
		t.Error("Original returns another item than Find")
	}
	if c.Find(catalogue.Tools, "read") != nil || c.Find(catalogue.Prompts, "fs__read") != nil || c.Original(catalogue.Tools, "web", "read") != nil {
		t.Error("found an item under a name that is not its own")
	}
}

func TestEmptyCatalogueHasOneEmptyPage(t *testing.T) {
	c := merge(nil, catalogue.Server{Name: "off"})
	for k := range catalogue.Kind(catalogue.Kinds) {
		if items, next, err := c.Page(k, "", 0); string(items) != "[]" || next != "" || err != nil {
			t.Errorf("%s: got %s, %q, %v, want an empty array", k, items, next, err)
		}
	}
	if c.Search("x", 0) != nil && len(c.Search("x", 0)) != 0 || c.Tokens() != 0 || c.Instructions() != "" || string(c.Capabilities()) != "{}" {
		t.Error("an empty catalogue is not empty")
	}
}

func TestCatalogueHasOnlyWhatSettingsAllow(t *testing.T) {
	s := withTools("github", "create_issue", "delete_issue", "delete_repo", "list_issues")
	s.Options = &catalogue.ServerOptions{Allow: []string{"*_issue?", "*_issue"}, Deny: []string{"delete_*"}}
	other := withTools("fs", "read", "write")
	wantNames(t, merge(nil, s, other), catalogue.Tools, "github__create_issue", "github__list_issues", "fs__read", "fs__write")
	o := &catalogue.Options{ToolGlobs: []string{"github__*", "fs__read"}}
	wantNames(t, merge(o, s, other), catalogue.Tools, "github__create_issue", "github__list_issues", "fs__read")
	o.Visible = func(i *catalogue.Item) bool { return i.Original != "read" }
	c := merge(o, s, other)
	wantNames(t, c, catalogue.Tools, "github__create_issue", "github__list_issues")
	if c.Find(catalogue.Tools, "fs__read") != nil || c.Original(catalogue.Tools, "fs", "read") != nil {
		t.Error("found a hidden tool")
	}
	if got := c.Search("read", 0); len(got) != 0 {
		t.Errorf("the search returns %v, want no hidden tool", got)
	}
	s.Options = &catalogue.ServerOptions{Allow: []string{}}
	wantNames(t, merge(nil, s), catalogue.Tools)
}

func TestGlobsMatchWholeNamesInTheirOwnCase(t *testing.T) {
	for _, test := range []struct {
		glob, name string
		want       bool
	}{
		{"*", "any/thing.at-all", true}, {"", "x", false}, {"delete_*", "delete_", true}, {"delete_*", "undelete_x", false},
		{"a*b*c", "abbbc", true}, {"a*b*c", "abbb", false}, {"a?c", "abc", true}, {"a?c", "aécc", false}, {"a?c", "aéc", true},
		{"Delete", "delete", false}, {"[ab]", "a", false}, {"a**b", "ab", true},
		{strings.Repeat("*a", 50) + "b", strings.Repeat("a", 1000), false},
	} {
		s := withTools("s", test.name)
		s.Options = &catalogue.ServerOptions{Allow: []string{test.glob}}
		if got := len(merge(nil, s).Items(catalogue.Tools)) == 1; got != test.want {
			t.Errorf("glob %q on %.20q: got %t, want %t", test.glob, test.name, got, test.want)
		}
	}
}

func TestCataloguesShareDefinitions(t *testing.T) {
	s := withTools("fs", "read", "a tool with a changed name")
	a, b := merge(nil, s), merge(nil, s)
	for i, item := range a.Items(catalogue.Tools) {
		if other := b.Items(catalogue.Tools)[i]; item != other {
			t.Errorf("%s: built twice for the same name", item.Public)
		}
	}
	c := merge(&catalogue.Options{Names: catalogue.Unprefixed}, s)
	if c.Find(catalogue.Tools, "read") == nil || a.Find(catalogue.Tools, "fs__read").Public != "fs__read" {
		t.Error("a catalogue with other names changed the items of this one")
	}
	raw := catalogue.Server{Name: "raw", Lists: s.Lists}
	if item := merge(&catalogue.Options{Single: true}, raw).Find(catalogue.Tools, "read"); string(item.Definition()) != string(item.Raw) {
		t.Error("a definition that does not change was copied")
	}
}

func TestSharedDefinitionsFollowSettingsAndViews(t *testing.T) {
	s := server("b", map[catalogue.Kind][]string{catalogue.Resources: {resource("ui://x")},
		catalogue.Tools: {`{"name":"show","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://x"}}}`}})
	definition := func(servers ...catalogue.Server) string {
		return string(merge(nil, servers...).Find(catalogue.Tools, "b__show").Definition())
	}
	before := definition(s)
	if got := definition(withURIs("a", "ui://x"), s); got == before || !strings.Contains(got, "ui://patchbay/b/") {
		t.Errorf("got %s, want the view of b", got)
	}
	described := s
	described.Options = &catalogue.ServerOptions{Describe: map[string]string{"show": "new"}}
	if got := definition(described); !strings.Contains(got, `"description":"new"`) {
		t.Errorf("got %s, want the configured description", got)
	}
	if got := definition(s); got != before {
		t.Errorf("got %s, want %s as before", got, before)
	}
}

func TestListsAreMergedConcurrently(t *testing.T) {
	servers := []catalogue.Server{withTools("a", numbered("x.", 100)...), withTools("b", numbered("x.", 100)...), withURIs("c", "x:1")}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			o := &catalogue.Options{Names: catalogue.NameMode(i % 2)}
			for range 5 {
				c := catalogue.Merge(servers, o)
				if i < 4 {
					checkNames(t, c, catalogue.DefaultMaxName, 200)
				}
				c.Search("x", 1)
				_, _, _ = c.Page(catalogue.Tools, "", 0)
			}
		})
	}
	wg.Wait()
}

func TestEqualComparesWhatClientsSee(t *testing.T) {
	one := merge(nil, withTools("a", "x", "y"), withURIs("b", "file:///1"))
	same := merge(nil, withTools("a", "y", "x"), withURIs("b", "file:///1"))
	other := merge(nil, withTools("a", "x"), withURIs("b", "file:///1"))
	if !one.Equal(catalogue.Tools, same) || !one.Equal(catalogue.Resources, other) || one.Equal(catalogue.Tools, other) {
		t.Error("Equal does not compare the visible definitions")
	}
	changed := server("a", map[catalogue.Kind][]string{catalogue.Tools: {
		`{"name":"x","inputSchema":{"type":"object"},"description":"new"}`, tool("y")}})
	if one.Equal(catalogue.Tools, merge(nil, changed)) {
		t.Error("a changed description is equal")
	}
}

func TestServersNeedDistinctNamesAndValidIDs(t *testing.T) {
	a, b := withTools("a", "x"), withTools("a", "y")
	c := merge(nil, a, b)
	wantNames(t, c, catalogue.Tools, "a__x")
	wantProblem(t, c.Problems(), catalogue.Misconfigured, "", "two servers")
	b.Name, b.ID = "b", "a"
	c = merge(nil, a, b)
	wantNames(t, c, catalogue.Tools, "a__x")
	wantProblem(t, c.Problems(), catalogue.Misconfigured, "", `id "a"`)
	b.ID = "b__c"
	wantNames(t, merge(nil, a, b), catalogue.Tools, "a__x")
}

func TestListsOfAnotherKindAreIgnored(t *testing.T) {
	s := withTools("a", "x")
	s.Lists[catalogue.Prompts], s.Lists[catalogue.Tools] = s.Lists[catalogue.Tools], nil
	wantNames(t, merge(nil, s), catalogue.Prompts)
}
