package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// HeaderParams returns the arguments of a tool that HTTP clients repeat in headers; see
// [driver.HeaderParam]. It returns nil for an unknown tool.
//
// It waits for the lists of the servers as a call of the tool does: otherwise the first calls would be
// served with headers that differ from their arguments.
func (v *View) HeaderParams(ctx context.Context, _ *mcp.Request, tool string) []driver.HeaderParam {
	item, p, err := v.find(upstream.WithCaller(ctx, v.caller), catalogue.Tools, tool)
	if err != nil || item == nil {
		return nil
	}
	return p.Schemas().Of(item).Headers
}
