package probe

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestProbeFlags(t *testing.T) {
	cmdtest.Check(t, NewCmdProbe, map[string]*Options{"probe http://127.0.0.1:1/mcp": {}, "probe --quick -- server": {Quick: true},
		"probe http://127.0.0.1:1/mcp tool": nil})
}
