// Command mcpgo is a server of mcp-go for subscribed clients.
package main

import (
	"net/http"

	"github.com/mark3labs/mcp-go/server"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/mcpgo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

func main() {
	rig.Main(rig.Program{
		HTTP: func(opts rig.Options) http.Handler {
			s := mcpgo.NewServer(opts)
			mcpgo.AddChange(s)
			return server.NewStreamableHTTPServer(s,
				server.WithStateful(opts.Era == echo.Session),
				server.WithStateLess(opts.Era == echo.Modern))
		},
	})
}
