package host

import (
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// refused records a request that belongs to no known item, and returns its error.
func (v *View) refused(req *mcp.Request, kind policy.ActionKind, public string, err error) error {
	a := &policy.Action{Kind: kind, Caller: v.caller, Arguments: call.Arguments(req)}
	return v.host.observe.Refused(req, a, public, err)
}
