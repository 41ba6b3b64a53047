package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/patchbay-mcp/patchbay/replica"
)

const (
	// maxPayload and maxTopic limit a message and the name of a topic, in bytes.
	maxPayload, maxTopic = 1 << 20, 1 << 10
	// maxQueue and maxQueueBytes limit the messages of a topic that arrived and were not delivered yet.
	maxQueue, maxQueueBytes = 4 << 10, 4 << 20
)

type bus struct{ *Store }

// Bus returns a bus that uses channels of the server: sharded channels in a Cluster, which must run
// Redis 7 or later, and ordinary channels otherwise. Publish counts the subscribers of a process as
// a single subscriber. Subscribers receive a nil payload after the connection broke and works again,
// and if a receiver is so slow that more than 4,096 messages or 4 MiB of a topic wait.
func (s *Store) Bus() replica.Bus { return bus{s} }

// channel returns the channel of a topic. The databases of a server share their channels.
func (b bus) channel(topic string) (string, error) {
	if len(topic) > maxTopic {
		return "", fmt.Errorf("redis: invalid topic of %d bytes: must have at most %d", len(topic), maxTopic)
	}
	return b.opts.Prefix + ":bus:" + strconv.Itoa(b.option.SelectDB) + ":" + topic, nil
}

func (b bus) Publish(ctx context.Context, topic string, payload []byte) (receivers int, err error) {
	channel, err := b.channel(topic)
	if err != nil {
		return 0, err
	}
	if len(payload) > maxPayload {
		return 0, fmt.Errorf("redis: invalid payload of %d bytes: must have at most %d", len(payload), maxPayload)
	}
	reply, err := b.do(ctx, "publish", len(payload), func(ctx context.Context) rueidis.RedisResult {
		command := b.client.B().Publish().Channel(channel).Message(string(payload)).Build()
		if isCluster(b.client) {
			command = b.client.B().Spublish().Channel(channel).Message(string(payload)).Build()
		}
		return b.client.Do(ctx, command)
	})
	if err != nil {
		return 0, err
	}
	n, err := reply.AsInt64()
	return int(n), err
}

func isCluster(c rueidis.Client) bool { return c.Mode() == rueidis.ClientModeCluster }

// A topic is a subscription to a channel. The mutex of push guards the fields after push.
type topic struct {
	channel string
	client  rueidis.Client
	push    *push

	subscribers map[*func(payload []byte)]bool
	confirmed   chan struct{} // closed when the server has confirmed the subscription
	err         error         // why the server did not
	cancel      context.CancelFunc
	queue       [][]byte // arrived and not delivered yet
	size        int      // bytes of queue
	delivering  bool
}

func (b bus) Subscribe(ctx context.Context, name string, receive func(payload []byte)) (stop func(), err error) {
	channel, err := b.channel(name)
	if err != nil {
		return nil, err
	}
	store, err := b.push.open(ctx)
	if err != nil {
		return nil, err
	}
	p := b.push
	p.mu.Lock()
	t := p.topics[channel]
	if t == nil {
		t = &topic{channel: channel, client: store.client, push: p, subscribers: map[*func([]byte)]bool{},
			confirmed: make(chan struct{}), cancel: func() {}}
		p.topics[channel] = t
		p.begin(t.run)
	}
	t.subscribers[&receive] = true
	confirmed := t.confirmed
	p.mu.Unlock()
	_, err = b.do(ctx, "subscribe", 0, func(ctx context.Context) rueidis.RedisResult {
		var none error
		result := wait(ctx, confirmed, &none)
		p.mu.Lock()
		defer p.mu.Unlock()
		if result.Error() != nil && t.err != nil {
			return rueidis.NewErrorResult(t.err)
		}
		return result
	})
	if err != nil {
		t.stop(&receive)
		return nil, err
	}
	return func() { t.stop(&receive) }, nil
}

func (t *topic) stop(receive *func(payload []byte)) {
	t.push.mu.Lock()
	defer t.push.mu.Unlock()
	known := t.subscribers[receive]
	delete(t.subscribers, receive)
	if known && len(t.subscribers) == 0 {
		t.cancel()
		t.confirmed, t.queue, t.size = make(chan struct{}), nil, 0
	}
}

// run subscribes to the channel, again after each failure, until nobody subscribes to the topic.
func (t *topic) run() {
	for t.subscribe() {
	}
}

// subscribe receives messages until the subscription ends. It reports whether to subscribe again.
func (t *topic) subscribe() bool {
	ctx, cancel := context.WithCancel(t.push.ctx)
	defer cancel()
	t.push.mu.Lock()
	again := len(t.subscribers) > 0 && ctx.Err() == nil
	if !again {
		delete(t.push.topics, t.channel)
	}
	t.cancel = cancel
	t.push.mu.Unlock()
	if !again {
		return false
	}
	command := t.client.B().Subscribe().Channel(t.channel).Build()
	if isCluster(t.client) {
		command = t.client.B().Ssubscribe().Channel(t.channel).Build()
	}
	err := t.client.Receive(rueidis.WithOnSubscriptionHook(ctx, t.confirm), command,
		func(m rueidis.PubSubMessage) { t.arrived([]byte(m.Message)) })
	t.push.mu.Lock()
	t.err = err
	t.push.mu.Unlock()
	select {
	case <-time.After(repairPause):
	case <-ctx.Done():
		t.unsubscribe()
	}
	return true
}

func (t *topic) unsubscribe() {
	ctx, cancel := context.WithTimeout(t.push.ctx, t.push.main.opts.Timeout)
	defer cancel()
	command := t.client.B().Unsubscribe().Channel(t.channel).Build()
	if isCluster(t.client) {
		command = t.client.B().Sunsubscribe().Channel(t.channel).Build()
	}
	_ = t.client.Do(ctx, command).Error() // after an error, the connection ends or sends the command late
}

// confirm is called after each subscription. After a second subscription, messages may be lost.
func (t *topic) confirm(s rueidis.PubSubSubscription) {
	if s.Kind != "subscribe" && s.Kind != "ssubscribe" {
		return
	}
	t.push.mu.Lock()
	again := false
	select {
	case <-t.confirmed:
		again = true
	default:
		close(t.confirmed)
	}
	t.push.mu.Unlock()
	if again {
		t.arrived(nil)
	}
}

// arrived appends a payload to the queue of the topic. A nil payload means that messages were lost.
func (t *topic) arrived(payload []byte) {
	t.push.mu.Lock()
	defer t.push.mu.Unlock()
	if len(t.queue) >= maxQueue || t.size+len(payload) > maxQueueBytes {
		payload = nil
	}
	if n := len(t.queue); payload == nil && n > 0 && t.queue[n-1] == nil || len(t.subscribers) == 0 {
		return
	}
	t.queue = append(t.queue, payload)
	t.size += len(payload)
	if !t.delivering {
		t.delivering = true
		t.push.begin(t.deliver)
	}
}

// deliver passes the messages of the queue to all subscribers.
func (t *topic) deliver() {
	for {
		t.push.mu.Lock()
		queue, receivers := t.queue, slices.Collect(maps.Keys(t.subscribers))
		t.queue, t.size = nil, 0
		t.delivering = len(queue) > 0
		t.push.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		for _, payload := range queue {
			for _, receive := range receivers {
				(*receive)(payload)
			}
		}
	}
}
