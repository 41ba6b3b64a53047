// Package gosdk is the official Go SDK's server, with the tools of the
// benchmark.
package gosdk

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// NewServer returns a server that offers the tools.
func NewServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "go-sdk", Version: "1.8.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: echo.Tool, Description: echo.ToolDescription}, answer)
	mcp.AddTool(s, &mcp.Tool{Name: echo.ProgressTool, Description: echo.ProgressToolDescription}, answerWithProgress)
	return s
}

func answer(_ context.Context, _ *mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Message}}}, nil, nil
}

func answerWithProgress(ctx context.Context, req *mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, any, error) {
	if token := req.Params.GetProgressToken(); token != nil {
		note := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Total: 1}
		if err := req.Session.NotifyProgress(ctx, note); err != nil {
			return nil, nil, err
		}
	}
	return answer(ctx, req, in)
}
