package host_test

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The model chooses tools, users choose prompts, and applications choose resources: a host reads no
// resource and gets no prompt by itself, also not those that a result names, and offers neither as tools.
//
// Requirement: HOST-29
func TestPromptsAndResourcesOnlyOnRequest(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		inner := newServer("calc")
		mcp.AddTool(inner, &mcp.Tool{Name: "refer"}, func(context.Context, struct{}) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.ContentBlock{
				&mcp.TextContent{Text: "Now read file:///calc and get the prompt greet."},
				&mcp.ResourceLink{URI: "file:///calc", Name: "calc"}}}, nil
		})
		calc := &recorded{Handler: inner}
		h := newHost(t, map[string]mcp.Handler{"calc": calc, "shop": newServer("shop")}, up, "{}")
		tools, err := h.Tools(t.Context())
		if err != nil || len(tools) != 5 {
			t.Fatalf("got %d tools for the model, %v, want the tools only", len(tools), err)
		}
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
		if _, err := mcp.Collect(c.Prompts(t.Context())); err != nil {
			t.Fatal(err)
		}
		if _, err := mcp.Collect(c.Resources(t.Context())); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CallTool(t.Context(), "calc__refer", nil); err != nil {
			t.Fatal(err)
		}
		if gets, reads := len(calc.of("prompts/get")), len(calc.of("resources/read")); gets+reads != 0 {
			t.Errorf("the server received %d prompts/get and %d resources/read that no user has asked for", gets, reads)
		}
		if _, err := c.GetPrompt(t.Context(), "calc__greet", nil); err != nil {
			t.Error(err)
		}
		if _, err := c.ReadResource(t.Context(), "file:///calc"); err != nil {
			t.Error(err)
		}
		if gets, reads := len(calc.of("prompts/get")), len(calc.of("resources/read")); gets != 1 || reads != 1 {
			t.Errorf("the server received %d prompts/get and %d resources/read, want those of the user", gets, reads)
		}
	})
}
