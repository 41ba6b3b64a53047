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
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	// maxRelistens is how many times a subscription is renewed in vain, one after the other, before it is given up.
	maxRelistens = 5
	// relistenPause is how long the first pause between them is; each is twice the one before, and a little at random so
	// that the clients of a server that restarts do not come all at once.
	relistenPause = time.Second
	// maxRelistenPause is how long it gets at most when the server agrees each time, and ends the subscription at once.
	maxRelistenPause = 32 * time.Second
	// longListened is how long a subscription has to have lasted for its end to be nothing unusual.
	longListened = time.Minute
	// maxTopicEvents is how many topic events wait for a slow loop, and maxTopicBytes the size of their params in all. A
	// single one may be as large as a message.
	maxTopicEvents = 1000
	maxTopicBytes  = 4 << 20
)

// An EventKind says what an [Event] is.
type EventKind uint8

// Kinds of events.
const (
	// EventListening: the server has agreed; Filter is what it will tell of, which may be less than was asked for.
	EventListening EventKind = iota + 1
	// EventResync: the subscription was interrupted and is back. Changes meanwhile were missed: what matters is to be
	// fetched again. Filter is what the server will tell of from now on. It comes too if a slow loop lets so many resources
	// or topic events wait that the client does not keep them, and behind all that waited with it.
	EventResync
	EventToolsChanged     // the list of tools is another one
	EventPromptsChanged   // the list of prompts is another one
	EventResourcesChanged // the list of resources, or of templates, is another one
	EventResourceUpdated  // the resource URI has other contents
	// EventTopic: a notification of what an extension tells of, Method with Params. Its sender is the server: what the
	// params say is checked by whoever reads them.
	EventTopic
)

// String names the kind in lower case.
func (k EventKind) String() string {
	names := [...]string{"unknown", "listening", "resync", "tools changed", "prompts changed", "resources changed", "resource updated", "topic"}
	if int(k) >= len(names) {
		k = 0
	}
	return names[k]
}

// An Event is a change at the server, or of the subscription itself.
type Event struct {
	Kind   EventKind
	URI    string          // of EventResourceUpdated
	Filter *Filter         // of EventListening and EventResync
	Method string          // of EventTopic
	Params json.RawMessage // of EventTopic: a JSON object, `_meta` included
}

// Listen subscribes to changes until ctx ends or the loop is left. If the connection is lost it subscribes again, and then
// there is an [EventResync]. The error ends the loop; it is the last one: that the server refuses, that subscribing again
// failed five times in a row, or that the client is closed. The server has the Timeout of a request to agree. When ctx ends
// the loop ends without an error.
//
// A caller that is slow misses no kind of change, only that it came several times; topic events come one by one, and if too
// many wait there is an [EventResync] in place of the rest. Fresh answers that the client keeps are
// dropped when they change.
//
// Spec: basic/patterns/subscriptions (2026-07-28).
func (c *Client) Listen(ctx context.Context, f Filter) iter.Seq2[Event, error] {
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

// A listening is one loop over changes.
type listening struct {
	client *Client
	filter Filter
	wake   chan struct{} // holds a token while there are events

	mu     sync.Mutex
	events []Event            // that wait for the loop
	noted  map[eventName]bool // those of them that need not be noted twice
	topics int                // topic events among them
	bytes  int                // of their params
	missed bool               // something was not kept, or the subscription was interrupted
	agreed *Filter            // of the last acknowledgement; nil before the first
	acked  time.Time          // when the one that is open was acknowledged; zero if it was not
}

// keepsTopic reports whether a topic event of a size is kept until the loop takes it. The caller holds the lock.
func (l *listening) keepsTopic(size int) bool {
	return l.topics == 0 || l.topics < maxTopicEvents && l.bytes+size <= maxTopicBytes
}

type eventName struct {
	kind EventKind
	uri  string
}

// deliver returns what waits to the loop. That something is missing comes last: whoever then fetches anew is told nothing
// older afterwards.
func (l *listening) deliver(yield func(Event, error) bool) bool {
	l.mu.Lock()
	events := l.events
	if l.missed {
		events = append(events, Event{Kind: EventResync})
	}
	l.events, l.noted, l.topics, l.bytes, l.missed = nil, nil, 0, 0, false
	l.mu.Unlock()
	for _, e := range events {
		if e.Kind == EventListening || e.Kind == EventResync {
			e.Filter = l.filterNow()
		}
		if !yield(e, nil) {
			return false
		}
	}
	return true
}

// filterNow returns what the server has agreed to last.
func (l *listening) filterNow() *Filter {
	l.mu.Lock()
	defer l.mu.Unlock()
	var f Filter
	if l.agreed != nil {
		f = *l.agreed
	}
	f.ResourceSubscriptions, f.Topics = slices.Clone(f.ResourceSubscriptions), maps.Clone(f.Topics)
	return &f
}

// run subscribes, again and again.
func (l *listening) run(ctx context.Context) error {
	failures, pause := 0, relistenPause
	for {
		err := l.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if asError(err) != nil || errors.Is(err, ErrInvalidResult) || l.client.ctx.Err() != nil {
			return err
		}
		switch acked, lasted := l.lasted(); {
		case lasted >= longListened:
			failures, pause = 0, relistenPause
		case acked:
			failures = 0
		case failures == maxRelistens:
			return err
		default:
			failures++
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		pause = min(2*pause, maxRelistenPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// lasted tells of the subscription that has ended whether it had begun, and for how long it was open.
func (l *listening) lasted() (acked bool, lasted time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acked.IsZero() {
		return false, 0
	}
	lasted = time.Since(l.acked)
	l.acked = time.Time{}
	return true, lasted
}

// once subscribes and waits for the end of it.
func (l *listening) once(ctx context.Context) error {
	members, err := appendParams(nil, map[string]any{"notifications": l.filter})
	if err != nil {
		return err
	}
	take := func(w *requestContext, method string, params json.RawMessage) {
		if method == wire.NotificationSubscriptionsAcknowledged {
			w.Pause() // the time limits are for the acknowledgement
		}
		l.take(method, params)
	}
	_, err = l.client.do(ctx, &ask{method: wire.MethodSubscriptionsListen, members: members, notify: take})
	return err // nil is a server that ends it in good order, as one does that restarts
}

// take notes a notification, if it was asked for. What is noted already is not noted again, so a slow loop costs no memory.
func (l *listening) take(method string, params json.RawMessage) {
	switch {
	case method == wire.NotificationSubscriptionsAcknowledged:
		l.acknowledged(params)
	case method == wire.NotificationToolsListChanged && l.filter.ToolsListChanged:
		l.client.cache.forget(wire.MethodToolsList)
		l.note(Event{Kind: EventToolsChanged})
	case method == wire.NotificationPromptsListChanged && l.filter.PromptsListChanged:
		l.client.cache.forget(wire.MethodPromptsList)
		l.note(Event{Kind: EventPromptsChanged})
	case method == wire.NotificationResourcesListChanged && l.filter.ResourcesListChanged:
		l.client.cache.forget(wire.MethodResourcesList, wire.MethodResourcesTemplatesList)
		l.note(Event{Kind: EventResourcesChanged})
	case method == wire.NotificationResourcesUpdated && len(l.filter.ResourceSubscriptions) > 0:
		raw, _ := jsonscan.Get(params, "uri")
		uri, err := unquoteAtMost(raw, maxURI)
		if err != nil {
			return
		}
		l.client.cache.forget(wire.MethodResourcesRead)
		l.note(Event{Kind: EventResourceUpdated, URI: uri})
	case len(l.filter.Topics) > 0 && !coreNotification(method):
		l.note(Event{Kind: EventTopic, Method: method, Params: bytes.Clone(params)})
	}
}

// coreNotification reports whether a notification is the core protocol's.
func coreNotification(method string) bool {
	_, ok := wire.Latest().Method(method)
	return ok
}

func (l *listening) acknowledged(params json.RawMessage) {
	raw, _ := jsonscan.Get(params, "notifications")
	var f Filter
	if jsonv2.Unmarshal(raw, &f) != nil {
		f = Filter{}
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
		l.note(Event{Kind: EventListening})
		return
	}
	l.client.cache.clear()
	l.note(Event{Kind: EventResync})
}

// note keeps an event for the loop, or that something is missing.
func (l *listening) note(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := eventName{e.Kind, e.URI}
	switch {
	case l.noted[name]:
		return
	case e.Kind == EventTopic && l.keepsTopic(len(e.Params)):
		l.topics++
		l.bytes += len(e.Params)
		l.events = append(l.events, e)
	case e.Kind == EventTopic, e.Kind == EventResync,
		e.Kind == EventResourceUpdated && len(l.events)-l.topics >= maxSubscribedURIs:
		l.missed = true
	default:
		put(&l.noted, name, true)
		l.events = append(l.events, e)
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
