package mcp_test

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Only transports get a list without copying it; the filter of another server gets a copy.
func TestAFilterCannotChangeTheListOfAnotherServer(t *testing.T) {
	inner := newServer(t, nil)
	mcp.AddTool(inner, &mcp.Tool{Name: "first"}, func(context.Context, struct{}) (string, error) { return "", nil })
	list := func(ctx context.Context, req *mcp.Request) *mcp.Tool {
		res, err := inner.ServeMCP(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		tools := res.(*mcp.ListToolsResult).Tools
		first := tools[0]
		tools[0] = nil
		return first
	}
	outer := newServer(t, &mcp.ServerOptions{Visible: func(ctx context.Context, _ mcp.Feature) bool {
		list(ctx, mcp.RequestFrom(ctx))
		return true
	}})
	mcp.AddTool(outer, &mcp.Tool{Name: "outer"}, func(context.Context, struct{}) (string, error) { return "", nil })
	(&handlerPeer{TB: t, handler: outer, revision: "2026-07-28"}).raw("tools/list")
	req := listenRequest(t, `{}`, nil)
	req.Method = "tools/list"
	if tool := list(t.Context(), req); tool == nil || tool.Name != "first" {
		t.Errorf("got %v as the first tool of the inner server, want \"first\"", tool)
	}
}
