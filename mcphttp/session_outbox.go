package mcphttp

import (
	"context"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Bounds of what waits in an outbox, in bytes.
const (
	// maxUnsent is for a client that is connected: it is reading, or will count as gone after the write timeout.
	maxUnsent = 1 << 20
	// maxParked is for a client that is not connected and may never be again.
	maxParked = 64 << 10
)

// maxSpare is how many messages an empty outbox keeps room for.
const maxSpare = 8

// An outbox is where messages wait for the one goroutine that writes them, so that whoever sends need not.
type outbox struct {
	taker taker

	mu     sync.Mutex // guards the fields below
	queue  [][]byte
	size   int
	limit  int
	room   chan struct{} // closed when there is room again; nil while nobody waits
	closed bool
}

// A taker is told of its outbox. It must not wait.
type taker interface {
	ring()      // there is something to take, or the box is closed
	interrupt() // the box is full, and the sender cannot wait
}

// send adds a message, and waits while the box is full.
func (o *outbox) send(ctx context.Context, m *jsonrpc.Message) error {
	data := jsonrpc.Append(nil, m)
	for {
		added, room, err := o.tryPut(data)
		if added || err != nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (o *outbox) tryPut(data []byte) (added bool, room <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return false, nil, mcp.ErrClosed
	case o.fits(data):
		o.add(data)
		return true, nil, nil
	case o.room == nil:
		o.room = make(chan struct{})
	}
	return false, o.room, nil
}

// sendNow adds a message without waiting, for whoever must not wait. A box that is full is closed and emptied: what
// comes after a gap is of no use to anyone. The data is not changed any more.
func (o *outbox) sendNow(data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed && !o.fits(data) {
		o.queue, o.size = nil, 0
		o.shut()
		o.taker.interrupt()
	}
	if o.closed {
		return mcp.ErrClosed
	}
	o.add(data)
	return nil
}

// maxRemembered bounds a change that is remembered, in bytes: there is no telling how long.
const maxRemembered = 16 << 10

// An encodedChange is the last change that sessions were told of, and its encoding.
type encodedChange struct {
	message *jsonrpc.Message
	data    []byte
}

// toldTo returns changes a way into an outbox that never waits.
func (t *sessions) toldTo(box *outbox) legacy.Stream {
	return func(_ context.Context, m *jsonrpc.Message) error { return box.sendNow(t.encodeChange(m)) }
}

// encodeChange encodes a change once for all sessions that are told of it, one after the other. They are given the same
// message, which does not change.
func (t *sessions) encodeChange(m *jsonrpc.Message) []byte {
	if last := t.change.Load(); last != nil && last.message == m {
		return last.data
	}
	data := jsonrpc.Append(nil, m)
	if len(data) <= maxRemembered {
		t.change.Store(&encodedChange{m, data})
	}
	return data
}

// fits reports whether there is room. A message that is too large for any room goes alone.
func (o *outbox) fits(data []byte) bool { return o.size == 0 || o.size+len(data) <= o.limit }

func (o *outbox) add(data []byte) {
	o.queue = append(o.queue, data)
	o.size += len(data)
	o.taker.ring()
}

// take returns everything that waits, and whether more can come. What was taken before is over with: its room is used again.
func (o *outbox) take(before [][]byte) (queue [][]byte, more bool) {
	clear(before)
	o.mu.Lock()
	defer o.mu.Unlock()
	queue = o.queue
	o.queue, o.size = nil, 0
	if cap(before) <= maxSpare {
		o.queue = before[:0]
	}
	o.wakeSenders()
	return queue, !o.closed
}

// bound changes how much may wait. A box that holds more already is closed, as by sendNow.
func (o *outbox) bound(limit int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit = limit
	if o.size > limit {
		o.queue, o.size = nil, 0
		o.shut()
	}
}

// close lets nothing more in. What is in it can still be taken.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut()
}

func (o *outbox) shut() {
	o.closed = true
	o.wakeSenders()
	o.taker.ring()
}

func (o *outbox) wakeSenders() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

func (o *outbox) isClosed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}
