package mcp_test

import (
	"context"
	"fmt"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A proxy: its clients see the server, whatever the revisions of both are. The program
// examples/gateway forwards to several servers.
func ExampleForward() {
	ctx := context.Background()
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(ctx context.Context, in struct{ A, B int }) (int, error) {
		return in.A + in.B, nil
	})
	server, err := mcp.Connect(ctx, mcp.InMemory(s), &mcp.ClientOptions{Revision: "2025-06-18", ForwardInput: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	c, err := mcp.Connect(ctx, mcp.InMemory(mcp.Forward(server)), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	fmt.Println(c.ServerInfo().Name, c.Revision())
	fmt.Println(mcp.CallTool[int](ctx, c, "add", map[string]any{"A": 1, "B": 2}))
	// Output:
	// calc 2026-07-28
	// 3 <nil>
}
