// Command patchbay is this project's server for subscribed clients.
package main

import (
	"net/http"

	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func main() {
	rig.Main(rig.Program{
		HTTP: func(rig.Options) http.Handler {
			s := patchbay.NewServer()
			patchbay.AddChange(s)
			patchbay.AddUpdate(s)
			return mcphttp.NewHandler(s, &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 250_000}})
		},
	})
}
