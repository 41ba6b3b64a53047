package routes

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Subscribe opens a subscription of the caller: to all lists, and to resources of servers. It returns the URIs
// to which the servers agreed, sorted. end must be called; it ends the subscription.
func (t *Table) Subscribe(
	ctx context.Context, resources map[Server][]listing.Resource,
) (agreed []string, end func()) {
	servers := slices.Collect(maps.Keys(resources))
	added, uris := make([]listing.Subscriptions, len(servers)), make([][]string, len(servers))
	var wait sync.WaitGroup
	for n, p := range servers {
		wait.Go(func() { // a slow server does not delay the others
			added[n], uris[n] = p.Lists().Subscribe(ctx, subscriber{t, p.Name()}, resources[p])
		})
	}
	wait.Wait()
	agreed = slices.Sorted(slices.Values(slices.Concat(uris...)))
	t.count(1)
	t.moveSubscriptions(servers) // servers that were replaced meanwhile
	return agreed, func() {
		t.count(-1)
		for n, p := range servers {
			if added[n] != nil {
				t.unsubscribe(p, added[n])
			}
		}
	}
}

// count counts the subscriptions of the caller. With the first, the servers announce changes to the table.
func (t *Table) count(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.subscriptions
	t.subscriptions += n
	for _, p := range t.Used() {
		switch {
		case before == 0:
			p.Lists().AddListener(t)
		case t.subscriptions == 0:
			p.Lists().RemoveListener(t)
		}
	}
	if before == 0 || t.subscriptions == 0 {
		t.o.Watch(t.subscriptions > 0)
	}
	if before == 0 && t.o.Elsewhere {
		t.scheduleLocked() // else no server is connected whose changes could be announced
	}
}

// moveSubscriptions moves subscriptions to resources from servers to their replacements.
func (t *Table) moveSubscriptions(from []Server) {
	for _, p := range from {
		if to := t.Servers().Named(p.Name()); to != nil && to != p {
			to.Lists().AddSubscriptions(p.Lists().TakeSubscriptions(subscriber{t, p.Name()}))
		}
	}
}

// unsubscribe ends subscriptions to resources, also subscriptions that have moved.
func (t *Table) unsubscribe(p Server, all listing.Subscriptions) {
	p.Lists().Unsubscribe(all)
	if to := t.Servers().Named(p.Name()); to != nil && to != p {
		to.Lists().Unsubscribe(all)
	}
}

// A subscriber is the [listing.Subscriber] of a table at one server.
type subscriber struct {
	table  *Table
	server string
}

// Principal implements [listing.Subscriber].
func (s subscriber) Principal() string { return s.table.o.Caller.Key() }

// Updated implements [listing.Subscriber].
func (s subscriber) Updated(target string) { s.Missed(s.table.uris.Public(s.server, target)) }

// Missed implements [listing.Subscriber].
func (s subscriber) Missed(uri string) {
	s.table.o.Send(mcp.Event{Kind: mcp.EventResourceUpdated, URI: uri})
}
