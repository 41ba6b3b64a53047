// Command mcpgo is mcp-go as a server under test.
package main

import (
	"context"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

// queueSize holds every call that the load keeps in flight. With the default
// of 100 the server would log each call beyond it and serve it in line.
const queueSize = 1000

func main() {
	rig.Main(rig.Program{
		HTTP: func(opts rig.Options) http.Handler {
			return server.NewStreamableHTTPServer(newServer(opts),
				server.WithStateful(opts.Era == echo.Session),
				server.WithStateLess(opts.Era == echo.Modern))
		},
		Stdio: func(opts rig.Options) error {
			return server.ServeStdio(newServer(opts), server.WithQueueSize(queueSize))
		},
	})
}

func newServer(opts rig.Options) *server.MCPServer {
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
