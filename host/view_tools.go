package host

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// changesTools reports whether [View.toolsFor] may change a page for the client of a request.
func (v *View) changesTools(req *mcp.Request, p *listPage) bool {
	return p.tasks || p.visibility && !jsonscan.IsObject(req.Capabilities().Extensions[extensionApps]) ||
		task.FormOf(req) == task.Session && slices.ContainsFunc(v.pools(), func(p *upstream.Pool) bool {
			return taskForm(p) == task.Extended
		})
}

// toolsFor returns a list of tools as the client of a request receives it: without those that run as
// tasks only, or are for pages only, unless the client supports that.
func (v *View) toolsFor(req *mcp.Request, m *merged, tools json.RawMessage) json.RawMessage {
	caller, pages := task.FormOf(req), jsonscan.IsObject(req.Capabilities().Extensions[extensionApps])
	forms := map[string]task.Form{}
	for _, p := range v.pools() {
		forms[p.Name()] = taskForm(p)
	}
	b := []byte{'['}
	for tool := range jsonscan.Elements(tools) {
		if item := m.catalogue.Find(catalogue.Tools, jsonscan.GetString(tool, "name")); item != nil {
			if tool = toolFor(caller, forms[item.Server], tool); tool == nil || !pages && isForPages(tool) {
				continue
			}
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, tool...)
	}
	return append(b, ']')
}

// usableBy returns the tools that the list for a client has.
func (v *View) usableBy(req *mcp.Request, tools []*catalogue.Item) []*catalogue.Item {
	caller, pages := task.FormOf(req), jsonscan.IsObject(req.Capabilities().Extensions[extensionApps])
	forms := map[string]task.Form{}
	for _, p := range v.pools() {
		forms[p.Name()] = taskForm(p)
	}
	return slices.DeleteFunc(tools, func(item *catalogue.Item) bool {
		return !task.Usable(caller, forms[item.Server], task.Support(item.Raw)) || !pages && isForPages(item.Raw)
	})
}

// toolFor returns the definition of a tool with the member execution that the caller understands; nil
// if the caller cannot use the tool.
func toolFor(caller, server task.Form, tool []byte) []byte {
	support := task.Support(tool)
	switch {
	case !task.Usable(caller, server, support):
		return nil
	case caller == task.Session && server == task.Extended: // the server decides with each call
		return jsonscan.WithMember(tool, "execution", []byte(`{"taskSupport":"`+task.SupportOptional+`"}`))
	case support != "" && caller != task.Session:
		return jsonscan.Without(tool, "execution")
	}
	return tool
}

// isForPages reports whether only pages may call a tool. Spec: SEP-1865, Tool Visibility.
func isForPages(tool []byte) bool {
	if !bytes.Contains(tool, []byte(`"visibility"`)) {
		return false
	}
	meta, _ := jsonscan.Get(tool, "_meta")
	if !jsonscan.HasObject(meta, "ui") {
		return false
	}
	ui, _ := jsonscan.Get(meta, "ui")
	visibility, _ := jsonscan.Get(ui, "visibility")
	if jsonscan.Kind(visibility) != '[' {
		return false
	}
	for v := range jsonscan.Elements(visibility) {
		if kind, _ := jsonscan.Unquote(v); kind == "model" {
			return false
		}
	}
	return true
}
