package catalogue_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
)

var publicName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// checkNames checks that all tools and prompts are listed under different valid names.
func checkNames(t *testing.T, c *catalogue.Catalogue, limit, want int) {
	t.Helper()
	for _, k := range []catalogue.Kind{catalogue.Tools, catalogue.Prompts} {
		seen := map[string]string{}
		for _, item := range c.Items(k) {
			if !publicName.MatchString(item.Public) || len(item.Public) > limit {
				t.Errorf("%q of %s: got the name %q, want at most %d characters that model APIs allow", item.Original,
					item.Server, item.Public, limit)
			}
			if other, taken := seen[item.Public]; taken {
				t.Errorf("%s and %s have the same name %q", other, item.Server+":"+item.Original, item.Public)
			}
			seen[item.Public] = item.Server + ":" + item.Original
			if c.Find(k, item.Public) != item {
				t.Errorf("%q does not lead to its item", item.Public)
			}
		}
		if k == catalogue.Tools && len(seen) != want {
			t.Errorf("got %d tools, want %d", len(seen), want)
		}
	}
}

// Design, section 14: names too long or equal.
func TestTrapNamesTooLongOrEqual(t *testing.T) {
	long := strings.Repeat("very_long_tool_name_", 6)
	servers := []catalogue.Server{
		withTools("a", "x", "x.y", "x y", "x_y", long+"1", long+"2", strings.Repeat("z", 45), strings.Repeat("z", 46), "日本", "日本語"),
		withTools("b", "x", "x.y", long+"1", strings.Repeat("b", 200)),
		withTools("a-server-with-a-long-name-x", long, "x"),
	}
	for _, mode := range []catalogue.NameMode{catalogue.Prefixed, catalogue.PrefixedConflicts} {
		for _, limit := range []int{0, 1, 40, 64, 1000} {
			c := merge(&catalogue.Options{Names: mode, MaxName: limit}, servers...)
			most := min(max(limit, catalogue.MinMaxName), catalogue.MaxMaxName)
			if limit == 0 {
				most = catalogue.DefaultMaxName
			}
			checkNames(t, c, most, 16)
		}
	}
	c := merge(nil, servers...)
	for original, want := range map[string]string{
		"x":                     "a__x",
		"x_y":                   "a__x_y",
		"x.y":                   `a__x_y_[a-z2-7]{6}`,
		strings.Repeat("z", 45): "a__z{45}",
		strings.Repeat("z", 46): "a__z{38}_[a-z2-7]{6}",
		"日本":                    "a_____[a-z2-7]{6}",
	} {
		if got := c.Original(catalogue.Tools, "a", original).Public; !regexp.MustCompile("^" + want + "$").MatchString(got) {
			t.Errorf("%q: got the name %q, want %s", original, got, want)
		}
	}
}

func TestChangedNamesStayWhenServersAndToolsAreAdded(t *testing.T) {
	before := merge(nil, withTools("a", "x.y", "long"+strings.Repeat("g", 60)))
	after := merge(nil, withTools("z", "x.y"), withTools("a", "x:y", "x y", "other", "x.y", "long"+strings.Repeat("g", 60)))
	for _, item := range before.Items(catalogue.Tools) {
		if got := after.Original(catalogue.Tools, "a", item.Original).Public; got != item.Public {
			t.Errorf("%q: the name changed from %q to %q", item.Original, item.Public, got)
		}
	}
}

func TestEqualDigestsAreTenCharacters(t *testing.T) {
	changed := merge(nil, withTools("a", "x.y")).Items(catalogue.Tools)[0].Public // a__x_y_abcdef
	natural := strings.TrimPrefix(changed, "a__")
	// The server lists a tool that has the changed name of another one.
	c := merge(nil, withTools("a", "x.y", natural))
	checkNames(t, c, catalogue.DefaultMaxName, 2)
	if got := c.Original(catalogue.Tools, "a", "x.y").Public; got != changed {
		t.Errorf("got %q, want %q: a tool took the name of another", got, changed)
	}
	// It lists the changed name of that one, too, and so on.
	names := []string{"x.y"}
	for range 20 {
		c = merge(nil, withTools("a", names...))
		checkNames(t, c, catalogue.DefaultMaxName, len(names))
		for _, item := range c.Items(catalogue.Tools) {
			if name := strings.TrimPrefix(item.Public, "a__"); !slices.Contains(names, name) {
				names = append(names, name)
				break
			}
		}
	}
	if len(names) != 21 {
		t.Errorf("got %d names, want 21", len(names))
	}
}

func TestSquattedNamesLeadToTheirOwnServer(t *testing.T) {
	a, x := withTools("a", "b", "read"), withTools("x", "a__b", "b", "a__read")
	for _, order := range [][]catalogue.Server{{a, x}, {x, a}} {
		c := merge(nil, order...)
		checkNames(t, c, catalogue.DefaultMaxName, 5)
		if item := c.Find(catalogue.Tools, "a__b"); item == nil || item.Server != "a" {
			t.Errorf("a__b leads to %+v, want b of a", item)
		}
		// b collides, so that the b of a becomes a__b. This name is no longer free for x.
		c = merge(&catalogue.Options{Names: catalogue.PrefixedConflicts}, order...)
		checkNames(t, c, catalogue.DefaultMaxName, 5)
		for public, server := range map[string]string{"a__b": "a", "x__b": "x", "x__a__b": "x", "read": "a", "a__read": "x"} {
			if item := c.Find(catalogue.Tools, public); item == nil || item.Server != server {
				t.Errorf("%s leads to %+v, want a tool of %s", public, item, server)
			}
		}
	}
}

func TestConflictModePrefixesOnlyEqualNames(t *testing.T) {
	o := &catalogue.Options{Names: catalogue.PrefixedConflicts}
	c := merge(o, withTools("web", "search", "fetch"), withTools("docs", "search", "read.page"))
	names := publicNames(c, catalogue.Tools)
	if want := `^\[fetch web__search read_page_[a-z2-7]{6} docs__search\]$`; !regexp.MustCompile(want).MatchString(fmt.Sprint(names)) {
		t.Errorf("got %v, want %s", names, want)
	}
}

func TestUnprefixedModeRefusesEqualNames(t *testing.T) {
	o := &catalogue.Options{Names: catalogue.Unprefixed}
	c := merge(o, withTools("web", "search", "fetch"), withTools("docs", "search", "read"))
	wantNames(t, c, catalogue.Tools, "fetch", "read")
	wantProblem(t, c.Problems(), catalogue.Misconfigured, "search", "another item")
	c = merge(o, withTools("a", "x"), withTools("b", "x", "y"), withTools("c", "x", "y", "z"))
	wantNames(t, c, catalogue.Tools, "z")
	if n := len(c.Problems()); n != 5 {
		t.Errorf("got %d problems, want one for each item that is left out: %+v", n, c.Problems())
	}
	o.ReservedNames = []string{"read"}
	c = merge(o, withTools("docs", "read", "write"))
	wantNames(t, c, catalogue.Tools, "write")
}

func TestReservedNamesAreNotUsed(t *testing.T) {
	for _, mode := range []catalogue.NameMode{catalogue.Prefixed, catalogue.PrefixedConflicts} {
		o := &catalogue.Options{Names: mode, ReservedNames: []string{"search_tools", "a__call_tool"}}
		c := merge(o, withTools("a", "search_tools", "call_tool"))
		checkNames(t, c, catalogue.DefaultMaxName, 2)
		for _, name := range o.ReservedNames {
			if c.Find(catalogue.Tools, name) != nil {
				t.Errorf("mode %d: an item has the reserved name %q", mode, name)
			}
		}
	}
}

func TestRenamedToolsAndPrompts(t *testing.T) {
	s := server("github", map[catalogue.Kind][]string{
		catalogue.Tools: {tool("create_issue"), tool("list")}, catalogue.Prompts: {prompt("review")}})
	s.Options = &catalogue.ServerOptions{Rename: map[string]string{"create_issue": "new_issue", "review": "check it"}}
	c := merge(nil, s)
	wantNames(t, c, catalogue.Tools, "github__new_issue", "github__list")
	if item := c.Find(catalogue.Tools, "github__new_issue"); item.Original != "create_issue" {
		t.Errorf("got %q, want the original name create_issue", item.Original)
	}
	if got := publicNames(c, catalogue.Prompts)[0]; !strings.HasPrefix(got, "github__check_it_") {
		t.Errorf("got %q, want a changed name", got)
	}
	s.Options = &catalogue.ServerOptions{Rename: map[string]string{"create_issue": "list"}}
	c = merge(nil, s)
	checkNames(t, c, catalogue.DefaultMaxName, 2)
	wantProblem(t, c.Problems(), catalogue.Flagged, "list", `several items have the name "list"`)
	wantProblem(t, c.Problems(), catalogue.Flagged, "create_issue", `several items have the name "list"`)
}

func TestSingleModeKeepsNamesAndDefinitions(t *testing.T) {
	odd := `{ "name" : "x.y/z" , "title":null, "inputSchema" : { } }`
	s := server("a", map[catalogue.Kind][]string{catalogue.Tools: {odd, tool("search_tools")},
		catalogue.Resources: {resource("patchbay://b/x")}})
	c := merge(&catalogue.Options{Single: true, ReservedNames: []string{"search_tools"}}, s, withTools("b", "x"))
	wantNames(t, c, catalogue.Tools, "x.y/z")
	s.Options = &catalogue.ServerOptions{Rename: map[string]string{"search_tools": "x.y/z"}}
	o := &catalogue.Options{Single: true}
	c = merge(o, s)
	if item := c.Find(catalogue.Tools, "x.y/z"); item == nil || item.Original != "search_tools" {
		t.Errorf("got %+v, want the renamed tool", item)
	}
	s.Options = nil
	c = merge(o, s)
	wantNames(t, c, catalogue.Tools, "search_tools", "x.y/z")
	if got := string(c.Find(catalogue.Tools, "x.y/z").Definition()); got != odd {
		t.Errorf("got %s, want %s", got, odd)
	}
	null := `{"name":"x","title":null,"inputSchema":{}}`
	s = server("a", map[catalogue.Kind][]string{catalogue.Tools: {null}, catalogue.Resources: {resource("patchbay://b/x")}})
	merge(&catalogue.Options{Names: catalogue.Unprefixed}, s)
	if got := string(merge(o, s).Find(catalogue.Tools, "x").Definition()); got != null {
		t.Errorf("got %s after another merge, want %s", got, null)
	}
	if r, ok := c.Route("patchbay://b/x"); !ok || r.URI != "patchbay://b/x" {
		t.Errorf("got %+v, %t, want the unchanged URI", r, ok)
	}
}

func TestIDsAreValidAndDistinct(t *testing.T) {
	names := []string{"github", "GitHub", "git hub", "git-hub", "my_server", "日本", "my server", "", "-", "server", "github",
		strings.Repeat("long", 10), strings.Repeat("long", 10) + "er", "@scope/server-everything"}
	ids := catalogue.IDs(names)
	seen := map[string]bool{}
	for i, id := range ids {
		if !regexp.MustCompile(`^[a-z0-9-]{1,24}$`).MatchString(id) || seen[id] {
			t.Errorf("%q: got the id %q, want another one in lower case", names[i], id)
		}
		seen[id] = true
	}
	for i, want := range map[int]string{0: "github", 3: "git-hub", 4: "my-server", 9: "server"} {
		if ids[i] != want {
			t.Errorf("%q: got the id %q, want %q", names[i], ids[i], want)
		}
	}
}

// FuzzNames checks that names are valid, distinct and lead to their items, whatever servers list.
func FuzzNames(f *testing.F) {
	f.Add("a\nb\nx.y", "x__a\na__b\nb", uint8(0), uint8(48))
	f.Add("read\n\u202eread", "READ\nréad", uint8(1), uint8(36))
	f.Add("a__b_abcdef\na.b", "c\nC", uint8(2), uint8(0))
	f.Fuzz(func(t *testing.T, first, second string, mode, limit uint8) {
		valid := func(s string) []string { return strings.Split(strings.ToValidUTF8(s, "?"), "\n") }
		o := &catalogue.Options{Names: catalogue.NameMode(mode % 3), MaxName: int(limit)}
		servers := []catalogue.Server{withTools("a", valid(first)...), withTools("a-b", valid(second)...)}
		c := merge(o, servers...)
		want := servers[0].Lists[catalogue.Tools].Len() + servers[1].Lists[catalogue.Tools].Len()
		for _, p := range c.Problems() {
			if p.Severity == catalogue.Misconfigured {
				want--
			}
		}
		if o.Names != catalogue.Unprefixed && want != servers[0].Lists[catalogue.Tools].Len()+servers[1].Lists[catalogue.Tools].Len() {
			t.Errorf("tools were left out: %+v", c.Problems())
		}
		most := min(max(int(limit), catalogue.MinMaxName), catalogue.MaxMaxName)
		if limit == 0 {
			most = catalogue.DefaultMaxName
		}
		checkNames(t, c, most, want)
		// In the other order, all names are the same, unless names without a prefix have a digest.
		slices.Reverse(servers)
		reversed := merge(o, servers...)
		for _, item := range c.Items(catalogue.Tools) {
			other := reversed.Original(catalogue.Tools, item.Server, item.Original)
			if o.Names != catalogue.Unprefixed && (other == nil || other.Public != item.Public) {
				t.Errorf("%q: the name %q depends on the order", item.Original, item.Public)
			}
		}
	})
}
