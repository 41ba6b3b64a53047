package run

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestGatewayFlags(t *testing.T) {
	cmdtest.Check(t, NewCmdRun, map[string]*Options{
		"gateway":                             {},
		"gateway --stdio --own":               {Stdio: true, Own: true},
		"gateway name --profile work":         {Profile: "work", Args: []string{"name"}},
		"gateway --addr :1 -- server x":       {Addr: ":1", Args: []string{"server", "x"}},
		"gateway --ops :2 --insecure-no-auth": {Ops: ":2", NoAuth: true},
		"gateway --console --capture always":  {Console: "127.0.0.1:6280", Capture: "always"},
		"gateway --console=:3":                {Console: ":3"},
		"gateway --console --view-addr :4 --view-origin https://views.example": {Console: "127.0.0.1:6280",
			Views: cmdutil.Views{Addr: ":4", Origin: "https://views.example"}},
		"gateway --port 1": nil,
	})
}
