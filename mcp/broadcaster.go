package mcp

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A Broadcaster serves subscriptions/listen for a [Handler] that is not a [*Server], such as a
// gateway. It is safe for concurrent use. The Handler must call it in ServeMCP, and implement two more
// methods:
//
//	func (g *gateway) Listen(ctx context.Context, req *mcp.Request) (stop func(), err error) {
//		return g.changes.Listen(ctx, req)
//	}
//
//	func (g *gateway) UsesBroadcaster() mcp.Handler { return g }
//
// Listen makes it a [driver.Listener]: an idle subscription of a session over HTTP needs no
// goroutine. UsesBroadcaster must return the handler itself, so that it does not apply to a type that
// embeds the handler. It declares that ServeMCP returns the result of any Broadcaster unchanged, and
// that the context it passes on does not end when it returns: then transports serve the subscription
// after ServeMCP returned, on a small stack. Without it, and behind a [Middleware],
// [Broadcaster.ServeMCP] returns at the end of the subscription.
//
// Spec: basic/patterns/subscriptions (2026-07-28).
type Broadcaster struct {
	agree   func(ctx context.Context, req *Request, f *SubscriptionFilter) (end func(), err error)
	changes subscriptions
}

// NewBroadcaster returns a Broadcaster. When a subscription is opened, agree must remove every
// member from f that is not supported, and must not add any; the rest is acknowledged to the
// client. An error of agree ends the request. The function end, which may be nil, is called once at
// the end of the subscription. Both may be called concurrently, and their panics are recovered. A
// nil agree supports everything but Topics.
//
// The context of agree ends with the subscription, and agree may block until then. Changes that are
// sent before agree returns do not reach the client, which reads the state after the
// acknowledgement.
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

// Send sends a change to the subscriptions that asked for it. It does not block and does not call
// the functions of [NewBroadcaster]. Equal changes that occur before a client is notified result in
// a single notification. Events of topics are all sent, in order, up to 20,000 events or 4 MiB of
// params for a client that does not read; further events are dropped and logged.
//
// An [EventResourceUpdated] also goes to the subscriptions of a resource above its URI. An
// [EventChangesMissed] notifies each subscription of all its lists and resources, but not of
// topics. An [EventTopic] goes to the subscriptions whose filter contains a member of the Topics of
// Filter with an equal value, or with an array that contains an equal element, for example
// {"taskIds": "42"}; if Filter is nil, it goes to all subscriptions with topics. The caller must
// not change Params. Other kinds are ignored.
func (b *Broadcaster) Send(e Event) {
	switch e.Kind {
	case EventToolsChanged, EventPromptsChanged, EventResourcesChanged:
		b.changes.listChanged(e.Kind.list())
	case EventResourceUpdated:
		b.changes.updatedBelow(e.URI)
	case EventChangesMissed:
		b.changes.missed()
	case EventTopic:
		b.changes.topicChanged(e)
	}
}

// updatedBelow reports an updated resource to its subscriptions and to the subscriptions of
// resources above it, because the resource may be a sub-resource of the subscribed resource. Spec:
// schema ResourceUpdatedNotification.
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

// isFull reports whether so many resources changed that further changes are reported as a change of
// the subscribed resource.
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

// A topicValue is the value of a member of a filter, or an element of it if it is an array.
type topicValue struct{ member, value string }

func newTopicValue(member string, value json.RawMessage) topicValue {
	if text, err := jsonscan.Unquote(value); err == nil {
		value = jsonscan.AppendQuote(nil, text) // strings are equal however they are escaped
	}
	return topicValue{member, string(value)}
}

// openAgreed opens the topics that a Broadcaster agreed to. The Broadcaster sends their changes.
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

// haveAny reports whether the Broadcaster agreed to a topic of members.
func (o *topicSubscriptions) haveAny(members map[string]json.RawMessage) bool {
	for member, value := range members {
		if _, ok := o.agreed[newTopicValue(member, value)]; ok {
			return true
		}
	}
	return false
}
