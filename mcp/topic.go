package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// maxTopicKeys bounds how many changed things of all topics wait for one slow client: some more than a filter of the
// largest size can name.
const maxTopicKeys = 20_000

// A Topic is what an extension lets clients listen to with subscriptions/listen, beside the changes of the core protocol.
// Its functions are called from many goroutines at once; a panic in them is contained. Sessions, which came before
// subscriptions, have no topics.
//
// Spec: basic/patterns/subscriptions (2026-07-28), Extensions.
type Topic struct {
	// Method is that of the notifications, such as "notifications/tasks".
	Method string
	// Open begins a subscription: member is the topic's member of the client's filter, any JSON. What it gives is
	// acknowledged to the client under the same name; nil is that there is nothing to listen to, and the member is left
	// out. An error ends the request.
	//
	// From then on, also before Open returns, changed(key) is called whenever the thing named key has become another
	// one. It may be called from any goroutine and with locks held: it waits for nothing, and calls neither Open nor
	// Params. Changes of one thing that the client was not told of yet are told once. After the subscription has ended,
	// changed does nothing.
	//
	// The server calls stop once, when the subscription has ended; it may be nil. The context ends with the subscription.
	Open func(ctx context.Context, req *Request, member json.RawMessage, changed func(key string)) (acknowledged any, stop func(), err error)
	// Params returns the params of the notification that tells how the thing is now: a JSON object, to which the server
	// adds the id of the subscription. Nil tells nothing; so does an error, which is logged. It is called when the client
	// can be told, on a goroutine that belongs to the subscription.
	Params func(ctx context.Context, req *Request, key string) (json.RawMessage, error)
}

// AddTopic lets clients listen to what an extension tells of. The member is the name that the topic has in the filter of
// subscriptions/listen, such as "taskIds". It panics if the name is taken, or the core protocol's, or if the topic lacks
// something.
func (s *Server) AddTopic(member string, t Topic) {
	switch {
	case member == "" || coreFilter(member):
		panic(fmt.Sprintf("mcp: topic %q: the core protocol has this member", member))
	case t.Method == "" || t.Open == nil || t.Params == nil:
		panic(fmt.Sprintf("mcp: topic %q: Method, Open and Params are needed", member))
	}
	if _, taken := wire.Latest().Method(t.Method); taken {
		panic(fmt.Sprintf("mcp: topic %q: the method %q is the core protocol's", member, t.Method))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.topics.Load()
	if _, taken := old[member]; taken {
		panic(fmt.Sprintf("mcp: topic %q is there already", member))
	}
	topics := make(map[string]Topic, len(old)+1)
	for k, v := range old {
		topics[k] = v
	}
	topics[member] = t
	s.topics.Store(&topics)
}

// subscribedTopics is the topics of one subscription. A nil one has none.
type subscribedTopics struct {
	server *Server
	req    *Request
	sub    *subscription
	ctx    context.Context // ends with the subscription
	cancel context.CancelFunc
	way    topicWay

	mu     sync.Mutex // guards the fields below
	open   []*subscribedTopic
	ended  bool
	lost   bool       // more has changed than is kept
	keys   []topicKey // what has changed, in that order
	noted  map[topicKey]struct{}
	sender bool // a goroutine sends
}

// A subscribedTopic is one of them.
type subscribedTopic struct {
	Topic
	stop    func() // nil for none
	refused bool   // nothing is told of it; guarded by the lock of all
}

// A topicKey names a thing of a topic.
type topicKey struct {
	topic *subscribedTopic
	key   string
}

// A topicWay is how a subscription is told of changes.
type topicWay struct {
	wake   func(*subscribedTopics) // called without the lock when there is something to send; does not block
	notify func(ctx context.Context, method string, params json.RawMessage) error
}

// openTopics opens the topics that the filter asks for, and leaves in it what was agreed to. From then on the client is
// told of changes, until close.
func (s *Server) openTopics(ctx context.Context, req *Request, sub *subscription, f *Filter, way topicWay) (*subscribedTopics, error) {
	wanted := f.Topics
	f.Topics = nil
	if len(wanted) == 0 || !req.has(wire.Subscriptions) {
		return nil, nil
	}
	offered := *s.topics.Load()
	var o *subscribedTopics
	for member, raw := range wanted {
		topic, ok := offered[member]
		if !ok {
			continue // clients may ask for what this server has never heard of
		}
		if o == nil {
			o = &subscribedTopics{server: s, req: req, sub: sub, way: way}
			o.ctx, o.cancel = context.WithCancel(ctx)
		}
		agreed, err := o.subscribe(topic, raw)
		if err != nil {
			o.close()
			return nil, err
		}
		if agreed != nil {
			put(&f.Topics, member, agreed)
		}
	}
	return o, nil
}

// subscribe opens one topic. It gives nil if the topic has nothing to tell.
func (o *subscribedTopics) subscribe(topic Topic, member json.RawMessage) (agreed json.RawMessage, err error) {
	t := &subscribedTopic{Topic: topic}
	o.mu.Lock()
	o.open = append(o.open, t)
	o.mu.Unlock()
	agreed, err = o.begin(t, member)
	if err == nil && agreed == nil {
		o.refuse(t)
	}
	return agreed, err
}

// begin calls the topic, which is the user's.
func (o *subscribedTopics) begin(t *subscribedTopic, member json.RawMessage) (agreed json.RawMessage, err error) {
	defer recovered(o.ctx, o.server.log, t.Method, &err)
	acknowledged, stop, err := t.Open(o.ctx, o.req, member, func(key string) { o.changed(topicKey{t, key}) })
	t.stop = stop
	if err != nil || acknowledged == nil {
		return nil, err
	}
	agreed, err = jsonv2.Marshal(acknowledged, deterministic)
	if err != nil {
		return nil, fmt.Errorf("topic %q: what is acknowledged: %w", t.Method, err)
	}
	return agreed, nil
}

// refuse ends a topic that has nothing to tell.
func (o *subscribedTopics) refuse(t *subscribedTopic) {
	o.mu.Lock()
	t.refused = true
	o.open = slices.DeleteFunc(o.open, func(other *subscribedTopic) bool { return other == t })
	o.keys = slices.DeleteFunc(o.keys, func(k topicKey) bool { return k.topic == t })
	maps.DeleteFunc(o.noted, func(k topicKey, _ struct{}) bool { return k.topic == t })
	o.mu.Unlock()
	o.stop(t)
}

// changed notes a thing until it is told of.
func (o *subscribedTopics) changed(k topicKey) {
	if o.note(k) {
		o.way.wake(o)
	}
}

// note keeps what has changed until it is sent. What is noted already is not noted again, so a slow reader costs no memory.
func (o *subscribedTopics) note(keys ...topicKey) (noted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range keys {
		if o.ended || k.topic.refused {
			return false
		}
		if _, noted := o.noted[k]; noted {
			continue
		}
		if len(o.keys) == maxTopicKeys {
			if !o.lost {
				o.lost = true
				o.server.log.WarnContext(o.ctx, "mcp: changes are lost to a client that does not read", "method", k.topic.Method, "waiting", maxTopicKeys)
			}
			return false
		}
		put(&o.noted, k, struct{}{})
		o.keys = append(o.keys, k)
	}
	return true
}

func (o *subscribedTopics) take() []topicKey {
	o.mu.Lock()
	defer o.mu.Unlock()
	keys := o.keys
	o.keys, o.noted, o.lost = nil, nil, false
	return keys
}

// send tells of what has changed since the last time. What could not be written stays noted.
func (o *subscribedTopics) send(ctx context.Context) error {
	if o == nil {
		return nil
	}
	keys := o.take()
	for i, k := range keys {
		params, err := k.params(ctx, o.req)
		if err != nil {
			o.server.log.ErrorContext(ctx, "mcp: a change cannot be told of", "method", k.topic.Method, "error", err)
		}
		if params == nil {
			continue
		}
		if err := o.way.notify(ctx, k.topic.Method, o.sub.tag(params)); err != nil {
			o.note(keys[i:]...)
			return err
		}
	}
	return nil
}

// sendApart has a goroutine send, unless one does: whoever has made a change does not wait for what is told of it. It ends
// when all has been told, when the stream is gone, and soon after the subscription.
func (o *subscribedTopics) sendApart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sender {
		return
	}
	o.sender = true
	go func() {
		for o.sending() {
			if o.send(o.ctx) != nil {
				o.pause() // the owner of the stream ends the subscription
				return
			}
		}
	}()
}

// sending reports whether there is something to send. If there is not, nobody sends any more.
func (o *subscribedTopics) sending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sender = len(o.keys) > 0
	return o.sender
}

// pause leaves what is noted to the next change.
func (o *subscribedTopics) pause() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sender = false
}

// params returns what is told of a thing.
func (k topicKey) params(ctx context.Context, req *Request) (params json.RawMessage, err error) {
	defer recovered(ctx, req.logger(), k.topic.Method, &err)
	params, err = k.topic.Params(ctx, req, k.key)
	if err != nil || params == nil {
		return nil, err
	}
	if err := jsonscan.Valid(params, jsonscan.Limits{}); err != nil || jsonscan.Kind(params) != '{' {
		return nil, fmt.Errorf("the params are no JSON object: %.64q", []byte(params))
	}
	return params, nil
}

// tag adds the subscription's id to the params of a notification.
func (s *subscription) tag(params json.RawMessage) json.RawMessage {
	id := append([]byte(`"`+wire.MetaSubscriptionID+`":`), s.id...)
	b := append(append(make([]byte, 0, len(params)+len(id)+len(`"_meta":{},`)), `{"_meta":{`...), id...)
	meta, _ := jsonscan.Get(params, "_meta")
	for key, value := range jsonscan.Members(meta) {
		if string(key) != wire.MetaSubscriptionID {
			b = append(append(jsonscan.AppendQuote(append(b, ','), string(key)), ':'), value...)
		}
	}
	b = append(b, '}')
	for key, value := range jsonscan.Members(params) {
		if string(key) != "_meta" {
			b = append(append(jsonscan.AppendQuote(append(b, ','), string(key)), ':'), value...)
		}
	}
	return append(b, '}')
}

// close ends the topics of a subscription.
func (o *subscribedTopics) close() {
	if o == nil {
		return
	}
	o.mu.Lock()
	open := o.open
	o.ended, o.open, o.keys, o.noted = true, nil, nil, nil
	o.mu.Unlock()
	o.cancel()
	for _, t := range open {
		o.stop(t)
	}
}

// stop tells a topic that nobody listens any more.
func (o *subscribedTopics) stop(t *subscribedTopic) {
	if t.stop == nil {
		return
	}
	var err error // it is logged where it happens
	defer recovered(o.ctx, o.server.log, t.Method, &err)
	t.stop()
}
