// Command patchbay is the client under test: this project's own SDK.
package main

import (
	"context"
	"fmt"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func main() { rig.ClientMain(open) }

func open(ctx context.Context, t rig.Target) (*rig.Connection, error) {
	c, err := mcp.Connect(ctx, transport(t), nil)
	if err != nil {
		return nil, err
	}
	found := false
	for tool, err := range c.Tools(ctx) {
		if err != nil {
			return nil, err
		}
		found = found || tool.Name == echo.Tool
	}
	if !found {
		return nil, fmt.Errorf("no tool %s", echo.Tool)
	}
	return &rig.Connection{Revision: c.Revision(), Echo: func(ctx context.Context, message string) (string, error) {
		return mcp.CallTool[string](ctx, c, echo.Tool, map[string]any{"message": message})
	}}, nil
}

func transport(t rig.Target) mcp.Transport {
	switch {
	case t.URL != "":
		return mcphttp.NewTransport(t.URL, nil)
	case len(t.Command) > 0:
		return mcp.Command(t.Command[0], t.Command[1:]...)
	}
	return mcp.InMemory(patchbay.NewServer())
}
