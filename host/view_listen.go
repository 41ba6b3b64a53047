package host

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// agree narrows the filter of a subscription to resources that a server of the view can announce,
// that the policy allows, and starts to watch the servers. end stops that.
func (v *View) agree(ctx context.Context, req *mcp.Request, f *mcp.SubscriptionFilter) (end func(), err error) {
	s := &subscribing{view: v, req: req}
	defer func() {
		if err != nil {
			v.host.countError(ctx, err)
			_, err = v.response(ctx, req.Method, err)
		}
	}()
	if err := s.admit(); err != nil {
		return nil, err
	}
	byPool := map[*upstream.Pool][]listing.Resource{}
	read, known := false, req.Driver().Checked
	if !v.caller.May(policy.ActionRead) {
		f.ResourceSubscriptions = nil
	}
	for _, uri := range f.ResourceSubscriptions {
		r := v.watchedRoute(ctx, uri, &read)
		if r != nil && known.Agreed(uri, func() bool {
			return s.allows(ctx, s.action(policy.ActionRead, poolOf(r).Name(), r.Target))
		}) {
			byPool[poolOf(r)] = append(byPool[poolOf(r)], listing.Resource{Target: r.Target, URI: uri})
		}
	}
	f.ResourceSubscriptions = nil
	listeners := v.topicListeners(ctx, s, f)
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end(nil)
	ends := openTopics(ctx, listeners, f)
	var mu sync.Mutex
	var wait sync.WaitGroup
	for p, all := range byPool {
		wait.Go(func() { // a slow server does not delay the others
			added, agreed := p.Lists().Subscribe(ctx, viewSubscriber{v, p.Name()}, all)
			if added == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, func() { v.unsubscribe(p, added) })
			f.ResourceSubscriptions = append(f.ResourceSubscriptions, agreed...)
		})
	}
	wait.Wait()
	slices.Sort(f.ResourceSubscriptions)
	v.countSubscriptions(1)
	v.moveSubscriptions(slices.Collect(maps.Keys(byPool))) // servers that were replaced meanwhile
	return func() {
		v.countSubscriptions(-1)
		for _, end := range ends {
			end()
		}
	}, nil
}

// watchedRoute returns the route of a resource, nil if there is none. For all URIs of a subscription
// together, lists are read again once.
func (v *View) watchedRoute(ctx context.Context, uri string, read *bool) *call.Call {
	if *read {
		return v.knownURI(v.latest(), uri)
	}
	if len(v.pools()) != 1 && v.knownURI(v.latest(), uri) == nil {
		*read = true
	}
	r, err := v.routeURI(ctx, uri)
	if err != nil {
		return nil
	}
	return r
}

// countSubscriptions counts the subscriptions of the view. With the first, its servers notify it of changes.
func (v *View) countSubscriptions(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.subscriptions
	v.subscriptions += n
	for _, p := range v.resolved.Load().pools {
		switch {
		case before == 0:
			p.Lists().AddListener((*viewListener)(v))
		case v.subscriptions == 0:
			p.Lists().RemoveListener((*viewListener)(v))
		}
	}
	if before == 0 || v.subscriptions == 0 {
		v.host.noteSubscribed(v, v.subscriptions > 0)
	}
}

// A viewListener is the [listing.Listener] of a view with subscriptions.
type viewListener View

// ListsChanged implements [listing.Listener].
func (v *viewListener) ListsChanged() { (*View)(v).schedule() }

// A viewSubscriber is the [listing.Subscriber] of a view that has subscribed to resources of a server.
type viewSubscriber struct {
	view   *View
	server string
}

// Principal implements [listing.Subscriber].
func (s viewSubscriber) Principal() string { return s.view.caller.Key() }

// Updated implements [listing.Subscriber].
func (s viewSubscriber) Updated(target string) {
	s.Missed(s.view.publicURI(s.server, target))
}

// Missed implements [listing.Subscriber].
func (s viewSubscriber) Missed(uri string) {
	s.view.changes.Send(mcp.Event{Kind: mcp.EventResourceUpdated, URI: uri})
}

// publicURI returns the URI by which callers know a URI of a server.
func (v *View) publicURI(server, uri string) string {
	if m := v.latest(); m != nil {
		return m.catalogue.PublicURI(server, uri)
	}
	return uri
}

// Pools implements [upstream.User].
func (v *viewListener) Pools() []*upstream.Pool { return v.resolved.Load().pools }

// ForgetLists implements [upstream.User].
func (v *viewListener) ForgetLists() { (*View)(v).forget() }
