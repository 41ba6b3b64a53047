package events_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func TestCatalogReadsTheListAfterChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newServer(t, nil)
		events.Add(srv, &events.Event{Name: "a"}, onBranch)
		var lists atomic.Int32
		c := dial(t, mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method == "events/list" {
				lists.Add(1)
			}
			return s.ServeMCP(ctx, req)
		}))
		catalog := events.NewCatalog(c)
		defer catalog.Close()
		want := func(types, requests int) {
			t.Helper()
			synctest.Wait()
			for range 2 {
				all, err := catalog.Events(t.Context())
				if err != nil || len(all) != types {
					t.Errorf("got %v, %v, want %d event types", all, err, types)
				}
			}
			if n := int(lists.Load()); n != requests {
				t.Errorf("got %d requests, want %d", n, requests)
			}
		}
		want(1, 1)
		b := events.Add(srv, &events.Event{Name: "b"}, onBranch)
		want(2, 2)
		b.Remove(nil)
		want(1, 3)
		catalog.Close()
		want(1, 5) // changes are not notified any more
	})
}
