// Command gosdk is a server of the official Go SDK for subscribed clients.
package main

import (
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/gosdk"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

func main() {
	rig.Main(rig.Program{
		HTTP: func(opts rig.Options) http.Handler {
			s := gosdk.NewServer()
			gosdk.AddChange(s)
			return mcp.NewStreamableHTTPHandler(
				func(*http.Request) *mcp.Server { return s },
				&mcp.StreamableHTTPOptions{Stateless: opts.Era == echo.Modern, JSONResponse: true})
		},
	})
}
