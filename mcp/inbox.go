package mcp

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
)

const (
	// maxInbox is the number of notifications of one request that wait for the caller's functions: more than a server
	// that means well sends in a second.
	maxInbox = 10_000
	// maxInboxBytes bounds them all together, so that a server cannot fill the memory of a slow client.
	maxInboxBytes = 16 << 20
)

// An inbox takes notifications from whoever reads the connection, who must not wait, and gives them in order to a
// function of the caller's, which may. It has a goroutine as long as there is something in it.
type inbox struct {
	log  *slog.Logger
	take func(method string, params json.RawMessage)

	mu      sync.Mutex
	waiting []notice
	bytes   int
	dropped int
	running bool
	closed  bool
	idle    chan struct{} // closed when the goroutine ends; nil before the first one
}

// A notice is a notification without its envelope.
type notice struct {
	method string
	params json.RawMessage
}

// put adds a notification. It has the form of [Request.Notify].
func (b *inbox) put(_ context.Context, method string, params json.RawMessage) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil // it comes too late
	}
	if len(b.waiting) >= maxInbox || b.bytes+len(params) > maxInboxBytes {
		if b.dropped++; b.dropped == 1 {
			b.log.Warn("mcp: the server sends notifications faster than they are taken; some are dropped", "method", method)
		}
		return nil
	}
	b.waiting = append(b.waiting, notice{method, params})
	b.bytes += len(params)
	if !b.running {
		b.running, b.idle = true, make(chan struct{})
		go b.run(b.idle)
	}
	return nil
}

func (b *inbox) run(idle chan<- struct{}) {
	defer close(idle)
	for {
		b.mu.Lock()
		if len(b.waiting) == 0 {
			b.running = false
			b.mu.Unlock()
			return
		}
		batch := b.waiting
		b.waiting, b.bytes = nil, 0
		b.mu.Unlock()
		for _, n := range batch {
			if b.isClosed() {
				break
			}
			b.deliver(n)
		}
	}
}

// deliver contains what the caller's function does: its panic must not take the process along.
func (b *inbox) deliver(n notice) {
	var err error
	defer recovered(context.Background(), b.log, n.method, &err)
	b.take(n.method, n.params)
}

// close drops what waits and what still comes. What is being delivered is not waited for.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.waiting, b.bytes = true, nil, 0
}

func (b *inbox) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// drain waits until everything that was put has been taken, or ctx ends.
func (b *inbox) drain(ctx context.Context) {
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
