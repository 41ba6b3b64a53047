package host

import (
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
)

// appTool returns the tool that a page of an app calls: a page knows the names of its server only. It
// returns nil if not exactly one tool may be meant.
//
// Spec: SEP-1865, Tool Visibility.
func (v *View) appTool(name string) (*catalogue.Item, *upstream.Pool) {
	m := v.latest()
	if m == nil || v.single() {
		return nil, nil
	}
	item := m.catalogue.AppTool(name)
	if item == nil {
		return nil, nil
	}
	return item, m.pools[item.Server]
}
