// Package mcpgo is mcp-go's server, with the tools of the benchmark.
package mcpgo

import (
	"context"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

// NewServer returns a server that offers the tools.
func NewServer(opts rig.Options) *server.MCPServer {
	var settings []server.ServerOption
	if opts.Validate {
		settings = append(settings, server.WithInputSchemaValidation())
	}
	s := server.NewMCPServer("mcp-go", "1.2.1", settings...)
	tool := answer
	if opts.SSE {
		tool = answerAsStream
	}
	s.AddTool(newTool(echo.Tool, echo.ToolDescription), mcp.NewTypedToolHandler(tool))
	s.AddTool(newTool(echo.ProgressTool, echo.ProgressToolDescription), mcp.NewTypedToolHandler(answerWithProgress))
	return s
}

func newTool(name, description string) mcp.Tool {
	return mcp.NewTool(name, mcp.WithDescription(description), mcp.WithInputSchema[echo.In]())
}

func answer(_ context.Context, _ mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText(in.Message), nil
}

// answerAsStream has the answer sent as an event stream: a thing each call
// asks for, not a setting of the server.
func answerAsStream(ctx context.Context, req mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, error) {
	if s, ok := server.ClientSessionFromContext(ctx).(server.SessionWithStreamableHTTPConfig); ok {
		s.UpgradeToSSEWhenReceiveNotification()
	}
	return answer(ctx, req, in)
}

func answerWithProgress(ctx context.Context, req mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, error) {
	if meta := req.Params.Meta; meta != nil && meta.ProgressToken != nil {
		note := map[string]any{"progressToken": meta.ProgressToken, "progress": 1, "total": 1}
		if err := server.ServerFromContext(ctx).SendNotificationToClient(ctx, "notifications/progress", note); err != nil {
			return nil, err
		}
	}
	return answer(ctx, req, in)
}
