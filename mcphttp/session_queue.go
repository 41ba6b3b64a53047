package mcphttp

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Limits of the messages in a queue, in bytes.
const (
	// maxQueued is for a connected client: it reads, or is disconnected after the write timeout.
	maxQueued = 1 << 20
	// maxQueuedOffline is for a client that is not connected and may never come back.
	maxQueuedOffline = 64 << 10
	// maxWaiting is for the messages that wait for space in the queue. A response above it is
	// replaced by an error.
	maxWaiting = 16 << 20
)

// minCounted is the size up to which a queue is not counted as unread output. Nearly all messages leave
// a queue at once.
const minCounted = 4 << 10

// maxReusedLen is the capacity up to which the slice of a queue is used again.
const maxReusedLen = 8

// A messageQueue holds messages for the goroutine that writes them to a stream.
type messageQueue struct {
	consumer consumer
	unread   *unreadOutput
	output   output      // the messages that are queued, being written, or waiting
	lossy    atomic.Bool // messages were discarded

	mu       sync.Mutex // guards the fields below
	messages [][]byte
	size     int // bytes
	drained  int // bytes of the messages that are being written
	waiting  int // bytes of the messages that wait for space
	counted  int // bytes that output contains
	limit    int
	space    chan struct{} // closed when messages were removed; nil if no sender waits
	closed   bool
}

// A consumer is notified by its queue. Its methods must not block.
type consumer interface {
	wake()      // there is a message, or the queue is closed
	interrupt() // the queue overflowed
}

// init prepares an empty queue for the stream of a caller.
func (q *messageQueue) init(to consumer, unread *unreadOutput, c caller) {
	q.consumer, q.unread, q.limit = to, unread, maxQueued
	// The goroutine ends at once. The lock of the queue cannot be taken while another queue grows.
	q.output = output{caller: c, cut: func() { go q.overflow() }}
}

// send adds a message. It waits while the queue is full.
func (q *messageQueue) send(ctx context.Context, m *jsonrpc.Message) error {
	data := jsonrpc.Append(nil, m)
	if added, _, err := q.tryAdd(data); added || err != nil {
		return err
	}
	if !q.wait(len(data)) && m.Kind() == jsonrpc.Response {
		q.wait(-len(data))
		data = jsonrpc.Append(nil, &jsonrpc.Message{ID: m.ID, Error: errUnread})
		q.wait(len(data))
	}
	defer func() { q.wait(-len(data)) }()
	for {
		added, space, err := q.tryAdd(data)
		if added || err != nil {
			return err
		}
		select {
		case <-space:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

var errUnread = &mcp.Error{
	Code:    mcp.CodeInternalError,
	Message: "the response was discarded because too many responses of the session are unread",
}

// wait adds n bytes to the bytes that wait for space; n may be negative. It reports whether they
// are within the limit.
func (q *messageQueue) wait(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting += n
	q.count()
	return q.waiting <= maxWaiting
}

func (q *messageQueue) tryAdd(data []byte) (added bool, space <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return false, nil, mcp.ErrClosed
	case q.fits(data):
		q.add(data)
		return true, nil, nil
	case q.space == nil:
		q.space = make(chan struct{})
	}
	return false, q.space, nil
}

// sendNow adds a message without blocking. If the queue is full it is emptied and closed: messages
// after a gap are useless. The data must not change afterwards.
func (q *messageQueue) sendNow(data []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed && !q.fits(data) {
		q.discard()
		q.consumer.interrupt()
	}
	if q.closed {
		return mcp.ErrClosed
	}
	q.add(data)
	return nil
}

// overflow empties and closes the queue.
func (q *messageQueue) overflow() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.discard()
	q.consumer.interrupt()
}

// discard empties and closes the queue. The caller holds q.mu.
func (q *messageQueue) discard() {
	q.messages, q.size = nil, 0
	q.lossy.Store(true)
	q.shut()
}

// fits reports whether there is space. A message that is larger than the limit is accepted alone.
func (q *messageQueue) fits(data []byte) bool { return q.size == 0 || q.size+len(data) <= q.limit }

func (q *messageQueue) add(data []byte) {
	q.messages = append(q.messages, data)
	q.size += len(data)
	q.count()
	q.consumer.wake()
}

// drain returns all messages, and whether more can follow. The slice that drain returned before may
// be passed to it for reuse.
func (q *messageQueue) drain(before [][]byte) (messages [][]byte, more bool) {
	clear(before)
	q.mu.Lock()
	defer q.mu.Unlock()
	messages = q.messages
	q.messages, q.size, q.drained = nil, 0, q.drained+q.size
	if cap(before) <= maxReusedLen {
		q.messages = before[:0]
	}
	q.wakeSenders()
	return messages, !q.closed
}

// written records that the drained messages have been written.
func (q *messageQueue) written() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drained = 0
	q.count()
}

// count updates the unread output. The caller holds q.mu.
func (q *messageQueue) count() {
	n := q.size + q.drained + q.waiting
	if n <= minCounted {
		n = 0
	}
	if n != q.counted {
		q.unread.add(&q.output, int64(n-q.counted))
		q.counted = n
	}
}

// setLimit changes the limit. A queue that exceeds it is emptied and closed, as by sendNow.
func (q *messageQueue) setLimit(limit int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limit = limit
	if q.size > limit {
		q.discard()
	}
}

// close refuses further messages. Queued messages can still be drained.
func (q *messageQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shut()
}

func (q *messageQueue) shut() {
	q.closed = true
	q.unread.remove(&q.output)
	q.wakeSenders()
	q.consumer.wake()
}

func (q *messageQueue) wakeSenders() {
	if q.space != nil {
		close(q.space)
		q.space = nil
	}
}

func (q *messageQueue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// maxCachedChange bounds the notification that is cached, in bytes: it stays until the next
// notification.
const maxCachedChange = 16 << 10

// An encodedChange is the last notification of a change and its encoding.
type encodedChange struct {
	message *jsonrpc.Message
	data    []byte
}

// changesTo returns a stream that adds notifications of changes to the queue and never blocks.
func (t *sessions) changesTo(q *messageQueue) legacy.Stream {
	return func(_ context.Context, m *jsonrpc.Message) error { return q.sendNow(t.encodeChange(m)) }
}

// encodeChange encodes a notification once for all sessions. All sessions are sent the same
// message, one after the other, and it does not change.
func (t *sessions) encodeChange(m *jsonrpc.Message) []byte {
	if last := t.change.Load(); last != nil && last.message == m {
		return last.data
	}
	data := jsonrpc.Append(nil, m)
	if len(data) <= maxCachedChange {
		t.change.Store(&encodedChange{m, data})
	}
	return data
}
