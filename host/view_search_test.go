package host_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// With many tools, a model finds tools by a search, and calls them with all that a call may do.
//
// Requirement: HOST-40
func TestToolsAreFoundBySearch(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newHost(t, map[string]mcp.Handler{"calc": newServer("calc"), "shop": newServer("shop")}, up,
			`{"tools":{"mode":"search","keep":["calc__a*d"]}}`)
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, &mcp.ClientOptions{Elicit: yes})
		tools, err := mcp.Collect(c.Tools(t.Context()))
		var names []string
		for _, tool := range tools {
			names = append(names, tool.Name)
		}
		if want := []string{"call_tool", "describe_tool", "search_tools", "calc__add"}; err != nil || !slices.Equal(names, want) {
			t.Fatalf("tools: got %q, %v, want %q", names, err, want)
		}
		r, err := c.CallTool(t.Context(), "search_tools", map[string]any{"query": "ask", "limit": 1})
		var found struct{ Tools []mcp.Tool }
		if err != nil || json.Unmarshal([]byte(r.Text()), &found) != nil || len(found.Tools) != 1 ||
			!strings.HasSuffix(found.Tools[0].Name, "__ask") {
			t.Fatalf("search: got %+v, %v", r, err)
		}
		if up.Since("2025-06-18") && down.Since("2025-06-18") {
			r, err = c.CallTool(t.Context(), "call_tool", map[string]any{"name": "shop__ask", "arguments": map[string]any{}})
			if err != nil || r.Text() != "shoptrue" {
				t.Errorf("call with a question: got %+v, %v", r, err)
			}
		}
		r, err = c.CallTool(t.Context(), "describe_tool", map[string]any{"name": "shop__add"})
		if err != nil || r.IsError || !strings.Contains(r.Text(), `"inputSchema"`) {
			t.Errorf("description: got %+v, %v", r, err)
		}
		for _, tool := range []string{"describe_tool", "call_tool"} {
			r, err = c.CallTool(t.Context(), tool, map[string]any{"name": "shop__none"})
			if err != nil || !r.IsError || !strings.Contains(r.Text(), "unknown tool") {
				t.Errorf("%s of an unknown tool: got %+v, %v", tool, r, err)
			}
		}
	})
}

// Mistakes of a model get a text with the member and the rule, and do not reach a server.
func TestToolsOfSearchRefuseInvalidArguments(t *testing.T) {
	on := mcptest.Combination{Transport: "in-memory", Revision: mcptest.Modern}
	h := newHost(t, map[string]mcp.Handler{"calc": newServer("calc"), "shop": newServer("shop")}, on,
		`{"tools":{"mode":"search"}}`)
	c := mcptest.Dial(t, h.For(&policy.Caller{}), on, nil)
	for _, test := range []struct{ tool, arguments, want string }{
		{"call_tool", `{"name":5}`, "invalid arguments.name: must have the type that the input schema of call_tool has"},
		{"search_tools", `{"query":"x","limit":"3"}`,
			"invalid arguments.limit: must have the type that the input schema of search_tools has"},
		{"call_tool", `{"name":"calc__add","arguments":"A"}`, "invalid arguments.arguments: must be an object"},
		{"call_tool", `{}`, "missing arguments.name: must be the name of a tool"},
		{"describe_tool", `{}`, "missing arguments.name: must be the name of a tool"},
	} {
		r, err := c.CallTool(t.Context(), test.tool, json.RawMessage(test.arguments))
		if err != nil || !r.IsError || r.Text() != test.want {
			t.Errorf("%s %s: got %+v, %v, want %q", test.tool, test.arguments, r, err, test.want)
		}
	}
}

// A tool that is for pages only is not described to clients whose lists do not have it.
func TestHiddenToolsAreNotDescribed(t *testing.T) {
	on := mcptest.Combination{Transport: "in-memory", Revision: mcptest.Modern}
	s := newServer("calc")
	mcp.AddTool(s, &mcp.Tool{Name: "refresh", Meta: mcp.Meta{"ui": map[string]any{"visibility": []string{"app"}}}},
		func(context.Context, struct{}) (string, error) { return "", nil })
	h := newHost(t, map[string]mcp.Handler{"calc": s, "shop": newServer("shop")}, on, `{"tools":{"mode":"search"}}`)
	c := mcptest.Dial(t, h.For(&policy.Caller{}), on, nil)
	for name, known := range map[string]bool{"calc__refresh": false, "calc__add": true} {
		r, err := c.CallTool(t.Context(), "describe_tool", map[string]any{"name": name})
		if err != nil || r.IsError == known {
			t.Errorf("%s: got %+v, %v, want known: %v", name, r, err, known)
		}
	}
}
