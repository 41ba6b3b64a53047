package routes

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// clientTools selects the tools that the client of a request can use: a client may lack tasks, and pages for
// tools.
type clientTools struct {
	table *Table
	form  task.Form
	pages bool // the client shows pages
}

func (t *Table) toolsOf(req *mcp.Request) *clientTools {
	return &clientTools{t, task.FormOf(req), jsonscan.IsObject(req.Capabilities().Extensions[ExtensionApps])}
}

// forms returns the form of tasks of each server.
func (c *clientTools) forms() map[string]task.Form {
	forms := map[string]task.Form{}
	for _, p := range c.table.Servers().All {
		forms[p.Name()] = TaskForm(p)
	}
	return forms
}

// changes reports whether [clientTools.list] may change a page.
func (c *clientTools) changes(p *page) bool {
	return p.tasks || p.visibility && !c.pages ||
		c.form == task.Session && slices.ContainsFunc(c.table.Servers().All, func(p Server) bool {
			return TaskForm(p) == task.Extended
		})
}

// list returns a list of tools as the client receives it. It omits tools that run only as tasks, and tools
// only for pages, unless the client supports them.
func (c *clientTools) list(m *Snapshot, tools json.RawMessage) json.RawMessage {
	forms := c.forms()
	b := []byte{'['}
	for tool := range jsonscan.Elements(tools) {
		if item := m.Catalogue.Find(catalogue.Tools, jsonscan.GetString(tool, "name")); item != nil {
			tool = toolFor(c.form, forms[item.Server], tool)
			if tool == nil || !c.pages && isForPages(tool) {
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

// usable returns the tools that the list for the client contains.
func (c *clientTools) usable(tools []*catalogue.Item) []*catalogue.Item {
	forms := c.forms()
	return slices.DeleteFunc(tools, func(item *catalogue.Item) bool {
		return !task.Usable(c.form, forms[item.Server], task.Support(item.Raw)) || !c.pages && isForPages(item.Raw)
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
