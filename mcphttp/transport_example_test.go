package mcphttp_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func ExampleNewTransport() {
	server := httptest.NewServer(mcphttp.NewHandler(newGreeter(), nil))
	defer server.Close()

	ctx := context.Background()
	client, err := mcp.Connect(ctx, mcphttp.NewTransport(server.URL, nil), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Println("revision", client.Revision())
	greeting, err := client.CallTool(ctx, "greet", map[string]any{"name": "Ann"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(greeting.Content[0].(*mcp.TextContent).Text)
	// Output:
	// revision 2026-07-28
	// Hello, Ann
}
