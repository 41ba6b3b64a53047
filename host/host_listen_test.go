package host_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Changes of a server reach the clients of all revisions that have asked for them.
func TestChangesReachSubscribers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		calc, shop := newServer("calc"), newServer("shop")
		h := newHost(t, map[string]mcp.Handler{"calc": calc, "shop": shop}, up, "{}")
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
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

// All views of a server whose list is read slowly announce its changes, also one during the reading.
func TestChangesReachAllViewsOfAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calc := newServer("calc")
		slow := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method == "tools/list" {
				defer time.Sleep(time.Second)
			}
			return calc.ServeMCP(ctx, req)
		})
		command := map[string]string{"command": "x"}
		h := openFile(t, map[string]any{"calc": command, "other": command}, "{}",
			&host.Options{Dial: func(_ context.Context, s *config.Server) (mcp.Transport, error) {
				if s.Name == "calc" {
					return mcp.InMemory(slow), nil
				}
				return mcp.InMemory(newServer("other")), nil
			}})
		var counts [2]atomic.Int64
		for n, caller := range []*policy.Caller{{}, {Server: "calc"}} {
			c := client(t, h, caller)
			if _, err := mcp.Collect(c.Tools(t.Context())); err != nil {
				t.Fatal(err)
			}
			go func() {
				for e, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}) {
					if err != nil {
						return
					}
					if e.Kind == mcp.EventToolsChanged {
						counts[n].Add(1)
					}
				}
			}()
		}
		time.Sleep(time.Minute)
		for round, tools := range [][]string{{"a"}, {"b", "c"}} {
			for _, name := range tools { // listed, and changed again, while the list is read
				mcp.AddTool(calc, &mcp.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
				time.Sleep(500 * time.Millisecond)
				all, err := mcp.Collect(client(t, h, &policy.Caller{}).Tools(t.Context()))
				if err != nil || !slices.ContainsFunc(all, func(v *mcp.Tool) bool { return v.Name == "calc__"+name }) {
					t.Errorf("round %d: %s is not listed, with error %v", round, name, err)
				}
			}
			time.Sleep(time.Minute)
			for n := range counts {
				if got := counts[n].Swap(0); got != int64(len(tools)) {
					t.Errorf("round %d: view %d was notified %d times, want %d", round, n, got, len(tools))
				}
			}
		}
	})
}
