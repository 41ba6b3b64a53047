// Command patchbay is a command-line client for Model Context Protocol (MCP) servers, and a demo
// server.
//
//	patchbay probe https://example.com/mcp
//	patchbay call http://127.0.0.1:8765/mcp add a=1 b=2
//	patchbay tools -- npx -y @modelcontextprotocol/server-everything
//	patchbay serve
//
// Run patchbay help for all commands.
package main

import (
	"context"
	"os"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/root"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
)

func main() {
	ctx := cmdutil.NotifyContext(context.Background())
	os.Exit(root.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
