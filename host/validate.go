package host

import (
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// headerParams returns the arguments of a call that HTTP clients repeat in headers.
func headerParams(c *call.Call) []driver.HeaderParam {
	if c.Item == nil || c.Item.Kind != catalogue.Tools {
		return nil
	}
	return poolOf(c).Schemas().Of(c.Item).Headers
}
