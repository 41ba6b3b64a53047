package mcp

import (
	"context"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// maxBatch is the number of bytes at which a batch is written at once, and the largest buffer
	// that is kept for the next one.
	maxBatch = 64 << 10
	// batchDelay is how long a response waits for the responses to requests that arrived together
	// with its own.
	batchDelay = 500 * time.Microsecond
	// minUncopied is the length from which a line is not copied into the buffer of its batch.
	minUncopied = 16 << 10
)

// A writeQueue holds the responses of a stream that have not been written. They are written
// together: for a small request the write is half of the cost. They wait while requests that have
// arrived already are served. If one of these takes long, the goroutine that was woken to read
// writes the queue.
type writeQueue struct {
	mu     sync.Mutex // guards the fields below
	queued *batch     // nil for none
	free   *batch     // empty, for reuse
}

// A queuedResponse is a response as a line or, for a Conn that is not a lineConn, as a message.
type queuedResponse struct {
	call    *peer.Call // ends when the response is written, and decides whether it is; nil for none
	size    int        // of its line within the lines of the batch
	line    []byte     // a long line, which is not in the batch
	message *jsonrpc.Message
}

// A batch is the responses that are written together.
type batch struct {
	responses []queuedResponse
	lines     []byte
	since     time.Time // when the first response was added
	uncalled  int       // responses without a call
	claimed   bool      // a goroutine is about to write the batch
}

// add adds a response. It returns the memory of its line for reuse, or nil if the batch keeps it.
func (q *writeQueue) add(r queuedResponse) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queued == nil {
		q.queued, q.free = q.free, nil
		if q.queued == nil {
			q.queued = &batch{}
		}
		q.queued.since = time.Now()
	}
	b, buf := q.queued, r.line
	if len(r.line) < minUncopied {
		b.lines = append(b.lines, r.line...)
		r.size, r.line = len(r.line), nil
	} else {
		buf = nil
	}
	if r.call == nil {
		b.uncalled++
	}
	b.responses = append(b.responses, r)
	return buf
}

// unclaimed reports whether a batch waits that no goroutine is about to write, and whether it must
// wait no longer.
func (q *writeQueue) unclaimed() (waits, overdue bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.queued
	if b == nil || b.claimed {
		return false, false
	}
	return true, len(b.lines) >= maxBatch || time.Since(b.since) > batchDelay
}

// uncalled returns the number of queued responses that have no call.
func (q *writeQueue) uncalled() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queued == nil {
		return 0
	}
	return q.queued.uncalled
}

// claim reports whether the caller has to write the queue.
func (q *writeQueue) claim() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queued == nil || q.queued.claimed {
		return false
	}
	q.queued.claimed = true
	return true
}

// removeAll removes and returns the batch, or nil. The caller returns it with recycle.
func (q *writeQueue) removeAll() *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.queued
	q.queued = nil
	return b
}

// recycle keeps the memory of a batch for the next one.
func (q *writeQueue) recycle(b *batch) {
	clear(b.responses)
	*b = batch{responses: b.responses[:0], lines: b.lines[:0]}
	if cap(b.lines) > maxBatch {
		b.lines = nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free = b
}

// enqueue queues the response to a call, which may be nil. A nil response is ignored. It returns
// buf, which is used for the line.
func (s *stream) enqueue(call *peer.Call, response *jsonrpc.Message, buf []byte) []byte {
	switch {
	case response == nil:
		return buf
	case s.lines == nil:
		s.queue.add(queuedResponse{call: call, message: response})
		return buf
	}
	return s.queue.add(queuedResponse{call: call, line: append(jsonrpc.Append(buf[:0], response), '\n')})
}

// enqueueUncalled queues a response that has no call. A nil response is ignored.
func (s *stream) enqueueUncalled(response *jsonrpc.Message) { s.enqueue(nil, response, nil) }

// flush writes the queue, unless another goroutine is about to.
func (s *stream) flush() {
	if s.queue.claim() {
		s.writeQueued(s.ctx)
	}
}

// writeQueued writes the queue. Ending a call and writing its response are one step under the write
// lock: a client may reuse the id after it has read the response, and gets no response to a request
// that it cancelled before that.
func (s *stream) writeQueued(ctx context.Context) {
	if s.lock(ctx) == nil {
		defer s.unlock()
	} else if s.ctx.Err() == nil {
		return // the goroutines that added the responses write them
	}
	b := s.queue.removeAll()
	if b == nil {
		return
	}
	defer s.queue.recycle(b)
	// Offsets in the lines: the next one, and the end and start of those to write. Wanted lines
	// move up over unwanted ones.
	next, end, start := 0, 0, 0
	for _, r := range b.responses {
		wanted := r.call == nil || r.call.End()
		line := b.lines[next : next+r.size]
		next += r.size
		switch {
		case !wanted:
		case r.message != nil:
			_ = s.send(r.message) // fails only if the stream has ended
		case r.line != nil:
			s.sendLines(b.lines[start:end])
			s.sendLines(r.line)
			start = end
		default:
			end += copy(b.lines[end:], line)
		}
	}
	s.sendLines(b.lines[start:end])
}
