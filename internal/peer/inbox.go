package peer

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
)

const (
	// maxInbox is the number of queued notifications of a request: more than a well-behaved
	// server sends in a second.
	maxInbox = 10_000
	// maxInboxBytes is the size of their params in all, so that a server cannot fill the memory of
	// a slow client.
	maxInboxBytes = 16 << 20
)

// A Receiver receives notifications. It must not panic.
type Receiver interface {
	Receive(method string, params json.RawMessage)
}

// A ReceiverFunc is a function that is a [Receiver].
type ReceiverFunc func(method string, params json.RawMessage)

// Receive calls f.
func (f ReceiverFunc) Receive(method string, params json.RawMessage) { f(method, params) }

// An Inbox queues notifications between the reader of the connection, which must not block, and its
// receiver, which may. It passes them on in order, on a goroutine that exists while the queue is
// not empty.
type Inbox struct {
	Log      *slog.Logger
	Receiver Receiver

	mu      sync.Mutex // guards the fields below
	queued  []notification
	bytes   int
	dropped bool // at least one
	running bool
	closed  bool
	idle    chan struct{} // closed when the goroutine ends; nil before it starts
}

type notification struct {
	method string
	params json.RawMessage
}

// Put queues a notification, or drops it if too many wait. It does not block and returns nil.
func (b *Inbox) Put(_ context.Context, method string, params json.RawMessage) error {
	b.Offer(method, params)
	return nil
}

// Offer queues a notification as Put does, and returns false if it drops the notification because too many wait.
func (b *Inbox) Offer(method string, params json.RawMessage) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return true // too late
	}
	if len(b.queued) >= maxInbox || b.bytes+len(params) > maxInboxBytes {
		if !b.dropped {
			b.dropped = true
			b.Log.Warn("mcp: notifications dropped: they arrive faster than they are handled", "method", method)
		}
		return false
	}
	b.queued = append(b.queued, notification{method, params})
	b.bytes += len(params)
	if !b.running {
		b.running, b.idle = true, make(chan struct{})
		go b.run(b.idle)
	}
	return true
}

func (b *Inbox) run(idle chan<- struct{}) {
	defer close(idle)
	for {
		b.mu.Lock()
		if len(b.queued) == 0 {
			b.running = false
			b.mu.Unlock()
			return
		}
		n := b.queued[0]
		b.queued[0] = notification{}
		b.queued, b.bytes = b.queued[1:], b.bytes-len(n.params)
		b.mu.Unlock()
		b.Receiver.Receive(n.method, n.params)
	}
}

// Close discards queued and later notifications. It does not wait for the receiver.
func (b *Inbox) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.queued, b.bytes = true, nil, 0
}

// Drain waits until the queue is empty or ctx ends.
func (b *Inbox) Drain(ctx context.Context) {
	b.mu.Lock()
	idle := b.idle
	b.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
