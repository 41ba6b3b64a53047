package inprocess

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

func newMCPGo() *server.MCPServer {
	s := server.NewMCPServer("mcp-go", "1.2.1")
	tool := mcp.NewTool(echo.Tool, mcp.WithDescription(echo.ToolDescription), mcp.WithInputSchema[echo.In]())
	s.AddTool(tool, mcp.NewTypedToolHandler(
		func(_ context.Context, _ mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(in.Message), nil
		}))
	return s
}

func BenchmarkInProcess_Server_MCPGo(b *testing.B) {
	ctx, s := b.Context(), newMCPGo()
	benchmarkServer(b, func(message []byte) ([]byte, error) {
		return json.Marshal(s.HandleMessage(ctx, message))
	})
}

func BenchmarkInProcess_Client_MCPGo(b *testing.B) {
	ctx := b.Context()
	c, err := client.NewInProcessClient(newMCPGo())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(ctx); err != nil {
		b.Fatal(err)
	}
	var hello mcp.InitializeRequest
	hello.Params.ProtocolVersion = echo.Modern.Revision()
	hello.Params.ClientInfo = mcp.Implementation{Name: "bench", Version: "1.0.0"}
	if _, err := c.Initialize(ctx, hello); err != nil {
		b.Fatal(err)
	}
	benchmarkClient(b, func(message string) (string, error) {
		var req mcp.CallToolRequest
		req.Params.Name = echo.Tool
		req.Params.Arguments = map[string]any{"message": message}
		r, err := c.CallTool(ctx, req)
		if err != nil {
			return "", err
		}
		return r.Content[0].(mcp.TextContent).Text, nil
	})
}
