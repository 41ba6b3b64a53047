// Command host is this project's client and its gateway in front of a server in
// memory.
package main

import (
	"context"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/gateway"
	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func main() { rig.ClientMain(open) }

func open(ctx context.Context, t rig.Target) (*rig.Connection, error) {
	view, err := gateway.View(gateway.Servers{N: 1, Era: t.Era, Server: patchbay.NewServer})
	if err != nil {
		return nil, err
	}
	c, err := mcp.Connect(ctx, mcp.InMemory(view), nil)
	if err != nil {
		return nil, err
	}
	for _, err := range c.Tools(ctx) {
		if err != nil {
			return nil, err
		}
	}
	name := echo.GatewayTool(echo.GatewayServer(0), echo.Tool)
	return &rig.Connection{Revision: c.Revision(), Echo: func(ctx context.Context, message string) (string, error) {
		return mcp.CallTool[string](ctx, c, name, map[string]any{"message": message})
	}}, nil
}
