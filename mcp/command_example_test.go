package mcp_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// The server is configured by its arguments and its environment.
func ExampleCommand() {
	ctx := context.Background()
	server := mcp.Command("npx", "-y", "@example/server", "--read-only")
	server.Env = []string{"EXAMPLE_TOKEN=" + os.Getenv("EXAMPLE_TOKEN")}
	client, err := mcp.Connect(ctx, server, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() // ends the server and its child processes
	fmt.Println("connected to", client.ServerInfo().Name)
}
