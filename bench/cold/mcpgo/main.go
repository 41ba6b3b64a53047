// Command mcpgo is mcp-go's server on stdio, with one tool.
package main

import (
	"log"

	"github.com/mark3labs/mcp-go/server"
	"github.com/patchbay-mcp/patchbay/bench/internal/mcpgo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

func main() {
	if err := server.ServeStdio(mcpgo.NewServer(rig.Options{Tools: 1})); err != nil {
		log.Fatal(err)
	}
}
