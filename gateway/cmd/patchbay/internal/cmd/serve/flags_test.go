package serve

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestServeFlags(t *testing.T) {
	cmdtest.Check(t, NewCmdServe, map[string]*Options{
		"serve": {Addr: defaultAddr},
		"serve --addr :0 --auth demo --ops :1 --pprof --quiet --tasks memory --insecure-no-auth": {Addr: ":0", Auth: "demo",
			Ops: ":1", Pprof: true, Quiet: true, Tasks: "memory", NoAuth: true},
		"serve --stdio":   {Addr: defaultAddr, Stdio: true},
		"serve --console": {Addr: defaultAddr, Console: "127.0.0.1:6280"},
		"serve --console --view-addr :4": {Addr: defaultAddr, Console: "127.0.0.1:6280",
			Views: cmdutil.Views{Addr: ":4"}},
		"serve x": nil,
	})
}
