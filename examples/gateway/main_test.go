package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// newGateway returns a gateway of two servers that have a tool of the same name.
func newGateway(t *testing.T, upstream mcptest.Combination) gateway {
	g := gateway{}
	for _, name := range []string{"calc", "shop"} {
		s := mcp.NewServer(name, "1.0.0", nil)
		mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(ctx context.Context, in struct{ A, B int }) (string, error) {
			sure, err := mcp.Ask[bool](ctx, "sure", "Add?", nil)
			return fmt.Sprint(name, in.A+in.B, sure), err
		})
		g[name] = mcptest.Dial(t, s, upstream, &mcp.ClientOptions{ForwardInput: true})
	}
	return g
}

// Clients of every revision call the tools of both servers, of every revision, and answer them.
func TestGateway(t *testing.T) {
	for _, revision := range mcptest.Revisions() {
		if revision < "2025-06-18" {
			continue // has no elicitation
		}
		for _, own := range mcptest.Revisions() {
			if own < "2025-06-18" {
				continue
			}
			t.Run(own+" to "+revision, func(t *testing.T) {
				g := newGateway(t, mcptest.Combination{Transport: mcptest.InMemory, Revision: revision})
				c := mcptest.Dial(t, g, mcptest.Combination{Transport: mcptest.HTTP, Revision: own}, &mcp.ClientOptions{
					Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
						return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":true}`)}, nil
					}})
				tools, err := mcp.Collect(c.Tools(t.Context()))
				var names []string
				for _, tool := range tools {
					names = append(names, tool.Name)
				}
				if slices.Sort(names); err != nil || !slices.Equal(names, []string{"calc.add", "shop.add"}) {
					t.Errorf("tools: got %q, %v", names, err)
				}
				for _, server := range []string{"calc", "shop"} {
					got, err := mcp.CallTool[string](t.Context(), c, server+".add", map[string]any{"A": 1, "B": 2})
					if want := server + "3 true"; err != nil || got != want {
						t.Errorf("%s: got %q, %v, want %q", server, got, err, want)
					}
				}
				for _, name := range []string{"add", "none.add", ""} {
					_, err := c.CallTool(t.Context(), name, nil)
					var refused *mcp.Error
					if !errors.As(err, &refused) || refused.Code != mcp.CodeInvalidParams {
						t.Errorf("tool %q: got %v, want code %d", name, err, mcp.CodeInvalidParams)
					}
				}
			})
		}
	}
}
