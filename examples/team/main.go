// Command team is an MCP server over HTTP for two users with static tokens. The tool delete is visible
// only to a user with the scope admin.
package main

import (
	"context"
	"log"
	"slices"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

type item struct {
	Name string `json:"name" jsonschema:"name of the item"`
}

func get(_ context.Context, in item) (string, error)    { return in.Name + " is in stock.", nil }
func remove(_ context.Context, in item) (string, error) { return in.Name + " was deleted.", nil }

// isVisible hides the tool delete from callers without the scope admin. For them it is an unknown tool.
func isVisible(ctx context.Context, f mcp.Feature) bool {
	caller := mcp.PrincipalFrom(ctx) // nil if the transport does not authenticate
	isDelete := f.Tool != nil && f.Tool.Name == "delete"
	return !isDelete || caller != nil && slices.Contains(caller.Scopes, "admin")
}

func main() {
	s := mcp.NewServer("team", "1.0.0", &mcp.ServerOptions{Visible: isVisible})
	mcp.AddTool(s, &mcp.Tool{Name: "get", Description: "Get an item."}, get)
	mcp.AddTool(s, &mcp.Tool{Name: "delete", Description: "Delete an item."}, remove)

	tokens, err := oauth.NewStaticVerifier( // tokens from your configuration
		oauth.StaticToken{Token: "ann-secret-token-0123456789abcdef", Subject: "ann", Scopes: []string{"admin"}},
		oauth.StaticToken{Token: "bob-secret-token-0123456789abcdef", Subject: "bob"},
	)
	if err != nil {
		log.Fatal(err)
	}
	const addr, path = "127.0.0.1:8080", "/mcp"
	protect := oauth.Require(tokens, oauth.ResourceMetadata{Resource: "http://" + addr + path}, nil)
	log.Fatal(mcphttp.ListenAndServe(context.Background(), addr, path, mcphttp.NewHandler(s, nil), protect))
}
