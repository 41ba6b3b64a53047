package listing

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxWatched limits the resources of a subscription at a server, as servers do.
	maxWatched = 1000
	// maxWatchedOfPrincipal limits the resources of a principal if the server is shared, so that
	// the principal cannot take the place of others.
	maxWatchedOfPrincipal = 200
	// SubscribeWait limits how long a subscription waits for the subscription at the server before it is
	// acknowledged.
	SubscribeWait = 5 * time.Second
)

// A Subscriber learns of changes of resources. Subscribers must be comparable.
type Subscriber interface {
	// Principal returns the key of the principal, whose resources are limited.
	Principal() string
	// Updated reports a change of a resource; target is its URI at the server.
	Updated(target string)
	// Missed reports a possible change of a resource; uri is the URI that the subscriber uses.
	Missed(uri string)
}

// A Resource is a resource that a subscriber subscribes to.
type Resource struct {
	Target string // the URI at the server
	URI    string // as the subscriber knows it
}

// resourceSubscriptions holds the subscriptions to resources of a server. A single subscription at
// the server serves all subscribers.
type resourceSubscriptions struct {
	owner *Lists

	// The lock of the lists guards the fields below.
	subscribers map[string]map[*subscription]struct{} // by the URI at the server
	cancel      context.CancelFunc                    // of the current subscription; may be nil
	ready       chan struct{}                         // closed when the subscription is open or failed
}

// A subscription contains the subscriber of a resource.
type subscription struct {
	by  Subscriber
	uri string // as the subscriber knows it
}

// Subscriptions are subscriptions to resources, with their URIs at the server.
type Subscriptions map[*subscription]string

// Subscribe subscribes to resources with a single request. It returns the subscriptions, which may
// be nil, and the URIs of the resources that the server can announce.
func (w *resourceSubscriptions) Subscribe(
	ctx context.Context, by Subscriber, all []Resource,
) (added Subscriptions, agreed []string) {
	c, _, err := w.owner.Source.Acquire(ctx, false)
	if err != nil {
		return nil, nil
	}
	defer c.Release()
	if caps := c.Client().Capabilities(); caps.Resources == nil || !caps.Resources.Subscribe {
		return nil, nil
	}
	added, agreed, ready := w.subscribe(by, all)
	if len(added) == 0 {
		return nil, nil
	}
	timer := time.NewTimer(SubscribeWait)
	defer timer.Stop()
	select {
	case <-ready:
	case <-ctx.Done():
	case <-timer.C:
	}
	return added, agreed
}

// subscribe adds subscriptions within the limits. ready is closed after the response of the server.
func (w *resourceSubscriptions) subscribe(
	by Subscriber, all []Resource,
) (added Subscriptions, agreed []string, ready <-chan struct{}) {
	w.owner.mu.Lock()
	defer w.owner.mu.Unlock()
	if w.owner.closed {
		return nil, nil, nil
	}
	if w.subscribers == nil {
		w.subscribers = map[string]map[*subscription]struct{}{}
	}
	added = Subscriptions{}
	own, first := w.of(by.Principal()), false
	for _, r := range all {
		isWatched := w.subscribers[r.Target] != nil
		if !isWatched && len(w.subscribers) >= maxWatched || w.owner.Shared && own >= maxWatchedOfPrincipal {
			continue
		}
		if !isWatched {
			w.subscribers[r.Target] = map[*subscription]struct{}{}
			first = true
		}
		s := &subscription{by, r.URI}
		w.subscribers[r.Target][s], added[s] = struct{}{}, r.Target
		agreed = append(agreed, r.URI)
		own++
	}
	if first {
		w.subscribeLocked()
	}
	return added, agreed, w.ready
}

// Unsubscribe ends subscriptions.
func (w *resourceSubscriptions) Unsubscribe(all Subscriptions) {
	w.owner.mu.Lock()
	defer w.owner.mu.Unlock()
	last := false
	for s, target := range all {
		if w.subscribers[target] == nil {
			continue
		}
		delete(w.subscribers[target], s)
		if len(w.subscribers[target]) == 0 {
			delete(w.subscribers, target)
			last = true
		}
	}
	if last {
		w.subscribeLocked()
	}
}

// TakeSubscriptions removes the subscriptions of a subscriber, and returns them.
func (w *resourceSubscriptions) TakeSubscriptions(of Subscriber) Subscriptions {
	w.owner.mu.Lock()
	defer w.owner.mu.Unlock()
	taken := Subscriptions{}
	for target, all := range w.subscribers {
		for s := range all {
			if s.by == of {
				taken[s] = target
				delete(all, s)
			}
		}
		if len(all) == 0 {
			delete(w.subscribers, target)
		}
	}
	return taken
}

// AddSubscriptions adds the subscriptions that TakeSubscriptions removed from other lists.
func (w *resourceSubscriptions) AddSubscriptions(all Subscriptions) {
	if len(all) == 0 {
		return
	}
	w.owner.mu.Lock()
	defer w.owner.mu.Unlock()
	if w.subscribers == nil {
		w.subscribers = map[string]map[*subscription]struct{}{}
	}
	for s, target := range all {
		if w.subscribers[target] == nil {
			if len(w.subscribers) >= maxWatched {
				continue
			}
			w.subscribers[target] = map[*subscription]struct{}{}
		}
		w.subscribers[target][s] = struct{}{}
	}
	w.subscribeLocked()
}

// of returns the number of subscriptions of a principal.
func (w *resourceSubscriptions) of(principal string) (n int) {
	for _, all := range w.subscribers {
		for s := range all {
			if s.by.Principal() == principal {
				n++
			}
		}
	}
	return n
}

// subscribeLocked opens a subscription for the present set of resources, and then ends the subscription
// before it, so that no change is missed.
func (w *resourceSubscriptions) subscribeLocked() {
	old := w.cancel
	if len(w.subscribers) == 0 || w.owner.closed {
		if w.cancel = nil; old != nil {
			old()
		}
		return
	}
	filter := mcp.SubscriptionFilter{ResourceSubscriptions: slices.Sorted(maps.Keys(w.subscribers))}
	ctx, cancel := context.WithCancel(w.owner.Context)
	ready := make(chan struct{})
	w.cancel, w.ready = cancel, ready
	w.owner.Go(func() {
		defer cancel()
		open := sync.OnceFunc(func() {
			if old != nil {
				old()
			}
			close(ready)
		})
		defer open()
		c, _, err := w.owner.Source.Acquire(ctx, true)
		if err != nil {
			return
		}
		defer c.Release()
		defer context.AfterFunc(c.Context(), cancel)()
		for e, err := range c.Client().Listen(ctx, filter) {
			if err != nil {
				return
			}
			open()
			w.resourceEvent(e)
		}
	})
}

// resubscribe opens the subscription again that existed before a new connection. Changes since the last
// connection are unknown.
func (w *resourceSubscriptions) resubscribe() {
	w.owner.mu.Lock()
	watched := len(w.subscribers) > 0
	if watched {
		w.subscribeLocked()
	}
	w.owner.mu.Unlock()
	if watched {
		w.resourceEvent(mcp.Event{Kind: mcp.EventChangesMissed})
	}
}

// resourceEvent notifies the subscribers of a resource, or of a resource above it.
func (w *resourceSubscriptions) resourceEvent(e mcp.Event) {
	if e.Kind != mcp.EventResourceUpdated && e.Kind != mcp.EventChangesMissed {
		return
	}
	w.owner.mu.Lock()
	subscribers := map[Subscriber]struct{}{}
	var all []*subscription
	for _, some := range w.subscribers {
		for s := range some {
			subscribers[s.by] = struct{}{}
			all = append(all, s)
		}
	}
	w.owner.mu.Unlock()
	if e.Kind == mcp.EventChangesMissed { // any resource may be different now
		for _, s := range all {
			s.by.Missed(s.uri)
		}
		return
	}
	for s := range subscribers {
		s.Updated(e.URI)
	}
}
