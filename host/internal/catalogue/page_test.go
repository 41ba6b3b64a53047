package catalogue_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
)

// readPages returns the names of all items, page by page. change is called before each page but the
// first, and returns the catalogue that has the page.
func readPages(t *testing.T, c *catalogue.Catalogue, k catalogue.Kind, limit int, change func(i int) *catalogue.Catalogue) (names []string) {
	t.Helper()
	after := ""
	for i := range 10_000 {
		if i > 0 && change != nil {
			c = change(i)
		}
		raw, next, err := c.Page(k, after, limit)
		var items []struct{ Name, URI, URITemplate string }
		if err != nil || json.Unmarshal(raw, &items) != nil {
			t.Fatalf("page %d: %s, %v", i, raw, err)
		}
		for _, item := range items {
			name := item.Name
			if k == catalogue.Resources {
				name = item.URI
			}
			names = append(names, name)
		}
		if next == "" {
			return names
		}
		after = next
	}
	t.Fatal("the pages do not end")
	return nil
}

func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s%04d", prefix, i))
	}
	return names
}

func TestPagesHaveAllItemsInOrder(t *testing.T) {
	c := merge(nil, withTools("b", numbered("x", 700)...), withTools("a", numbered("y", 800)...), withTools("c"))
	want := publicNames(c, catalogue.Tools)
	for _, limit := range []int{0, 1, 7, 499, 500, 501, 1500, 2000} {
		if got := readPages(t, c, catalogue.Tools, limit, nil); !slices.Equal(got, want) {
			t.Errorf("limit %d: got %d items, want %d in order", limit, len(got), len(want))
		}
	}
	first, _, _ := c.Page(catalogue.Tools, "", 0)
	if got := strings.Count(string(first), `"name"`); got != catalogue.PageSize {
		t.Errorf("got a page of %d items, want %d", got, catalogue.PageSize)
	}
}

func TestPagesStayValidWhenTheCatalogueChanges(t *testing.T) {
	all := numbered("x", 10)
	without := func(names ...string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return slices.Contains(names, n) })
	}
	before := merge(nil, withTools("a", all...), withTools("b", all...), withTools("c", all...))
	for name, test := range map[string]struct {
		after *catalogue.Catalogue
		want  []string // behind the first 13
	}{
		"item removed":        {merge(nil, withTools("a", all...), withTools("b", without("x0002")...), withTools("c", all...)), publicNames(before, catalogue.Tools)[13:]},
		"item added before":   {merge(nil, withTools("a", append(all, "x9")...), withTools("b", append(all, "a")...), withTools("c", all...)), publicNames(before, catalogue.Tools)[13:]},
		"server removed":      {merge(nil, withTools("a", all...), withTools("c", all...)), publicNames(before, catalogue.Tools)[20:]},
		"server added before": {merge(nil, withTools("0", all...), withTools("a", all...), withTools("b", all...), withTools("c", all...)), publicNames(before, catalogue.Tools)[13:]},
		"all removed":         {merge(nil), nil},
	} {
		got := readPages(t, before, catalogue.Tools, 13, func(int) *catalogue.Catalogue { return test.after })
		if want := append(publicNames(before, catalogue.Tools)[:13:13], test.want...); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestPositionsAreShortAndExact(t *testing.T) {
	var uris []string
	for i := range 5 {
		uris = append(uris, "file:///"+strings.Repeat("é", 3000)+fmt.Sprint(i))
	}
	c := merge(nil, withURIs("a", uris...), withURIs("b", uris...))
	_, next, _ := c.Page(catalogue.Resources, "", 1)
	if len(next) > 1024 {
		t.Errorf("the position has %d bytes, want at most 1024", len(next))
	}
	if got := readPages(t, c, catalogue.Resources, 1, nil); !slices.Equal(got, publicNames(c, catalogue.Resources)) {
		t.Errorf("got %d items, want %d in order", len(got), 10)
	}
}

func TestLargeDefinitionsMakeShorterPages(t *testing.T) {
	var items []string
	for i := range 6 {
		items = append(items, fmt.Sprintf(`{"name":"x%d","inputSchema":{},"description":%q}`, i, strings.Repeat("x", 1<<20-200)))
	}
	c := merge(nil, server("a", map[catalogue.Kind][]string{catalogue.Tools: items}))
	first, next, _ := c.Page(catalogue.Tools, "", 0)
	if len(first) > 4<<20 || len(first) < 3<<20 || next == "" {
		t.Errorf("got a page of %d bytes, want at most 4 MiB", len(first))
	}
	if got := readPages(t, c, catalogue.Tools, 0, nil); len(got) != 6 {
		t.Errorf("got %d tools, want 6", len(got))
	}
}

func TestMalformedPositionsAreErrors(t *testing.T) {
	c := merge(nil, withTools("a", "x", "y"))
	for _, after := range []string{"x", "0", "0 a", "0 a x", "x a abcdefghijklmnopx", " ", "99999999999999999999 a abcdefghijklmnopqx"} {
		if _, _, err := c.Page(catalogue.Tools, after, 0); !errors.Is(err, catalogue.ErrCursor) {
			t.Errorf("%q: got %v, want ErrCursor", after, err)
		}
	}
}

func FuzzPage(f *testing.F) {
	c := merge(nil, withTools("a", numbered("x", 20)...), withTools("b", "y"))
	_, next, _ := c.Page(catalogue.Tools, "", 3)
	f.Add(next, 3)
	f.Add("-1 a aaaaaaaaaaaaaaaa", -1)
	f.Fuzz(func(t *testing.T, after string, limit int) {
		items, _, err := c.Page(catalogue.Tools, after, limit)
		if err == nil && !json.Valid(items) {
			t.Errorf("got %s", items)
		}
	})
}
