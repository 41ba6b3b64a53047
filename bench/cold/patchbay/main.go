// Command patchbay is this project's server on stdio, with one tool.
package main

import (
	"context"
	"log"

	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func main() {
	if err := patchbay.NewLister(1).Run(context.Background(), mcp.Stdio()); err != nil {
		log.Fatal(err)
	}
}
