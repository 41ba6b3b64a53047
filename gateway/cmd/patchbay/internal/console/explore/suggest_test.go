package explore_test

import (
	"context"
	"html"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A server suggests values for the arguments of a prompt and the variables of a template, and a
// button fills a value in.
func TestServersSuggestValues(t *testing.T) {
	mcptest.NoLeaks(t)
	server := mcp.NewServer("travel", "1", nil)
	cities := func(_ context.Context, typed string, others map[string]string) ([]string, error) {
		return []string{typed + "lin", others["country"] + `"><b>x</b>`, strings.Repeat("long", 1000)}, nil
	}
	complete := map[string]mcp.CompleteFunc{"city": cities}
	type place struct {
		Country string `json:"country"`
		City    string `json:"city"`
	}
	mcp.AddPrompt(server, &mcp.Prompt{Name: "visit", Complete: complete},
		func(_ context.Context, in place) (string, error) { return "Visit " + in.City, nil })
	mcp.AddResourceTemplate(server, &mcp.ResourceTemplate{Name: "city", URITemplate: "city:///{country}/{city}",
		Complete: complete}, func(_ context.Context, in place) (string, error) { return in.City, nil })
	v := newVisitor(t, func() mcp.Transport { return mcp.InMemory(server) })
	v.Await("/explore?server=fs&kind=prompts", "visit")
	for kind, name := range map[string]string{"prompts": "visit", "templates": "city:///{country}/{city}"} {
		posted := url.Values{"at-server": {"fs"}, "at-kind": {kind}, "at-name": {name}, "at-timeout": {"60"},
			"mode": {"form"}, "open:": {""}, "/country": {"DE"}, "/city": {"Ber"}, "suggest": {"city"}}
		page := v.See(v.Post("/explore/run", posted))
		for _, want := range []string{`name="use" value="Berlin"`, `DE"><b>x</b></button>`, `name="/country"`,
			"DE</textarea>"} {
			if !strings.Contains(html.UnescapeString(page), want) {
				t.Errorf("%s: the page lacks %q:\n%s", kind, want, page)
			}
		}
		if strings.Contains(page, "<b>x") || strings.Contains(page, "longlong") {
			t.Errorf("%s: the page contains markup or a long value of the server", kind)
		}
		posted.Del("suggest")
		posted.Set("suggested", "city")
		posted.Set("use", "Berlin")
		if page := v.See(v.Post("/explore/run", posted)); !strings.Contains(page, "Berlin</textarea>") {
			t.Errorf("%s: the value is not filled in:\n%s", kind, page)
		}
	}
	page := v.See(v.Post("/explore/run", url.Values{"at-server": {"fs"}, "at-kind": {"prompts"}, "at-name": {"visit"},
		"at-timeout": {"60"}, "mode": {"form"}, "open:": {""}, "suggest": {"country"}}))
	if !strings.Contains(page, "No suggestions") && !strings.Contains(page, "suggests no value") {
		t.Errorf("an argument without suggestions:\n%s", page)
	}
}
