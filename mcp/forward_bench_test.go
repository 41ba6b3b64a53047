package mcp_test

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// BenchmarkForward is a tool call through Forward in memory, by the revision of the server's side.
func BenchmarkForward(b *testing.B) {
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		b.Run(revision, func(b *testing.B) {
			s := mcp.NewServer("calc", "1", nil)
			mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(_ context.Context, in struct{ A, B int }) (int, error) {
				return in.A + in.B, nil
			})
			connect := func(h mcp.Handler, opts *mcp.ClientOptions) *mcp.Client {
				c, err := mcp.Connect(b.Context(), mcp.InMemory(h), opts)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = c.Close() })
				return c
			}
			server := connect(s, &mcp.ClientOptions{Revision: revision, ForwardInput: true})
			c := connect(mcp.Forward(server), nil)
			args := map[string]any{"A": 1, "B": 2}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.CallTool(b.Context(), "add", args); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
