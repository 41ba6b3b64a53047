package mcp_test

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A list that is handed out uncopied is so to the transport alone, and not to the filter of a server that serves it.
func TestAFilterCannotChangeTheListOfAnotherServer(t *testing.T) {
	behind := newServer(t, nil)
	mcp.AddTool(behind, &mcp.Tool{Name: "kept"}, func(context.Context, struct{}) (string, error) { return "", nil })
	list := func(ctx context.Context, req *mcp.Request) *mcp.Tool {
		res, err := behind.ServeMCP(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		tools := res.(*mcp.ListToolsResult).Tools
		first := tools[0]
		tools[0] = nil
		return first
	}
	front := newServer(t, &mcp.ServerOptions{Visible: func(ctx context.Context, _ mcp.Feature) bool {
		list(ctx, mcp.RequestFrom(ctx))
		return true
	}})
	mcp.AddTool(front, &mcp.Tool{Name: "front"}, func(context.Context, struct{}) (string, error) { return "", nil })
	(&peer{TB: t, handler: front, revision: "2026-07-28"}).raw("tools/list")
	req := listening(t, `{}`, nil)
	req.Method = "tools/list"
	if tool := list(t.Context(), req); tool == nil || tool.Name != "kept" {
		t.Errorf("the list of the server behind begins with %v", tool)
	}
}
