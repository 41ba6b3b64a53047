package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/forward"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	// maxTopicKeys limits the recorded changes of all topics of a subscription: slightly more than
	// the largest filter can name.
	maxTopicKeys = 20_000
	// maxTopicKeyBytes limits the sum of their keys, which are params in a [Broadcaster]. A single
	// key may be larger.
	maxTopicKeyBytes = 4 << 20
)

// A Topic is a kind of change, defined by an extension, that clients can subscribe to with
// subscriptions/listen. Its functions must be safe for concurrent use; their panics are recovered.
// Sessions of older revisions do not support topics.
//
// Spec: basic/patterns/subscriptions (2026-07-28), Extensions.
type Topic struct {
	// Method is the method of the notifications, such as "notifications/tasks".
	Method string
	// Open opens a subscription. The member is the topic's member of the client's filter, any JSON
	// value. The server acknowledges the returned value under the same name; nil means that there
	// is no item to subscribe to, and leaves the member out. An error ends the request.
	//
	// From then on, and already before Open returns, the extension must call changed(key) whenever
	// the item named key changes. It may be called from any goroutine and with locks held: it does
	// not block, and calls neither Open nor Params. Several changes of an item before the client is
	// notified result in a single notification. After the end of the subscription, changed ignores
	// calls.
	//
	// The server calls stop once, at the end of the subscription; it may be nil. The context ends
	// with the subscription.
	Open func(ctx context.Context, req *Request, member json.RawMessage, changed func(key string)) (
		acknowledged any, stop func(), err error)
	// Params returns the params of the notification for an item in its current state: a JSON
	// object, to which the server adds the id of the subscription. If it returns nil, or an error,
	// which is logged, no notification is sent. It is called just before the notification is sent,
	// on a goroutine of the subscription.
	Params func(ctx context.Context, req *Request, key string) (json.RawMessage, error)
}

// AddTopic lets clients subscribe to a topic of an extension. The member is the name of the topic
// in the filter of subscriptions/listen, such as "taskIds". AddTopic panics if the name is in use
// or defined by the core protocol, or if a field of the topic is not set.
func (s *Server) AddTopic(member string, t Topic) {
	switch {
	case member == "" || isCoreFilter(member):
		panic(fmt.Sprintf("mcp: topic %q: the name is empty or defined by the core protocol", member))
	case t.Method == "" || t.Open == nil || t.Params == nil:
		panic(fmt.Sprintf("mcp: topic %q: Method, Open and Params must be set", member))
	}
	if _, taken := wire.Latest().Method(t.Method); taken {
		panic(fmt.Sprintf("mcp: topic %q: the core protocol defines the method %q", member, t.Method))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.topics.Load()
	if _, taken := old[member]; taken {
		panic(fmt.Sprintf("mcp: topic %q exists already", member))
	}
	topics := maps.Clone(old)
	topics[member] = t
	s.topics.Store(&topics)
}

// topicSubscriptions are the topics of a subscription; nil is an empty set.
type topicSubscriptions struct {
	req    *Request
	sub    *subscription
	ctx    context.Context // ends with the subscription
	cancel context.CancelFunc
	sender topicSender
	agreed map[topicValue]struct{} // in a Broadcaster

	mu      sync.Mutex // guards the fields below
	open    []*topicSubscription
	ended   bool
	lost    bool       // a change was dropped because there are too many
	keys    []topicKey // the changes to send, in order
	bytes   int        // the length of their keys
	pending map[topicKey]struct{}
	sending bool // a goroutine is sending
}

type topicSubscription struct {
	Topic
	stop   func() // may be nil
	closed bool   // guarded by the mutex of topicSubscriptions
}

type topicKey struct {
	topic *topicSubscription
	key   string
}

type topicSender struct {
	wake   func(*topicSubscriptions) // starts sending; called without the lock, does not block
	notify func(ctx context.Context, method string, params json.RawMessage) error
}

func newTopicSubscriptions(
	ctx context.Context, req *Request, sub *subscription, sender topicSender,
) *topicSubscriptions {
	o := &topicSubscriptions{req: req, sub: sub, sender: sender}
	o.ctx, o.cancel = context.WithCancel(ctx)
	return o
}

// openTopics opens the topics of the filter, and leaves in the filter only the members that must be
// acknowledged. Until close, changes are sent to the client.
func (s *Server) openTopics(ctx context.Context, req *Request, sub *subscription, f *SubscriptionFilter,
	sender topicSender) (*topicSubscriptions, error) {
	wanted := f.Topics
	f.Topics = nil
	if len(wanted) == 0 || !req.has(wire.Subscriptions) {
		return nil, nil
	}
	offered := *s.topics.Load()
	var o *topicSubscriptions
	for member, raw := range wanted {
		topic, ok := offered[member]
		if !ok {
			continue // the server does not know the topic
		}
		if o == nil {
			o = newTopicSubscriptions(ctx, req, sub, sender)
		}
		acknowledged, err := o.subscribe(topic, raw)
		if err != nil {
			o.close()
			return nil, err
		}
		if acknowledged != nil {
			put(&f.Topics, member, acknowledged)
		}
	}
	return o, nil
}

// subscribe opens a topic. It returns nil if there is no item to subscribe to.
func (o *topicSubscriptions) subscribe(topic Topic, member json.RawMessage) (acknowledged json.RawMessage, err error) {
	t := &topicSubscription{Topic: topic}
	o.mu.Lock()
	o.open = append(o.open, t)
	o.mu.Unlock()
	acknowledged, err = o.begin(t, member)
	if err == nil && acknowledged == nil {
		o.closeTopic(t)
	}
	return acknowledged, err
}

func (o *topicSubscriptions) begin(t *topicSubscription, member json.RawMessage) (encoded json.RawMessage, err error) {
	defer recovered(o.ctx, o.req.logger(), t.Method, &err)
	acknowledged, stop, err := t.Open(o.ctx, o.req, member, func(key string) { o.changed(topicKey{t, key}) })
	t.stop = stop
	if err != nil || acknowledged == nil {
		return nil, err
	}
	encoded, err = jsonv2.Marshal(acknowledged, deterministic)
	if err != nil {
		return nil, fmt.Errorf("topic %q: encode the acknowledgement: %w", t.Method, err)
	}
	return encoded, nil
}

// closeTopic closes a topic without an item to subscribe to.
func (o *topicSubscriptions) closeTopic(t *topicSubscription) {
	o.mu.Lock()
	t.closed = true
	o.open = slices.DeleteFunc(o.open, func(other *topicSubscription) bool { return other == t })
	o.keys = slices.DeleteFunc(o.keys, func(k topicKey) bool {
		if k.topic == t {
			o.bytes -= len(k.key)
		}
		return k.topic == t
	})
	maps.DeleteFunc(o.pending, func(k topicKey, _ struct{}) bool { return k.topic == t })
	o.mu.Unlock()
	o.stop(t)
}

func (o *topicSubscriptions) changed(k topicKey) {
	if o.record(k) {
		o.sender.wake(o)
	}
}

// record adds changes to send, each once, so that a slow client does not use up memory.
func (o *topicSubscriptions) record(keys ...topicKey) (recorded bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range keys {
		if o.ended || k.topic.closed {
			return false
		}
		if _, ok := o.pending[k]; ok {
			continue
		}
		if len(o.keys) == maxTopicKeys || len(o.keys) > 0 && o.bytes+len(k.key) > maxTopicKeyBytes {
			if !o.lost {
				o.lost = true
				o.req.logger().WarnContext(o.ctx, "mcp: changes dropped: the client does not read its notifications",
					"method", k.topic.Method, "pending", len(o.keys))
			}
			return false
		}
		put(&o.pending, k, struct{}{})
		o.keys = append(o.keys, k)
		o.bytes += len(k.key)
	}
	return true
}

// send sends the recorded changes. It records changes again that could not be sent.
func (o *topicSubscriptions) send(ctx context.Context) error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	keys := o.keys
	o.keys, o.pending, o.bytes, o.lost = nil, nil, 0, false
	o.mu.Unlock()
	for i, k := range keys {
		params, err := k.params(ctx, o.req)
		if err != nil {
			o.req.logger().ErrorContext(ctx, "mcp: no notification of a change", "method", k.topic.Method, "error", err)
		}
		if params == nil {
			continue
		}
		if err := o.sender.notify(ctx, k.topic.Method, o.sub.tag(params)); err != nil {
			o.record(keys[i:]...)
			return err
		}
	}
	return nil
}

// sendInBackground starts a goroutine that sends, unless it is running already, so that the caller
// does not wait. The goroutine ends when all changes are sent, when the stream is closed, and soon
// after the subscription.
func (o *topicSubscriptions) sendInBackground() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sending {
		return
	}
	o.sending = true
	go func() {
		for o.hasMore() {
			if o.send(o.ctx) != nil {
				o.pause() // the owner of the stream ends the subscription
				return
			}
		}
	}()
}

// hasMore reports whether there are changes to send. If not, the sending goroutine ends.
func (o *topicSubscriptions) hasMore() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sending = len(o.keys) > 0
	return o.sending
}

// pause leaves the recorded changes to the next change.
func (o *topicSubscriptions) pause() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sending = false
}

func (k topicKey) params(ctx context.Context, req *Request) (params json.RawMessage, err error) {
	defer recovered(ctx, req.logger(), k.topic.Method, &err)
	params, err = k.topic.Params(ctx, req, k.key)
	if err != nil || params == nil {
		return nil, err
	}
	if err := jsonscan.Valid(params, jsonscan.Limits{}); err != nil || jsonscan.Kind(params) != '{' {
		return nil, fmt.Errorf("invalid params %.64q: must be a JSON object", []byte(params))
	}
	return params, nil
}

// tag returns the params of a notification with the subscription's id in `_meta`.
func (s *subscription) tag(params json.RawMessage) json.RawMessage {
	id := append([]byte(`"`+wire.MetaSubscriptionID+`":`), s.id...)
	b := append(append(make([]byte, 0, len(params)+len(id)+len(`"_meta":{},`)), `{"_meta":{`...), id...)
	meta, _ := jsonscan.Get(params, "_meta")
	b = append(append(b, forward.Members(meta, wire.MetaSubscriptionID)...), '}')
	return append(append(b, forward.Members(params, "_meta")...), '}')
}

func (o *topicSubscriptions) close() {
	if o == nil {
		return
	}
	o.mu.Lock()
	open := o.open
	o.ended, o.open, o.keys, o.pending, o.bytes = true, nil, nil, nil, 0
	o.mu.Unlock()
	o.cancel()
	for _, t := range open {
		o.stop(t)
	}
}

func (o *topicSubscriptions) stop(t *topicSubscription) {
	if t.stop == nil {
		return
	}
	var err error // of a panic, which recovered logs
	defer recovered(o.ctx, o.req.logger(), t.Method, &err)
	t.stop()
}
