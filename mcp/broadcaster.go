package mcp

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A Broadcaster serves subscriptions/listen for a [Handler] that is not a [*Server], such as a
// gateway. It is safe for concurrent use. The Handler calls it in ServeMCP, and has two more methods:
//
//	func (g *gateway) Listen(ctx context.Context, req *mcp.Request) (stop func(), err error) {
//		return g.changes.Listen(ctx, req)
//	}
//
//	func (g *gateway) UsesBroadcaster() mcp.Handler { return g }
//
// Listen makes it a [driver.Listener]: an idle subscription of a session over HTTP needs no goroutine.
// UsesBroadcaster returns the handler itself, so that a type that embeds it does not count. It
// declares that ServeMCP returns the result of any Broadcaster unchanged, and that the context it
// passes on does not end when it returns: then transports serve the subscription after ServeMCP has
// returned, on a small stack. Without it, and behind a [Middleware], [Broadcaster.ServeMCP] returns
// when the subscription has ended.
//
// Spec: basic/patterns/subscriptions (2026-07-28).
type Broadcaster struct {
	agree   func(ctx context.Context, req *Request, f *SubscriptionFilter) (end func(), err error)
	changes subscriptions
}

// NewBroadcaster returns a Broadcaster. When a subscription is opened, agree removes from f what is
// not supported, and adds nothing; the rest is acknowledged to the client. An error ends the request.
// The function end, which may be nil, is called once when the subscription has ended. Both may be
// called concurrently, and panics are recovered. A nil agree supports everything but Topics.
//
// The context of agree ends with the subscription, and agree may block until then. What is sent
// before it returns does not reach the client, which gets the state after the acknowledgement.
func NewBroadcaster(
	agree func(ctx context.Context, req *Request, f *SubscriptionFilter) (end func(), err error),
) *Broadcaster {
	if agree == nil {
		agree = func(_ context.Context, _ *Request, f *SubscriptionFilter) (func(), error) {
			f.Topics = nil
			return nil, nil
		}
	}
	return &Broadcaster{agree: agree}
}

// ServeMCP serves a subscriptions/listen request; see [Broadcaster]. It refuses other methods.
func (b *Broadcaster) ServeMCP(ctx context.Context, req *Request) (Result, error) {
	if req.Method != wire.MethodSubscriptionsListen {
		return nil, methodNotFound(req.Method)
	}
	f, err := parseFilter(req)
	if err != nil {
		return nil, err
	}
	tooLong := func(uri string) bool { return len(uri) > maxURI }
	f.ResourceSubscriptions = slices.DeleteFunc(f.ResourceSubscriptions, tooLong)
	if !req.has(wire.Subscriptions) {
		f.Topics = nil
	}
	end, err := b.agree(ctx, req, &f)
	if err != nil {
		return nil, err
	}
	sub := newSubscription(req.ID, f)
	if end != nil {
		sub.end = sync.OnceFunc(func() {
			var err error // of a panic, which recovered logs
			defer recovered(ctx, req.logger(), req.Method, &err)
			end()
		})
	}
	return b.changes.open(ctx, req, sub, f, openAgreed)
}

// Listen registers a subscriptions/listen request and returns; see [driver.Listener]. The context must
// outlive the subscription.
func (b *Broadcaster) Listen(ctx context.Context, req *Request) (stop func(), err error) {
	c := newCall(ctx, nil, req)
	return listenWith(c, HandlerFunc(func(ctx context.Context, req *Request) (Result, error) {
		return contain(ctx, req.logger(), req, b)
	}), req)
}

// Send sends a change to the subscriptions that have asked for it. It does not block, and calls no
// function of [NewBroadcaster]. Several equal changes before a client could be notified result in
// one notification. Events of topics are all sent, in order, up to 20,000 or 4 MiB of params for a
// client that does not read; more are dropped and logged.
//
// An [EventResourceUpdated] also goes to the subscriptions of a resource above its URI. An
// [EventChangesMissed] notifies each subscription of all its lists and resources, not of topics. An
// [EventTopic] goes to the subscriptions whose filter has a member of the Topics of Filter with an
// equal value, or with an array that has an equal element, for example {"taskIds": "42"}; if Filter
// is nil, to all that have topics. Params must not be changed. Other kinds are ignored.
func (b *Broadcaster) Send(e Event) {
	switch e.Kind {
	case EventToolsChanged:
		b.changes.listChanged(toolsChanged)
	case EventPromptsChanged:
		b.changes.listChanged(promptsChanged)
	case EventResourcesChanged:
		b.changes.listChanged(resourcesChanged)
	case EventResourceUpdated:
		b.changes.updatedBelow(e.URI)
	case EventChangesMissed:
		b.changes.everythingChanged()
	case EventTopic:
		b.changes.topicChanged(e)
	}
}

func (b *subscriptions) everythingChanged() {
	for _, s := range b.all() {
		s.mark(s.lists, slices.Sorted(maps.Keys(s.uris))...)
	}
}

// updatedBelow reports a resource to the subscriptions of it and of resources above it. Spec:
// schema ResourceUpdatedNotification: it may be a sub-resource of the one that was subscribed to.
func (b *subscriptions) updatedBelow(uri string) {
	for _, s := range b.all() {
		above, ok := legacy.SubscribedAncestor(s.uris, uri)
		switch {
		case !ok:
		case s.isFull():
			s.mark(0, above)
		default:
			s.mark(0, uri)
		}
	}
}

// isFull reports whether so many resources have changed that further ones are reported as a change
// of the resource that was subscribed to.
func (s *subscription) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.updated) >= maxSubscribedURIs
}

func (b *subscriptions) topicChanged(e Event) {
	topic := &topicSubscription{Topic: Topic{
		Method: e.Method,
		Params: func(_ context.Context, _ *Request, params string) (json.RawMessage, error) {
			return json.RawMessage(params), nil
		},
	}}
	key := topicKey{topic, string(e.Params)}
	for _, s := range b.matching(func(s *subscription) bool {
		return s.topics != nil && (e.Filter == nil || s.topics.haveAny(e.Filter.Topics))
	}) {
		s.topics.changed(key)
	}
}

func (b *subscriptions) all() []*subscription {
	return b.matching(func(*subscription) bool { return true })
}

// matching returns the subscriptions that match.
func (b *subscriptions) matching(match func(*subscription) bool) []*subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.subscribed(match)
}

// A topicValue is the value of a member of a filter, or an element of it if it is an array.
type topicValue struct{ member, value string }

func newTopicValue(member string, value json.RawMessage) topicValue {
	if text, err := jsonscan.Unquote(value); err == nil {
		value = jsonscan.AppendQuote(nil, text) // strings are equal however they are escaped
	}
	return topicValue{member, string(value)}
}

// openAgreed opens the topics that a Broadcaster has agreed to. Their changes are those that it sends.
func openAgreed(
	ctx context.Context, req *Request, sub *subscription, f *SubscriptionFilter, sender topicSender,
) (*topicSubscriptions, error) {
	if len(f.Topics) == 0 {
		return nil, nil
	}
	o := newTopicSubscriptions(ctx, req, sub, sender)
	for member, value := range f.Topics {
		put(&o.agreed, newTopicValue(member, value), struct{}{})
		for element := range jsonscan.Elements(value) {
			put(&o.agreed, newTopicValue(member, element), struct{}{})
		}
	}
	return o, nil
}

// haveAny reports whether one of the members has been agreed to.
func (o *topicSubscriptions) haveAny(members map[string]json.RawMessage) bool {
	for member, value := range members {
		if _, ok := o.agreed[newTopicValue(member, value)]; ok {
			return true
		}
	}
	return false
}
