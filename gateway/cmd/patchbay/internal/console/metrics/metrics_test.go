package metrics_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Calls of clients appear as charts, as a table, and by server and method.
func TestMetricsShowCalls(t *testing.T) {
	s := consoletest.New(t, nil)
	v := s.Visitor()
	if text := v.See("/metrics"); !strings.Contains(text, "No call since") ||
		!strings.Contains(text, "begin with the start") {
		t.Errorf("without calls: got %s", text)
	}
	c := mcptest.Dial(t, s.Host.For(&policy.Caller{}), mcptest.Combination{Transport: mcptest.InMemory,
		Revision: mcptest.Modern}, nil)
	for range 3 {
		if _, err := c.CallTool(t.Context(), "fs__read", nil); err != nil {
			t.Fatal(err)
		}
	}
	v.Await("/metrics?window=24h", `value="server:fs"`) // before the first event, there is no call of fs
	text := v.Await("/metrics?window=24h&of=server:fs", `class="line line-1"`)
	for _, want := range []string{"Calls per second", "<desc", "at most", `value="method:tools/call"`, "as a table",
		`href="/metrics?of=server%3Afs&amp;view=table&amp;window=24h"`} {
		if !strings.Contains(text, want) {
			t.Errorf("charts: no %q in %s", want, text)
		}
	}
	if text := v.Await("/metrics?window=24h&view=table", `<td class="num">3</td>`); strings.Contains(text, "<figure") {
		t.Errorf("table: got %s", text)
	}
	if res, text := v.Send(http.MethodGet, "/metrics?of=server:none", nil); res.StatusCode != http.StatusNotFound ||
		!strings.Contains(text, "no call of server:none") {
		t.Errorf("unknown server: got %d, %s", res.StatusCode, text)
	}
}
