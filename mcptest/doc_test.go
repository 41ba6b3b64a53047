package mcptest_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestMain(m *testing.M) { os.Exit(mcptest.Main(m)) }

func add(_ context.Context, in sumIn) (int, error) { return in.A + in.B, nil }

// TestAdd is the test of the package comment.
func TestAdd(t *testing.T) {
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, add)
	mcptest.RunClient(t, s, nil, func(t *testing.T, c *mcp.Client) {
		sum, err := mcp.CallTool[int](t.Context(), c, "add", map[string]any{"a": 1, "b": 2})
		if err != nil || sum != 3 {
			t.Errorf("got %d, %v, want 3", sum, err)
		}
	})
}

func TestAddMessages(t *testing.T) {
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, add)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		got := c.Call("tools/call", map[string]any{"name": "add", "arguments": map[string]any{"a": 1, "b": 2}})
		if !strings.Contains(string(got), `"text":"3"`) {
			t.Errorf("got %s", got)
		}
	})
}
