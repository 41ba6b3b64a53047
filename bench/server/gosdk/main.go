// Command gosdk is the official Go SDK as a server under test. It has sessions
// in the session era and is stateless in the modern era, which the SDK supports
// only in stateless mode.
package main

import (
	"context"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/gosdk"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

func main() {
	rig.Main(rig.Program{
		HTTP: func(opts rig.Options) http.Handler {
			s := newServer(opts)
			return mcp.NewStreamableHTTPHandler(
				func(*http.Request) *mcp.Server { return s },
				&mcp.StreamableHTTPOptions{
					Stateless:    opts.Era == echo.Modern,
					JSONResponse: !opts.SSE,
				})
		},
		Stdio: func(opts rig.Options) error {
			return newServer(opts).Run(context.Background(), &mcp.StdioTransport{})
		},
	})
}

func newServer(opts rig.Options) *mcp.Server {
	if opts.Tools > 0 {
		return gosdk.NewLister(opts.Tools)
	}
	return gosdk.NewServer()
}
