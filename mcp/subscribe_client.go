package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	// maxRelistens is the number of consecutive failures to renew a subscription.
	maxRelistens = 5
	// relistenBackoff is the first delay before a renewal. It doubles each time, and contains a
	// random part, so that the clients of a server that restarts do not reconnect all at once.
	relistenBackoff = time.Second
	// maxRelistenBackoff is the longest delay.
	maxRelistenBackoff = 32 * time.Second
	// minListened is how long a subscription must last to reset the backoff.
	minListened = time.Minute
	// maxTopicEvents limits the topic events that are queued for a slow loop, maxTopicBytes the
	// total size of their params. A single event may be as large as a message.
	maxTopicEvents = 1000
	maxTopicBytes  = 4 << 20
)

// Listen subscribes to changes until ctx ends or the loop is left. If the connection is lost, it
// subscribes again and yields an [EventChangesMissed]. An error is the last value: the server
// refused the subscription or did not acknowledge it within the Timeout of a request, five renewals
// in a row failed or met a busy server, or the client is closed. When ctx ends, the loop ends
// without an error.
//
// In a slow loop, several equal changes become a single event. Topic events are not merged; if too
// many are queued, an [EventChangesMissed] replaces the rest. Changes invalidate the cached results
// of the client.
//
// Spec: basic/patterns/subscriptions (2026-07-28).
func (c *Client) Listen(ctx context.Context, f SubscriptionFilter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		l := &listening{client: c, filter: f, wake: make(chan struct{}, 1)}
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer recovered(ctx, c.opts.Logger, wire.MethodSubscriptionsListen, &err) // middleware runs here
			err = l.run(ctx)
		}()
		defer func() {
			cancel()
			<-done
		}()
		for over := false; !over; {
			select {
			case <-l.wake:
			case <-done:
				over = true
			}
			if !l.deliver(yield) {
				return
			}
		}
		if err != nil {
			yield(Event{}, err)
		}
	}
}

type listening struct {
	client *Client
	filter SubscriptionFilter
	wake   chan struct{} // holds a token while there are events

	mu     sync.Mutex
	events []Event             // queued for the loop
	queued map[eventName]bool  // the queued events that must not be queued twice
	topics int                 // topic events among them
	bytes  int                 // of their params
	missed bool                // events were dropped, or the subscription was interrupted
	agreed *SubscriptionFilter // from the last acknowledgement; nil before the first
	acked  time.Time           // when the open subscription was acknowledged; zero if it was not
}

type eventName struct {
	kind EventKind
	uri  string
}

// deliver yields the queued events. It yields EventChangesMissed last, so that no older event
// follows it.
func (l *listening) deliver(yield func(Event, error) bool) bool {
	l.mu.Lock()
	events := l.events
	if l.missed {
		events = append(events, Event{Kind: EventChangesMissed})
	}
	for i, e := range events {
		if e.Kind == EventListening || e.Kind == EventChangesMissed {
			var f SubscriptionFilter
			if l.agreed != nil {
				f = *l.agreed
			}
			f.ResourceSubscriptions, f.Topics = slices.Clone(f.ResourceSubscriptions), maps.Clone(f.Topics)
			events[i].Filter = &f
		}
	}
	l.events, l.queued, l.topics, l.bytes, l.missed = nil, nil, 0, 0, false
	l.mu.Unlock()
	for _, e := range events {
		if !yield(e, nil) {
			return false
		}
	}
	return true
}

// run subscribes, and renews the subscription until it fails for good.
func (l *listening) run(ctx context.Context) error {
	failures, backoff, subscribed := 0, relistenBackoff, false
	for {
		err := l.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		acked, lasted := l.lasted()
		subscribed = subscribed || acked
		refused := asError(err)
		restarting := subscribed && refused != nil && refused.Code == CodeBusy
		if refused != nil && !restarting || errors.Is(err, ErrInvalidResult) || l.client.ctx.Err() != nil {
			return err
		}
		switch {
		case lasted >= minListened:
			failures, backoff = 0, relistenBackoff
		case acked:
			failures = 0
		case failures == maxRelistens:
			return err
		default:
			failures++
		}
		if sleep(ctx, backoff/2+rand.N(backoff)) != nil {
			return nil
		}
		backoff = min(2*backoff, maxRelistenBackoff)
	}
}

// lasted reports whether the server acknowledged the subscription before it ended, and how long it
// lasted since.
func (l *listening) lasted() (acked bool, lasted time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if acked = !l.acked.IsZero(); acked {
		lasted = time.Since(l.acked)
	}
	l.acked = time.Time{}
	return acked, lasted
}

// once subscribes and waits for the end of the subscription.
func (l *listening) once(ctx context.Context) error {
	members, err := appendParams(nil, map[string]any{"notifications": l.filter})
	if err != nil {
		return err
	}
	receive := func(w *requestContext, method string, params json.RawMessage) {
		if method == wire.NotificationSubscriptionsAcknowledged {
			w.Pause() // the time limits are for the acknowledgement
		}
		l.receive(method, params)
	}
	_, err = l.client.do(ctx, &clientRequest{method: wire.MethodSubscriptionsListen, members: members, notify: receive})
	return err // nil if the server ended the subscription, for example to restart
}

// receive queues the event for a notification that was requested. Equal events are queued once, so
// that a slow loop does not cost memory.
func (l *listening) receive(method string, params json.RawMessage) {
	switch {
	case method == wire.NotificationSubscriptionsAcknowledged:
		l.acknowledged(params)
	case method == wire.NotificationToolsListChanged && l.filter.ToolsListChanged:
		l.client.cache.invalidate(wire.MethodToolsList)
		l.add(Event{Kind: EventToolsChanged})
	case method == wire.NotificationPromptsListChanged && l.filter.PromptsListChanged:
		l.client.cache.invalidate(wire.MethodPromptsList)
		l.add(Event{Kind: EventPromptsChanged})
	case method == wire.NotificationResourcesListChanged && l.filter.ResourcesListChanged:
		l.client.cache.invalidate(wire.MethodResourcesList, wire.MethodResourcesTemplatesList)
		l.add(Event{Kind: EventResourcesChanged})
	case method == wire.NotificationResourcesUpdated && len(l.filter.ResourceSubscriptions) > 0:
		raw, _ := jsonscan.Get(params, "uri")
		uri, err := unquoteAtMost(raw, maxURI)
		if err != nil {
			return
		}
		l.client.cache.invalidate(wire.MethodResourcesRead)
		l.add(Event{Kind: EventResourceUpdated, URI: uri})
	case len(l.filter.Topics) > 0:
		if _, core := wire.Latest().Method(method); !core {
			l.add(Event{Kind: EventTopic, Method: method, Params: bytes.Clone(params)})
		}
	}
}

func (l *listening) acknowledged(params json.RawMessage) {
	raw, _ := jsonscan.Get(params, "notifications")
	var f SubscriptionFilter
	if jsonv2.Unmarshal(raw, &f) != nil {
		f = SubscriptionFilter{}
	}
	maps.DeleteFunc(f.Topics, func(member string, _ json.RawMessage) bool {
		_, asked := l.filter.Topics[member]
		return !asked
	})
	l.mu.Lock()
	again := l.agreed != nil
	l.agreed, l.acked = &f, time.Now()
	l.mu.Unlock()
	if !again {
		l.add(Event{Kind: EventListening})
		return
	}
	l.client.cache.clear()
	l.add(Event{Kind: EventChangesMissed})
}

// add queues an event, or records that an event was dropped.
func (l *listening) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := eventName{e.Kind, e.URI}
	switch {
	case l.queued[name]:
		return
	case e.Kind == EventTopic &&
		(l.topics == 0 || l.topics < maxTopicEvents && l.bytes+len(e.Params) <= maxTopicBytes):
		l.topics++
		l.bytes += len(e.Params)
		l.events = append(l.events, e)
	case e.Kind == EventTopic, e.Kind == EventChangesMissed,
		e.Kind == EventResourceUpdated && len(l.events)-l.topics >= maxSubscribedURIs:
		l.missed = true
	default:
		put(&l.queued, name, true)
		l.events = append(l.events, e)
	}
	peer.Wake(l.wake)
}
