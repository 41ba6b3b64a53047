package middleware_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/middleware"
)

// TestDocMiddleware runs the code of the package comment. Time is fake, since the limit allows another call
// after a fifth of a second.
func TestDocMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := 0
		record := func(context.Context, middleware.AuditRecord) { records++ }
		s := mcp.NewServer("name", "1.0.0", &mcp.ServerOptions{Middleware: []mcp.Middleware{
			middleware.Audit(record),
			middleware.RateLimit(&middleware.RateLimitOptions{ToolCalls: middleware.Rate{PerSecond: 5, Burst: 20}}),
			middleware.Sanitize(nil),
		}})
		mcp.AddTool(s, &mcp.Tool{Name: "a"}, func(context.Context, struct{}) (string, error) { return "hidden\U000E0041", nil })
		c, err := mcp.Connect(t.Context(), mcp.InMemory(s), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for call := range 21 {
			text, err := mcp.CallTool[string](t.Context(), c, "a", nil)
			if call < 20 && (err != nil || text != "hidden") || call == 20 && err == nil {
				t.Errorf("call %d: got %q, %v", call, text, err)
			}
		}
		if records < 21 {
			t.Errorf("got %d records, want at least 21", records)
		}
	})
}
