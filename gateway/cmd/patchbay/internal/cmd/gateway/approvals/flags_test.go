package approvals

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestApproveFlags(t *testing.T) {
	words := func(all ...string) cmdutil.Invocation { return cmdutil.Invocation{Words: all} }
	cmdtest.Check(t, NewCmdApprove, map[string]*ApproveOptions{
		"approve id --session":      {Invocation: words("id"), ForNow: true},
		"approve id --always --yes": {Invocation: words("id"), Always: true, Yes: true},
		"approve --pins a b/c":      {Invocation: words("a", "b/c"), Pins: true},
		"approve":                   nil,
	})
}
