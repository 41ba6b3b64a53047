package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// The load accepts every response of the baseline server.
func TestLoadAcceptsResponsesOfBaseline(t *testing.T) {
	for _, era := range []echo.Era{echo.Modern, echo.Session} {
		for name, call := range map[string]load.Call{
			"call":      {Tool: echo.Tool},
			"stream":    {Tool: echo.Tool, SSE: true},
			"progress":  {Tool: echo.ProgressTool, SSE: true},
			"notes":     {Tool: echo.NotificationsTool, SSE: true},
			"arguments": {Tool: echo.CountTool},
			"result":    {Tool: echo.LargeTool},
			"list":      {List: 50},
		} {
			t.Run(string(era)+"/"+name, func(t *testing.T) {
				call.Era = era
				s := httptest.NewServer(newHandler(rig.Options{Era: era, SSE: call.SSE, Tool: call.Tool,
					Tools: call.List}))
				defer s.Close()
				h, err := load.DialHTTP(s.URL+"/mcp", 2, call)
				if err != nil {
					t.Fatal(err)
				}
				defer h.Close()
				if _, err := h.Run(time.Millisecond); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// The baseline writes lists of the same length as this project's server, except
// for the server names.
func TestBaselineListHasSameLength(t *testing.T) {
	const n = 50
	ours := httptest.NewServer(mcphttp.NewHandler(patchbay.NewLister(n), nil))
	defer ours.Close()
	limit := httptest.NewServer(newHandler(rig.Options{Era: echo.Modern, Tools: n}))
	defer limit.Close()
	if a, b := listLength(t, ours.URL), listLength(t, limit.URL); a-len("patchbay") != b-len("limit") {
		t.Errorf("list of %d bytes, baseline %d, want the same length without the names", a, b)
	}
}

func listLength(t *testing.T, url string) int {
	t.Helper()
	body := string(load.Call{Era: echo.Modern, List: 50}.Message())
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("MCP-Protocol-Version", echo.Modern.Revision())
	req.Header.Set("Mcp-Method", "tools/list")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var b strings.Builder
	if err := res.Write(&b); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("status %s, %v: %s", res.Status, err, b.String())
	}
	_, answer, _ := strings.Cut(b.String(), "\r\n\r\n")
	return len(answer)
}

func TestLongLinesAreAnswered(t *testing.T) {
	call := load.Call{Era: echo.Modern, Tool: echo.CountTool}
	var out strings.Builder
	in := strings.NewReader(string(call.Message()) + "\n" + string(call.Message()) + "\n")
	if err := serveLongLines(in, &out, answersOf(echo.Modern)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d responses, want 2", len(lines))
	}
	for _, line := range lines {
		if err := call.Check([]byte(line)); err != nil {
			t.Error(err)
		}
	}
}
