package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// HeaderParams returns the arguments of a tool that HTTP clients repeat in headers; see
// [mcp.HeaderParam]. It returns nil for an unknown tool.
func (v *View) HeaderParams(_ context.Context, _ *mcp.Request, tool string) []mcp.HeaderParam {
	m := v.merged.Load()
	if m == nil {
		return nil
	}
	item := m.catalogue.Find(catalogue.Tools, tool)
	if item == nil {
		return nil
	}
	return m.pools[item.Server].up.schemas.of(item).headers
}
