package audit_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// newLog writes records of n calls of each of two callers, and a refused call, to a folder.
func newLog(t *testing.T, n int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := audit.Open(&audit.Options{Dir: dir, HeadDir: t.TempDir(), Key: key, Arguments: audit.ArgumentsShape,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	record := func(id, caller, tool string, err error) {
		t.Helper()
		r := &event.Record{Event: event.End, Call: id, Method: "tools/call", Public: tool, Start: time.Now(),
			Duration: time.Millisecond, Err: err, Rule: "r1", Action: policy.Action{Server: "db", Target: tool,
				Caller:    &policy.Caller{Principal: &mcp.Principal{Subject: caller}},
				Arguments: json.RawMessage(`{"table":"users"}`)}}
		if err != nil {
			r.Event = event.Refused
		}
		if err := l.Record(r); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		record(fmt.Sprintf("a-%d", i), "ann", "read", nil)
		record(fmt.Sprintf("b-%d", i), "bob", "write", nil)
	}
	record("c-0", "bob", "<b>drop", &hosterr.Error{Code: "denied"})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func newSite(t *testing.T, dir string) *consoletest.Visitor {
	t.Helper()
	return newConsole(t, dir, nil).Visitor()
}

func newConsole(t *testing.T, dir string, authenticate func(*http.Request) (*mcp.Principal, page.Role, error),
) *consoletest.Site {
	t.Helper()
	g, _ := consoletest.Gateway(t, `{"mcpServers": {}}`, nil,
		func(_ *host.Options, a *gateway.AdminOptions) { a.AuditDir = dir })
	return consoletest.New(t, func(o *console.Options) {
		o.Admin, o.Gateway, o.Authenticate = g.AdminClient, true, authenticate
	})
}

// A viewer sees who called what, but neither arguments nor whole records.
func TestAuditHidesArgumentsFromViewers(t *testing.T) {
	mcptest.NoLeaks(t)
	role := page.RoleViewer
	s := newConsole(t, newLog(t, 1), func(*http.Request) (*mcp.Principal, page.Role, error) {
		return &mcp.Principal{Subject: "vera"}, role, nil
	}).Guest()
	for _, role = range []page.Role{page.RoleViewer, page.RoleOperator} {
		for _, id := range []string{"a-0", "c-0"} {
			text := s.See("/audit?id=" + id)
			for _, always := range []string{"ann", "read", "r1", "refused: denied"} {
				if !strings.Contains(text, always) {
					t.Errorf("the page of a %s lacks %q:\n%s", role, always, text)
				}
			}
			for _, detail := range []string{"shape of the arguments", "string:5", "Record ", "&#34;args&#34;"} {
				if strings.Contains(text, detail) && role == page.RoleViewer {
					t.Errorf("the page of a viewer contains %q:\n%s", detail, text)
				}
			}
			if !strings.Contains(text, "string:5") && role == page.RoleOperator {
				t.Errorf("the page of an operator has no arguments:\n%s", text)
			}
		}
	}
}

func TestAuditFiltersRecords(t *testing.T) {
	mcptest.NoLeaks(t)
	s := newSite(t, newLog(t, 3))
	for query, want := range map[string]struct {
		rows      int
		text, not string
	}{
		"":                           {7, "&lt;b&gt;drop", "<b>drop"},
		"caller=ann":                 {3, "read", "write"},
		"caller=a*&tool=re*":         {3, "read", "write"},
		"event=refused":              {1, "refused: denied", ">read<"},
		"server=none":                {0, "No record matches", "data-primary"},
		"since=1h&until=2100-01-01":  {7, "read", "No record"},
		"until=2000-01-01":           {0, "No record matches", "data-primary"},
		"since=yesterday&caller=ann": {3, "invalid time", "write"},
		"id=a-1":                     {7, "shape of the arguments", "<b>drop"},
	} {
		text := s.See("/audit?" + query)
		if n := strings.Count(text, "<tr data-row"); n != want.rows || !strings.Contains(text, want.text) ||
			strings.Contains(text, want.not) {
			t.Errorf("%s: got %d rows of %s", query, n, text)
		}
	}
	text := s.See("/audit?id=a-1")
	for _, want := range []string{"string:5", "ann", "r1", "1.0 ms", `aria-selected="true"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if res, text := s.Send(http.MethodGet, "/audit?id=none", nil); res.StatusCode != http.StatusNotFound ||
		!strings.Contains(text, "unknown_call") {
		t.Errorf("unknown call: got %d %s", res.StatusCode, text)
	}
}

var olderLink = regexp.MustCompile(`href="([^"]*)">Older`)

// The pages contain each record once, also records of the same millisecond.
func TestAuditPagesAreComplete(t *testing.T) {
	mcptest.NoLeaks(t)
	s := newSite(t, newLog(t, 600))
	seen, path := map[string]int{}, "/audit"
	for range 5 {
		text := s.See(path)
		for _, m := range regexp.MustCompile(`id=([abc]-\d+)[&#]`).FindAllStringSubmatch(text, -1) {
			seen[m[1]]++
		}
		m := olderLink.FindStringSubmatch(text)
		if m == nil {
			break
		}
		u, err := url.Parse(strings.ReplaceAll(m[1], "&amp;", "&"))
		if err != nil {
			t.Fatal(err)
		}
		path = u.String()
	}
	if len(seen) != 1201 {
		t.Errorf("the pages contain %d calls, want 1201", len(seen))
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("call %s is on %d rows, want 1", id, n)
		}
	}
}

func TestAuditWithoutALog(t *testing.T) {
	mcptest.NoLeaks(t)
	s := newSite(t, "")
	if text := s.See("/audit"); !strings.Contains(text, "keeps no audit log") {
		t.Errorf("got %s", text)
	}
}
