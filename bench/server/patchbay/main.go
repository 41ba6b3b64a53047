// Command patchbay is the server under test: this project's own SDK.
package main

import (
	"context"
	"net/http"

	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func main() {
	rig.Main(rig.Program{
		HTTP: func(rig.Options) http.Handler {
			return mcphttp.NewHandler(patchbay.NewServer(), nil)
		},
		Stdio: func(rig.Options) error {
			return patchbay.NewServer().Run(context.Background(), mcp.Stdio())
		},
	})
}
