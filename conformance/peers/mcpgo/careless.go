package main

import (
	"context"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// newCareless returns a server whose tools decode their arguments into a struct, like the guide of mcp-go.
// encoding/json ignores the case of names.
func newCareless() *server.MCPServer {
	s := server.NewMCPServer("careless", "1.0.0")
	for _, name := range []string{"read", "admin"} {
		s.AddTool(mcp.NewTool(name, mcp.WithString("path", mcp.Required()), mcp.WithString("secret")),
			func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var args struct {
					Path   string `json:"path"`
					Secret string `json:"secret"`
				}
				if err := req.BindArguments(&args); err != nil {
					return nil, err
				}
				return mcp.NewToolResultText("ran " + req.Params.Name + " " + args.Path + " " + args.Secret), nil
			})
	}
	return s
}
