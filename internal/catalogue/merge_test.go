package catalogue_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/catalogue"
)

// page returns a result with the items of a kind.
func page(k catalogue.Kind, items ...string) json.RawMessage {
	return fmt.Appendf(nil, `{"%s":[%s]}`, k.Member(), strings.Join(items, ","))
}

func tool(name string) string {
	return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name)
}

// server returns a server with tools of the given names.
func server(name string, tools ...string) catalogue.Server {
	s := catalogue.Server{Name: name}
	var items []string
	for _, t := range tools {
		items = append(items, tool(t))
	}
	s.Lists[catalogue.Tools] = catalogue.Parse(catalogue.Tools, page(catalogue.Tools, items...))
	return s
}

// publicNames returns the names of the items of a kind, in order.
func publicNames(c *catalogue.Catalogue, k catalogue.Kind) (names []string) {
	for _, item := range c.Items(k) {
		names = append(names, item.Public)
	}
	return names
}

func TestToolsAreListedInTheOrderOfServersAndNames(t *testing.T) {
	c := catalogue.Merge([]catalogue.Server{server("web", "search", "fetch"), server("fs", "read")}, nil)
	if got, want := fmt.Sprint(publicNames(c, catalogue.Tools)), "[web__fetch web__search fs__read]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	items, next, err := c.Page(catalogue.Tools, "", 0)
	want := "[" + tool("web__fetch") + "," + tool("web__search") + "," + tool("fs__read") + "]"
	if string(items) != want || next != "" || err != nil {
		t.Errorf("got %s, %q, %v, want %s", items, next, err, want)
	}
	if item := c.Find(catalogue.Tools, "fs__read"); item == nil || item.Server != "fs" || item.Original != "read" {
		t.Errorf("got %+v, want read of fs", item)
	}
}
