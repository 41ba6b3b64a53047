package gateway_test

import (
	"crypto/ed25519"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const limitedServer = `{"mcpServers": {"one": {"command": "one"}}, "patchbay": {
	"limits": {"callsPerDay": 5, "bytesPerDay": "1MiB", "perTool": "2/h", "perCaller": "50/s"}}}`

// callAs calls a tool as a principal, and returns the text of the result.
func (a *adminTest) callAs(subject, tool string, times int) (last *mcp.CallToolResult) {
	a.t.Helper()
	p := &mcp.Principal{Issuer: "https://idp.example", Subject: subject, ClientID: "7:x"}
	caller := &policy.Caller{Principal: p}
	c := mcptest.Dial(a.t, a.host.For(caller), mcptest.Combination{Transport: mcptest.InMemory,
		Revision: mcptest.Modern}, nil)
	for range times {
		var err error
		if last, err = c.CallTool(a.t.Context(), tool, nil); err != nil {
			a.t.Fatal(err)
		}
	}
	return last
}

// A caller's use of rates and budgets is shown by caller and tool, with the refusals of the server.
func TestAdminShowsLimits(t *testing.T) {
	a := newAdmin(t, limitedServer, nil)
	type rate struct {
		Server, Tool, Limit string
		Burst, Left         int
	}
	var page struct {
		Servers []struct {
			Name        string
			Concurrency int
			Breaker     string
			Refused     map[string]int
		}
		PerTool     string
		CallsPerDay int
		Resets      time.Time
		NextCursor  int
		Callers     []struct {
			Subject, Issuer string
			Calls, Bytes    int
			Rates           []rate
		}
	}
	a.get("GET", "/limits", "", &page)
	if len(page.Callers) != 0 || len(page.Servers) != 1 || page.CallsPerDay != 5 ||
		page.PerTool != "2/h" || time.Until(page.Resets) > 24*time.Hour {
		t.Errorf("before a request: %+v", page)
	}
	if res := a.callAs("ann", "one__whoami", 3); !res.IsError {
		t.Errorf("third call: got %s, want a refusal", res.Text())
	}
	a.callAs("bob", "one__whoami", 1)
	a.get("GET", "/limits?limit=1", "", &page)
	if page.NextCursor != 1 {
		t.Errorf("next cursor %d, want 1", page.NextCursor)
	}
	a.get("GET", "/limits?subject=ann", "", &page)
	if len(page.Callers) != 1 || page.Callers[0].Subject != "ann" || page.Callers[0].Issuer != "https://idp.example" ||
		page.Callers[0].Calls != 2 || page.Callers[0].Bytes == 0 || len(page.Callers[0].Rates) == 0 {
		t.Fatalf("callers %+v", page.Callers)
	}
	rates := page.Callers[0].Rates
	if got, want := rates[len(rates)-1], (rate{"one", "whoami", "2/h", 2, 0}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if page.Servers[0].Refused["limits.perTool"] != 1 {
		t.Errorf("refused %v", page.Servers[0].Refused)
	}
}

func TestAdminShowsStats(t *testing.T) {
	a := newAdmin(t, limitedServer, nil)
	a.callAs("ann", "one__whoami", 3)
	var stats struct {
		Started  time.Time
		Servers  map[string]int
		ByServer map[string]struct {
			State   string
			Limited map[string]int
		}
		HTTP   struct{ Sessions int }
		Events int
	}
	a.get("GET", "/stats", "", &stats)
	if stats.Servers["ready"] != 1 || stats.ByServer["one"].State != "ready" || stats.Started.IsZero() ||
		stats.ByServer["one"].Limited["limits.perTool"] != 1 || stats.Events < 3 {
		t.Errorf("got %+v", stats)
	}
}

// A check of the audit log runs in the background, and reports the first defect.
func TestAdminVerifiesTheAuditLog(t *testing.T) {
	dir := t.TempDir()
	l, err := audit.Open(&audit.Options{Dir: dir, Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := l.Record(&event.Record{Event: event.Admin, Start: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	type report struct {
		Running, OK bool
		Checked     time.Time
		Chains      []struct {
			Seq, Signed uint64
			Problem     struct {
				Kind, File string
				Seq        uint64
			}
		}
	}
	verify := func() (r report) {
		a := newAdmin(t, adminConfig, func(_ *host.Options, o *gateway.AdminOptions) { o.AuditDir = dir })
		for r.Checked.IsZero() {
			a.get("GET", "/audit/chain", "", &r)
		}
		return r
	}
	if r := verify(); !r.OK || r.Running || len(r.Chains) != 1 || r.Chains[0].Seq < 3 {
		t.Errorf("a valid log: %+v", r)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	text, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	altered := strings.Replace(string(text), `"event":"admin"`, `"event":"login"`, 1)
	if err := os.WriteFile(paths[0], []byte(altered), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := verify(); r.OK || r.Chains[0].Problem.Kind != "altered" || r.Chains[0].Problem.Seq == 0 ||
		r.Chains[0].Problem.File != paths[0] {
		t.Errorf("an altered log: %+v", r)
	}
	newAdmin(t, adminConfig, nil).refused("GET", "/audit/chain", "", http.StatusNotFound, "no_audit_log")
}
