package catalogue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
)

func describedTool(name, title, description string, args ...string) string {
	return fmt.Sprintf(`{"name":%q,"title":%q,"description":%q,"inputSchema":{"type":"object","properties":{%s}}}`, name, title,
		description, strings.Join(each(func(a string) string { return quote(a) + ":{}" }, args), ","))
}

func TestSearchRanksTools(t *testing.T) {
	c := merge(nil,
		server("github", map[catalogue.Kind][]string{catalogue.Tools: {
			describedTool("createIssue", "Create an issue", "Creates an issue in a repository.", "owner", "repo", "assignees"),
			describedTool("list_issues", "", "Lists the issues of a repository, the newest first.", "owner", "repo"),
			describedTool("get_me", "", "Returns the user."),
		}}),
		server("calendar", map[catalogue.Kind][]string{catalogue.Tools: {
			describedTool("HTTPFetchV2", "", "Gets a page."),
			describedTool("add.event", "Neuer Termin", "Adds an event. An issue of the calendar is not an event. "+strings.Repeat("word ", 100), "startTime"),
		}}))
	for query, want := range map[string][]string{
		"create issue":          {"github__createIssue", "github__list_issues"},
		"ISSUES":                {"github__createIssue", "github__list_issues"}, // also in the title
		"fetch http":            {"calendar__HTTPFetchV2"},
		"start":                 {"add.event"},
		"termin":                {"add.event"},
		"add.event":             {"add.event"},
		"get_me":                {"github__get_me", "calendar__HTTPFetchV2"},
		"nothing matches xyzzy": nil,
		"":                      nil,
		"?!":                    nil,
	} {
		var got []string
		for _, item := range c.Search(query, 2) {
			if name := item.Public; strings.HasPrefix(name, "calendar__add_event_") {
				got = append(got, item.Original)
			} else {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", query, got, want)
		}
	}
	lists := merge(nil, withTools("a", "list", "list_lists_list"))
	if got := lists.Search("list_lists_list", 1); len(got) != 1 || got[0].Original != "list_lists_list" {
		t.Errorf("got %v, want the tool of this name", got)
	}
	if got := lists.Search("list", 1); len(got) != 1 || got[0].Original != "list" {
		t.Errorf("got %v, want the tool of this name", got)
	}
	if got := c.Search("the "+strings.Repeat("issue ", 100_000), 1); len(got) != 1 {
		t.Errorf("got %d tools, want the limit of 1", len(got))
	}
	if got := len(c.Search("issue event page user", 0)); got != 5 {
		t.Errorf("got %d tools without a limit, want all 5 that match", got)
	}
}

func TestTokensGrowWithDefinitions(t *testing.T) {
	var few, many []string
	for i := range 200 {
		many = append(many, describedTool(fmt.Sprint("tool", i), "", strings.Repeat("text ", 80), "argument"))
	}
	few = many[:5]
	tokens := func(items []string) int {
		return merge(nil, server("s", map[catalogue.Kind][]string{catalogue.Tools: items})).Tokens()
	}
	if got := tokens(few); got < 400 || got > 1000 {
		t.Errorf("got %d tokens for 2,500 bytes, want about 650", got)
	}
	if got := tokens(many); got <= catalogue.AutoSearchTokens {
		t.Errorf("got %d tokens, want more than %d", got, catalogue.AutoSearchTokens)
	}
}
