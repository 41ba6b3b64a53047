// Command patchbay is the server under test: this project's own SDK.
package main

import (
	"context"
	"net/http"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func main() {
	rig.Main(rig.Program{
		HTTP: func(opts rig.Options) http.Handler {
			return mcphttp.NewHandler(newServer(opts), nil)
		},
		Stdio: func(opts rig.Options) error {
			return newServer(opts).Run(context.Background(), mcp.Stdio())
		},
	})
}

func newServer(opts rig.Options) *mcp.Server {
	switch {
	case opts.Wide:
		return patchbay.NewWideLister(opts.Tools)
	case opts.Tools > 0:
		return patchbay.NewLister(opts.Tools)
	case opts.Tool == echo.AskTool:
		return patchbay.NewAsker()
	}
	return patchbay.NewServer()
}
