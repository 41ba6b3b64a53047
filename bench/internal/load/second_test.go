package load_test

import (
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func dial(t *testing.T, s *mcp.Server, call load.Call) *load.HTTP {
	t.Helper()
	server := httptest.NewServer(mcphttp.NewHandler(s, nil))
	t.Cleanup(server.Close)
	h, err := load.DialHTTP(server.URL+"/mcp", 2, call)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func TestCallsOfTwoRequestsAreChecked(t *testing.T) {
	for name, h := range map[string]*load.HTTP{
		"question": dial(t, patchbay.NewAsker(), load.Call{Era: echo.Modern, Tool: echo.AskTool}),
		"two pages": dial(t, patchbay.NewGatewayLister(10, 1000),
			load.Call{Era: echo.Modern, List: 1000, Servers: 10}),
	} {
		if got, err := h.Run(slice); err != nil || got.Calls < 2 {
			t.Errorf("%s: %d calls, error %v", name, got.Calls, err)
		}
	}
	server := httptest.NewServer(mcphttp.NewHandler(patchbay.NewServer(), nil))
	defer server.Close()
	if _, err := load.DialHTTP(server.URL+"/mcp", 1, load.Call{Era: echo.Modern, List: 1000, Servers: 10}); err == nil {
		t.Error("a list without a second page is no error, want one")
	}
}

func TestRunAtKeepsTheRate(t *testing.T) {
	h := dial(t, patchbay.NewServer(), load.Call{Era: echo.Modern, Tool: echo.Tool})
	all, err := h.RunAt(200, 100*time.Millisecond)
	if err != nil || len(all) != 20 || !slices.IsSorted(all) || all[0] <= 0 {
		t.Errorf("latencies %v, error %v; want 20 in order", all, err)
	}
}
