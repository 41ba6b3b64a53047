package mcptest_test

import (
	"context"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

var t *testing.T // of the test that an example is the body of

type sumIn struct {
	A int `json:"a"`
	B int `json:"b"`
}

func newCalc() *mcp.Server {
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(_ context.Context, in sumIn) (int, error) { return in.A + in.B, nil })
	return s
}

// Run tests a server over every transport and revision.
func ExampleRun() {
	mcptest.Run(t, newCalc(), func(t *testing.T, c *mcptest.Client) {
		c.Call("tools/call", map[string]any{"name": "add", "arguments": map[string]any{"a": 1, "b": 2}})
	})
}

// RunOn tests some combinations, here with a short timeout.
func ExampleRunOn() {
	opts := &mcptest.Options{Timeout: time.Second}
	mcptest.RunOn(t, newCalc(), mcptest.Since("2025-06-18"), opts, func(t *testing.T, c *mcptest.Client) {
		if _, err := c.Try("tools/call", map[string]any{"name": "unknown"}); err == nil {
			t.Error("an unknown tool was called")
		}
	})
}

// NoLeaks fails a test outside a bubble that leaves goroutines behind.
func ExampleNoLeaks() {
	mcptest.NoLeaks(t)
	c := mcptest.Connect(t, newCalc(), mcptest.Combination{Transport: mcptest.Stdio, Revision: mcptest.Modern}, nil)
	c.Call("tools/list", nil)
}
