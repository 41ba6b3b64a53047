package gosdk

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// AddChange adds echo.ChangeTool and the tool that it changes.
func AddChange(s *mcp.Server) {
	var changes atomic.Int64
	change := func() {
		mcp.AddTool(s, &mcp.Tool{Name: echo.ChangedTool, Description: strconv.FormatInt(changes.Add(1), 10)}, answer)
	}
	change()
	mcp.AddTool(s, &mcp.Tool{Name: echo.ChangeTool, Description: echo.ChangeToolDescription},
		func(ctx context.Context, req *mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, any, error) {
			change()
			return answer(ctx, req, in)
		})
}
