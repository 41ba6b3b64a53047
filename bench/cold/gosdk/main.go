// Command gosdk is the official Go SDK's server on stdio, with one tool.
package main

import (
	"context"
	"log"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/patchbay-mcp/patchbay/bench/internal/gosdk"
)

func main() {
	if err := gosdk.NewLister(1).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}
