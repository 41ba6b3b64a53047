package traffic_test

import (
	"context"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	screen "github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/traffic"
	"github.com/patchbay-mcp/patchbay/mcp"
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

// A range begins at the oldest exchange, and ends now.
func TestLanesAreBoundedByTheExchanges(t *testing.T) {
	mcptest.NoLeaks(t)
	s, ring, _ := traffic(t)
	text := s.Visitor().See("/traffic?q=from:0002-01-01T00:00:00Z%20to:9000-01-01T00:00:00Z")
	if want := fmt.Sprintf(`data-from="%d"`, ring.Oldest().UnixMilli()); !strings.Contains(text, want) {
		t.Errorf("the lanes lack %s:\n%s", want, text)
	}
	if strings.Contains(text, "to%3A9000-01-01T00%3A00%3A00.000Z\" aria") {
		t.Errorf("the lanes end in the future:\n%s", text)
	}
}

// The lanes are rendered after a change of an exchange, a line of standard error or, with an exchange in
// progress, of the time; not with each rendering.
func TestLanesHaveAVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := capture.New(&capture.Options{Always: true})
		site := page.NewSite(nil, slog.New(slog.DiscardHandler))
		defer site.End()
		view := screen.New(site, ring).Routes[0].View
		version := func() string {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/traffic", http.NoBody)
			v, err := view(site.Request(r, nil, page.RoleOperator))
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(v.Fragments, func(f page.Fragment) bool { return f.ID == "lanes" })
			return v.Fragments[at].Version
		}
		empty := version()
		server, answer := mcp.NewServer("srv", "1", nil), make(chan struct{})
		mcp.AddTool(server, &mcp.Tool{Name: "wait"}, func(context.Context, struct{}) (string, error) {
			<-answer
			return "", nil
		})
		c, err := mcp.Connect(t.Context(), ring.Connect(mcp.InMemory(server), "srv", ""), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var calls sync.WaitGroup
		calls.Go(func() { _, _ = c.CallTool(t.Context(), "wait", nil) })
		synctest.Wait()
		begun := version()
		if begun == empty || empty == "" {
			t.Errorf("got %q after %q, want another version", begun, empty)
		}
		<-time.After(time.Second)
		if got := version(); got != begun {
			t.Errorf("got %q after %q, want the version of an exchange that is in progress", got, begun)
		}
		<-time.After(time.Second)
		later := version()
		if later == begun {
			t.Errorf("got %q after two seconds", later)
		}
		close(answer)
		calls.Wait()
		if got := version(); got == later {
			t.Errorf("got %q after the end", got)
		}
	})
}
