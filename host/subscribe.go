package host

import (
	"context"
	"maps"
	"slices"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A resourceWatch has the resources of a server that callers have subscribed to. One subscription at
// the server is for all of them. The lock of the pool guards it.
type resourceWatch struct {
	callers map[string]map[*resourceCaller]struct{} // by the URI at the server
	cancel  context.CancelFunc                      // of the current subscription, nil for none
	wake    bool                                    // a new subscription is being opened
}

// A resourceCaller is one subscription of a caller to a resource.
type resourceCaller struct {
	view *View
	uri  string // as the caller knows it
}

// subscribe subscribes a view to a resource. ok is false if the server does not support that.
func (p *pool) subscribe(ctx context.Context, v *View, target, uri string) (stop func(), ok bool) {
	s, release, err := p.acquire(ctx, "")
	if err != nil {
		return nil, false
	}
	defer release()
	if caps := s.client.Capabilities(); caps.Resources == nil || !caps.Resources.Subscribe {
		return nil, false
	}
	c := &resourceCaller{v, uri}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.watched
	if w.callers == nil {
		w.callers = map[string]map[*resourceCaller]struct{}{}
	}
	first := w.callers[target] == nil
	if first {
		w.callers[target] = map[*resourceCaller]struct{}{}
	}
	w.callers[target][c] = struct{}{}
	if first {
		p.watchResources()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(w.callers[target], c)
		if len(w.callers[target]) == 0 {
			delete(w.callers, target)
			p.watchResources()
		}
	}, true
}

// watchResources opens a subscription for the present set of resources, and then ends the one before
// it, so that no change is missed. The caller holds p.mu.
func (p *pool) watchResources() {
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
	w.cancel = cancel
	p.up.host.work.Go(func() {
		defer cancel()
		end := func() {
			if old != nil {
				old()
				old = nil
			}
		}
		defer end()
		s, release, err := p.acquire(ctx, "")
		if err != nil {
			return
		}
		defer release()
		for e, err := range s.client.Listen(ctx, filter) {
			if err != nil {
				return
			}
			end()
			p.resourceEvent(e)
		}
	})
}

func (p *pool) resourceEvent(e mcp.Event) {
	var changed []*resourceCaller
	p.mu.Lock()
	for uri, callers := range p.watched.callers {
		if e.Kind == mcp.EventResourceUpdated && e.URI == uri || e.Kind == mcp.EventChangesMissed {
			changed = slices.AppendSeq(changed, maps.Keys(callers))
		}
	}
	p.mu.Unlock()
	for _, c := range changed {
		c.view.changes.Send(mcp.Event{Kind: mcp.EventResourceUpdated, URI: c.uri})
	}
}
