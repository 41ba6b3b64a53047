// Command mcpgo is mcp-go as a client under test.
package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/mcpgo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

func main() { rig.ClientMain(open) }

func open(ctx context.Context, t rig.Target) (*rig.Connection, error) {
	conn, err := transportTo(t)
	if err != nil {
		return nil, err
	}
	c := client.NewClient(conn)
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	var req mcp.InitializeRequest
	req.Params.ClientInfo = mcp.Implementation{Name: "bench", Version: "1.0.0"}
	if _, err := c.Initialize(ctx, req); err != nil {
		return nil, err
	}
	tools, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(tools.Tools, func(t mcp.Tool) bool { return t.Name == echo.Tool }) {
		return nil, fmt.Errorf("no tool %s", echo.Tool)
	}
	return &rig.Connection{Revision: c.ProtocolVersion(),
		Echo: func(ctx context.Context, message string) (string, error) {
			var req mcp.CallToolRequest
			req.Params.Name = echo.Tool
			req.Params.Arguments = map[string]any{"message": message}
			r, err := c.CallTool(ctx, req)
			if err != nil {
				return "", err
			}
			return r.Content[0].(mcp.TextContent).Text, nil
		}}, nil
}

func transportTo(t rig.Target) (transport.Interface, error) {
	switch {
	case t.URL != "":
		return transport.NewStreamableHTTP(t.URL, transport.WithHTTPBasicClient(rig.HTTPClient(t.Width)))
	case len(t.Command) > 0:
		return transport.NewStdio(t.Command[0], nil, t.Command[1:]...), nil
	}
	return transport.NewInProcessTransport(mcpgo.NewServer(rig.Options{})), nil
}
