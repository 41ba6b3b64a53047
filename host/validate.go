package host

import (
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/fold"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// checkNames refuses arguments whose names the server could confuse with other names: the policy
// would decide about one argument, and the server would use the other.
func checkNames(c *call.Call, req *mcp.Request) error {
	arguments, ok := req.Param("arguments")
	if !ok || c.Kind != policy.ActionCall && c.Kind != policy.ActionGet {
		return nil
	}
	names, hidden := &fold.Names{}, []string(nil)
	if c.Item != nil {
		hidden = c.Item.HiddenArguments()
		if known := poolOf(c).Schemas().Of(c.Item).Names; known != nil {
			names = known
		}
	}
	err := names.Check(arguments)
	if err == nil && len(hidden) > 0 {
		err = fold.Named(hidden).Check(arguments)
	}
	if err != nil {
		return mcp.Errorf(mcp.CodeInvalidParams, "invalid params.arguments: %v", err)
	}
	return nil
}

// headerParams returns the arguments of a call that HTTP clients repeat in headers.
func headerParams(c *call.Call) []driver.HeaderParam {
	if c.Item == nil || c.Item.Kind != catalogue.Tools {
		return nil
	}
	return poolOf(c).Schemas().Of(c.Item).Headers
}
