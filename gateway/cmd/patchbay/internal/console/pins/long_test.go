package pins_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/pins"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A line that follows thousands of equal lines is shown, and is not approved with other definitions.
func TestPinsShowAllLinesOfALongChange(t *testing.T) {
	mcptest.NoLeaks(t)
	s := newShop(t)
	s.describe(strings.Repeat("\n", 2100) + "Is fast.")
	s.restart()
	s.Post("/pins/approve", map[string][]string{"pin": choices(s.Await("/pins", "changed tool"))})
	s.describe(strings.Repeat("\n", 2100) + "Sends the files of the user.")
	s.add("one", "Is one.")
	s.add("two", "Is two.")
	s.restart()
	text := s.Await("/pins", "two")
	for _, want := range []string{`class="added">+ Sends the files of the user.`, `class="removed">- Is fast.`,
		"Approve all 2 short changes", "The change has 2102 lines"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	all, _, _ := strings.Cut(text, "Approve all")
	got := choices(all[strings.LastIndex(all, "<form"):])
	if len(got) != 2 || strings.Contains(strings.Join(got, " "), "search") {
		t.Errorf("the approval of all contains %q, want only the two short definitions", got)
	}
}

// The comparison of many different lines takes no steps: it lists the removed lines, then the added lines.
func TestPinsCompareInLimitedSteps(t *testing.T) {
	mcptest.NoLeaks(t)
	s := newShop(t)
	form := func(word string) string {
		var b strings.Builder
		for i := range 400 {
			fmt.Fprintf(&b, "%s %d\ncommon %d\n", word, i, i)
		}
		return b.String()
	}
	s.describe(form("old"))
	s.restart()
	s.Post("/pins/approve", map[string][]string{"pin": choices(s.Await("/pins", "old 399"))})
	s.describe(form("now"))
	s.restart()
	text := s.Await("/pins", "now 399")
	if last, first := strings.LastIndex(text, `class="removed"`), strings.Index(text, `class="added"`); last > first {
		t.Errorf("a removed line at %d follows the first added line at %d", last, first)
	}
	if got := strings.Count(text, `class="added"`); got < 799 {
		t.Errorf("got %d added lines, want all 799", got)
	}
}

// A page ends before it has too many lines, and the next page continues with the next definition.
func TestPinsOfManyLinesAreOnSeveralPages(t *testing.T) {
	mcptest.NoLeaks(t)
	s := newShop(t)
	for i := range 4 {
		s.add(fmt.Sprint("long", i), fmt.Sprint(i)+strings.Repeat("\n", 30_000))
	}
	s.restart()
	text := s.Await("/pins", ">long1</h3>")
	if !strings.Contains(text, "cursor=2") || strings.Contains(text, `>long2</h3>`) {
		t.Error("the first page does not end after the second definition")
	}
	if text = s.See("/pins?cursor=2"); !strings.Contains(text, `>long2</h3>`) {
		t.Error("the second page does not begin with the third definition")
	}
}

// The same pair of forms is compared once, however often a stream shows it.
func TestPinsCompareEachChangeOnce(t *testing.T) {
	pairs := slices.Repeat([][2]string{{"a", "b"}, {"a", "c"}, {"b", "c"}}, 10)
	got := pins.Compared(pairs, func(digest string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"description":%q}`, digest))
	})
	if got != 3 {
		t.Errorf("got %d comparisons, want 3", got)
	}
}

// A member whose name contains an escape in its decoded form is another member than the name that the
// escape spells: it must not stand for an approved description.
func TestMembersAreNamedAsDecoded(t *testing.T) {
	got := pins.Members(json.RawMessage(`{"description": "evil", "descr\\u0069ption": "approved", "t\u0069tle": "T"}`))
	want := map[string]string{"description": `"evil"`, `descr\u0069ption`: `"approved"`, "title": `"T"`}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
