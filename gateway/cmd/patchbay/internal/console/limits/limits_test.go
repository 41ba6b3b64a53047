package limits_test

import (
	"context"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestLimitsShowServersAndCallers(t *testing.T) {
	s := consoletest.New(t, nil)
	v := s.Visitor()
	text := v.See("/limits")
	for _, want := range []string{"No caller has sent a request", `<th scope="row">fs</th>`, "<meter", "closed"} {
		if !strings.Contains(text, want) {
			t.Errorf("before a request: no %q in %s", want, text)
		}
	}
	c := mcptest.Dial(t, s.Host.For(&policy.Caller{Principal: &mcp.Principal{Subject: "<ann>"}}),
		mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, nil)
	if _, err := c.CallTool(t.Context(), "fs__read", nil); err != nil {
		t.Fatal(err)
	}
	v.Await("/limits", "&lt;ann&gt;")
}

// The page shows how far a caller used the budgets of the day and its rates.
func TestLimitsShowBudgets(t *testing.T) {
	fs := mcp.NewServer("fs", "1", nil)
	mcp.AddTool(fs, &mcp.Tool{Name: "read"}, func(context.Context, struct{}) (string, error) { return "text", nil })
	g, h := consoletest.Gateway(t, `{"mcpServers": {"fs": {"command": "x"}}, "patchbay": {"limits": {"callsPerDay": 4,
		"bytesPerDay": "2KiB", "perTool": "20/h", "perCaller": "30/h"}}}`, map[string]*mcp.Server{"fs": fs}, nil)
	v := consoletest.New(t, func(o *console.Options) { o.Admin = g.AdminClient }).Visitor()
	if text := v.See("/limits"); !strings.Contains(text, "4 calls and 2.0 kB") ||
		!strings.Contains(text, "No caller has used a part of a budget") {
		t.Errorf("before a request: got %s", text)
	}
	c := mcptest.Dial(t, h.For(&policy.Caller{Principal: &mcp.Principal{Subject: "<ann>"}}),
		mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, nil)
	if _, err := c.CallTool(t.Context(), "fs__read", nil); err != nil {
		t.Fatal(err)
	}
	text := v.See("/limits")
	for _, want := range []string{"1 of 4, 25 %", "of 2.0 kB", "fs read</span> 19 of 20 left, 20/h",
		"all requests</span> 29 of 30 left, 30/h", "midnight UTC",
		"The figures are of this gateway."} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s, want %q", text, want)
		}
	}
}
