// Command mcpgo is mcp-go as a server under test.
package main

import (
	"net/http"

	"github.com/mark3labs/mcp-go/server"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/mcpgo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

// queueSize is large enough for all calls of the load in flight. With the
// default of 100 the server would log each further call and serve it
// synchronously.
const queueSize = 1000

func main() {
	rig.Main(rig.Program{
		HTTP: func(opts rig.Options) http.Handler {
			return server.NewStreamableHTTPServer(mcpgo.NewServer(opts),
				server.WithStateful(opts.Era == echo.Session),
				server.WithStateLess(opts.Era == echo.Modern))
		},
		Stdio: func(opts rig.Options) error {
			return server.ServeStdio(mcpgo.NewServer(opts), server.WithQueueSize(queueSize))
		},
	})
}
