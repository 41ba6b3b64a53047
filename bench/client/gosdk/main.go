// Command gosdk is the official Go SDK as a client under test.
package main

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/gosdk"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

func main() { rig.ClientMain(open) }

func open(ctx context.Context, t rig.Target) (*rig.Connection, error) {
	conn, err := transport(ctx, t)
	if err != nil {
		return nil, err
	}
	c, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1.0.0"}, nil).Connect(ctx, conn, nil)
	if err != nil {
		return nil, err
	}
	found := false
	for tool, err := range c.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		found = found || tool.Name == echo.Tool
	}
	if !found {
		return nil, fmt.Errorf("no tool %s", echo.Tool)
	}
	return &rig.Connection{Revision: c.InitializeResult().ProtocolVersion,
		Echo: func(ctx context.Context, message string) (string, error) {
			params := &mcp.CallToolParams{Name: echo.Tool, Arguments: map[string]any{"message": message}}
			r, err := c.CallTool(ctx, params)
			if err != nil {
				return "", err
			}
			return r.Content[0].(*mcp.TextContent).Text, nil
		}}, nil
}

func transport(ctx context.Context, t rig.Target) (mcp.Transport, error) {
	switch {
	case t.URL != "":
		return &mcp.StreamableClientTransport{Endpoint: t.URL, HTTPClient: rig.HTTPClient(t.Width)}, nil
	case len(t.Command) > 0:
		return &mcp.CommandTransport{Command: exec.Command(t.Command[0], t.Command[1:]...)}, nil
	}
	near, far := mcp.NewInMemoryTransports()
	_, err := gosdk.NewServer().Connect(ctx, far, nil)
	return near, err
}
