package host

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A resourceSubscriptions has the resources of a server that callers have subscribed to. One subscription at
// the server is for all of them. The lock of the pool guards it.
type resourceSubscriptions struct {
	callers map[string]map[*resourceCaller]struct{} // by the URI at the server
	cancel  context.CancelFunc                      // of the current subscription, nil for none
	ready   chan struct{}                           // closed when it is open, or has failed
}

// A resourceCaller is one subscription of a caller to a resource.
type resourceCaller struct {
	view *View
	uri  string // as the caller knows it
}

// A watchedResource is a resource that a caller subscribes to.
type watchedResource struct {
	target string // the URI at the server
	uri    string // as the caller knows it
}

const (
	// maxWatched bounds the resources of one subscription at a server, as servers do.
	maxWatched = 1000
	// maxWatchedOfPrincipal bounds those of one principal if the server is shared, so that it cannot
	// take the place of others.
	maxWatchedOfPrincipal = 200
)

// subscribe subscribes a view to resources, with one request. It returns the URIs of those that the
// server can announce. stop is nil if there are none.
func (p *pool) subscribe(ctx context.Context, v *View, all []watchedResource) (stop func(), agreed []string) {
	s, err := p.acquire(ctx, "")
	if err != nil {
		return nil, nil
	}
	defer s.Release()
	if caps := s.Client().Capabilities(); caps.Resources == nil || !caps.Resources.Subscribe {
		return nil, nil
	}
	added := map[*resourceCaller]string{} // with their targets
	shared := p.up.share() == config.ShareShared
	p.mu.Lock()
	w := &p.watched
	if p.closed {
		p.mu.Unlock()
		return nil, nil
	}
	if w.callers == nil {
		w.callers = map[string]map[*resourceCaller]struct{}{}
	}
	own, first := w.of(v.caller.Key()), false
	for _, r := range all {
		known := w.callers[r.target] != nil
		if !known && len(w.callers) >= maxWatched || shared && own >= maxWatchedOfPrincipal {
			continue
		}
		if !known {
			w.callers[r.target] = map[*resourceCaller]struct{}{}
			first = true
		}
		c := &resourceCaller{v, r.uri}
		w.callers[r.target][c], added[c] = struct{}{}, r.target
		agreed = append(agreed, r.uri)
		own++
	}
	if first {
		p.subscribeResources()
	}
	ready := w.ready
	p.mu.Unlock()
	if len(added) == 0 {
		return nil, nil
	}
	await(ctx, ready)
	return func() { v.unsubscribe(p, added) }, agreed
}

func (p *pool) unsubscribe(all map[*resourceCaller]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, last := &p.watched, false
	for c, target := range all {
		if w.callers[target] == nil {
			continue
		}
		delete(w.callers[target], c)
		if len(w.callers[target]) == 0 {
			delete(w.callers, target)
			last = true
		}
	}
	if last {
		p.subscribeResources()
	}
}

// of returns the number of resources that a principal has subscribed to, each time counted.
func (w *resourceSubscriptions) of(principal string) (n int) {
	for _, callers := range w.callers {
		for c := range callers {
			if c.view.caller.Key() == principal {
				n++
			}
		}
	}
	return n
}

// subscribeWait is how long a subscription waits for that at the server before it is acknowledged.
const subscribeWait = 5 * time.Second

// await waits until ready is closed, for at most subscribeWait.
func await(ctx context.Context, ready <-chan struct{}) {
	timer := time.NewTimer(subscribeWait)
	defer timer.Stop()
	select {
	case <-ready:
	case <-ctx.Done():
	case <-timer.C:
	}
}

// subscribeResources opens a subscription for the present set of resources, and then ends the one before
// it, so that no change is missed. The caller holds p.mu.
func (p *pool) subscribeResources() {
	w := &p.watched
	old := w.cancel
	if len(w.callers) == 0 || p.closed {
		if w.cancel = nil; old != nil {
			old()
		}
		return
	}
	filter := mcp.SubscriptionFilter{ResourceSubscriptions: slices.Sorted(maps.Keys(w.callers))}
	ctx, cancel := context.WithCancel(p.up.host.ctx)
	ready := make(chan struct{})
	w.cancel, w.ready = cancel, ready
	p.up.host.work.run(func() {
		defer cancel()
		open := sync.OnceFunc(func() {
			if old != nil {
				old()
			}
			close(ready)
		})
		defer open()
		s, err := p.acquire(ctx, "")
		if err != nil {
			return
		}
		defer s.Release()
		defer context.AfterFunc(s.Context(), cancel)()
		for e, err := range s.Client().Listen(ctx, filter) {
			if err != nil {
				return
			}
			open()
			p.resourceEvent(e)
		}
	})
}

// hasSubscriptions reports whether callers have subscribed to resources.
func (p *pool) hasSubscriptions() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watched.callers) > 0
}

// resubscribe opens the subscriptions of callers that they had before a new connection. What has changed
// since the last one is not known.
func (p *pool) resubscribe(watched bool) {
	p.mu.Lock()
	resources, lists := watched && len(p.watched.callers) > 0, len(p.views) > 0
	if resources {
		p.subscribeResources()
	}
	p.mu.Unlock()
	if resources {
		p.resourceEvent(mcp.Event{Kind: mcp.EventChangesMissed})
	}
	if lists {
		p.notify()
	}
}

// resourceEvent notifies the callers that have subscribed to a resource, or to one above it.
func (p *pool) resourceEvent(e mcp.Event) {
	if e.Kind != mcp.EventResourceUpdated && e.Kind != mcp.EventChangesMissed {
		return
	}
	p.mu.Lock()
	views := map[*View]struct{}{}
	var missed []*resourceCaller
	for _, callers := range p.watched.callers {
		for c := range callers {
			views[c.view] = struct{}{}
			missed = append(missed, c)
		}
	}
	p.mu.Unlock()
	if e.Kind == mcp.EventChangesMissed { // any of them may have changed
		for _, c := range missed {
			c.view.changes.Send(mcp.Event{Kind: mcp.EventResourceUpdated, URI: c.uri})
		}
		return
	}
	for v := range views {
		v.changes.Send(mcp.Event{Kind: mcp.EventResourceUpdated, URI: v.publicURI(p, e.URI)})
	}
}

// publicURI returns the URI by which callers know a URI of a server.
func (v *View) publicURI(p *pool, uri string) string {
	if m := v.latest(); m != nil {
		return m.catalogue.PublicURI(p.up.name, uri)
	}
	return uri
}
