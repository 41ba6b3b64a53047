package inprocess

import (
	"encoding/json"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/mcpgo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

func BenchmarkInProcess_Server_MCPGo(b *testing.B) {
	ctx, s := b.Context(), mcpgo.NewServer(rig.Options{})
	benchmarkServer(b, func(message []byte) ([]byte, error) {
		return json.Marshal(s.HandleMessage(ctx, message))
	})
}

func BenchmarkInProcess_Client_MCPGo(b *testing.B) {
	ctx := b.Context()
	c, err := client.NewInProcessClient(mcpgo.NewServer(rig.Options{}))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(ctx); err != nil {
		b.Fatal(err)
	}
	var req mcp.InitializeRequest
	req.Params.ProtocolVersion = echo.Modern.Revision()
	req.Params.ClientInfo = mcp.Implementation{Name: "bench", Version: "1.0.0"}
	if _, err := c.Initialize(ctx, req); err != nil {
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
