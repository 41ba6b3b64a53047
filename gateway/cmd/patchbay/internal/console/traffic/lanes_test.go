package traffic_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The lanes describe the exchanges that the page lists. A link below the lanes selects a part of
// the time, and another link selects the whole time.
func TestLanesSelectARangeOfTime(t *testing.T) {
	mcptest.NoLeaks(t)
	s, _, _ := traffic(t)
	v := s.Visitor()
	page := v.See("/traffic?q=method:tools/call")
	for _, want := range []string{"upstream: 3, 1 failed", "downstream: 0, 0 failed", `class="span failed"`,
		`href="#exchanges-title"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the lanes lack %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "Whole time") {
		t.Errorf("without a range, the page links to the whole time:\n%s", page)
	}
	parts := regexp.MustCompile(`<a href="([^"]+)" aria-label="Show `).FindAllStringSubmatch(page, -1)
	if len(parts) != 4 {
		t.Fatalf("got %d parts of the time, want 4:\n%s", len(parts), page)
	}
	rows := 0
	for _, part := range parts {
		page := v.See(html.UnescapeString(part[1]))
		rows += strings.Count(page, "<tr id=")
		if !strings.Contains(page, `<a class="small" href="/traffic?q=method%3Atools%2Fcall">Whole time</a>`) ||
			strings.Contains(page, "position") {
			t.Errorf("%s shows\n%s", part[1], page)
		}
	}
	if rows < 3 {
		t.Errorf("the parts list %d exchanges, want at least the 3 of the whole", rows)
	}
	if page := v.See("/traffic?q=from:2030-01-01T00:00:00Z"); !strings.Contains(page, "No exchange matches") {
		t.Errorf("a range without exchanges:\n%s", page)
	}
	_, page = v.Send(http.MethodGet, "/traffic?q=to:noon", nil)
	if !strings.Contains(page, "invalid time") {
		t.Errorf("an invalid time:\n%s", page)
	}
}
