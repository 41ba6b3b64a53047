// Command patchbay is this project's server for subscribed clients.
package main

import (
	"net/http"

	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// maxHeld admits the streams and sessions of all workloads. Their callers are anonymous, and anonymous
// callers together get half of a limit.
const maxHeld = 250_000

func main() {
	rig.Main(rig.Program{
		HTTP: func(rig.Options) http.Handler {
			s := patchbay.NewServer()
			patchbay.AddChange(s)
			patchbay.AddUpdate(s)
			return mcphttp.NewHandler(s, &mcphttp.Options{
				MaxListens: maxHeld,
				Sessions:   mcphttp.SessionOptions{Max: maxHeld},
			})
		},
	})
}
