package host_test

import (
	"context"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Changes of a server reach the clients of all revisions that have asked for them.
func TestChangesReachSubscribers(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		calc, shop := newServer("calc"), newServer("shop")
		h := newHost(t, map[string]mcp.Handler{"calc": calc, "shop": shop}, up, "{}")
		c := mcptest.Dial(t, h.For(&host.Caller{}), down, nil)
		if _, err := mcp.Collect(c.Tools(t.Context())); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		filter := mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"file:///shop"}}
		want := map[mcp.EventKind]bool{mcp.EventToolsChanged: true, mcp.EventResourceUpdated: true}
		for e, err := range c.Listen(ctx, filter) {
			if err != nil {
				t.Fatalf("%v, not announced: %v", err, want)
			}
			switch e.Kind {
			case mcp.EventListening:
				if len(e.Filter.ResourceSubscriptions) != 1 || !e.Filter.ToolsListChanged {
					t.Fatalf("the subscription is %+v", e.Filter)
				}
				mcp.AddTool(calc, &mcp.Tool{Name: "sub"}, func(context.Context, struct{}) (string, error) { return "", nil })
				shop.ResourceUpdated("file:///shop")
			case mcp.EventToolsChanged, mcp.EventResourceUpdated:
				delete(want, e.Kind)
			}
			if len(want) == 0 {
				break
			}
		}
	})
}
