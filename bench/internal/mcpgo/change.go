package mcpgo

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// AddChange adds echo.ChangeTool and the tool that it changes.
func AddChange(s *server.MCPServer) {
	var changes atomic.Int64
	change := func() {
		s.AddTool(mcp.NewTool(echo.ChangedTool, mcp.WithDescription(strconv.FormatInt(changes.Add(1), 10)),
			mcp.WithInputSchema[echo.In]()), mcp.NewTypedToolHandler(answer))
	}
	change()
	s.AddTool(mcp.NewTool(echo.ChangeTool, mcp.WithDescription(echo.ChangeToolDescription),
		mcp.WithInputSchema[echo.In]()),
		mcp.NewTypedToolHandler(func(ctx context.Context, req mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult,
			error) {
			change()
			return answer(ctx, req, in)
		}))
}
