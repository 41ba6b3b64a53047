// Package mcpgo builds servers of mcp-go with the tools of the benchmark.
package mcpgo

import (
	"context"
	"strconv"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

type handler = mcp.TypedToolHandlerFunc[echo.In]

// NewServer returns a server that offers the tools, or those of a list. It has
// no echo.NotificationsTool: the SDK rejects the 101st queued notification, and can
// lose the last one of a call.
func NewServer(opts rig.Options) *server.MCPServer {
	var settings []server.ServerOption
	if opts.Validate {
		settings = append(settings, server.WithInputSchemaValidation())
	}
	s := server.NewMCPServer("mcp-go", "1.2.1", settings...)
	add := func(name, description string, h handler) {
		tool := mcp.NewTool(name, mcp.WithDescription(description), mcp.WithInputSchema[echo.In]())
		s.AddTool(tool, mcp.NewTypedToolHandler(h))
	}
	for i := range opts.Tools {
		add(echo.ListedTool(i), echo.ToolDescription, answer)
	}
	if opts.Tools > 0 {
		return s
	}
	tool := answer
	if opts.SSE {
		tool = answerAsStream
	}
	add(echo.Tool, echo.ToolDescription, tool)
	add(echo.ProgressTool, echo.ProgressToolDescription, answerWithProgress)
	add(echo.CountTool, echo.CountToolDescription, count)
	add(echo.LargeTool, echo.LargeToolDescription, large)
	return s
}

func answer(_ context.Context, _ mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText(in.Message), nil
}

// answerAsStream makes the response an event stream. In this SDK each call
// requests it; it is not a setting of the server.
func answerAsStream(ctx context.Context, req mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, error) {
	if s, ok := server.ClientSessionFromContext(ctx).(server.SessionWithStreamableHTTPConfig); ok {
		s.UpgradeToSSEWhenReceiveNotification()
	}
	return answer(ctx, req, in)
}

func answerWithProgress(ctx context.Context, req mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, error) {
	if meta := req.Params.Meta; meta != nil && meta.ProgressToken != nil {
		note := map[string]any{"progressToken": meta.ProgressToken, "progress": 1, "total": 1}
		if err := server.ServerFromContext(ctx).SendNotificationToClient(ctx, "notifications/progress",
			note); err != nil {
			return nil, err
		}
	}
	return answer(ctx, req, in)
}

func count(_ context.Context, _ mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText(strconv.Itoa(len(in.Message))), nil
}

func large(context.Context, mcp.CallToolRequest, echo.In) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText(echo.Large()), nil
}
