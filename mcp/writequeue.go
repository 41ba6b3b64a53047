package mcp

import (
	"context"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// maxBatch is the number of bytes at which a batch is written at once.
	maxBatch = 64 << 10
	// batchDelay is how long a response waits for the responses to requests that arrived together
	// with its own.
	batchDelay = 500 * time.Microsecond
	// typicalLine is the capacity with which the line of a response is allocated. Lines of up to
	// maxFreeLine are reused, at most maxFreeLines of them.
	typicalLine, maxFreeLine, maxFreeLines = 512, 4 << 10, 64
)

// A writeQueue holds the responses of a stream that have not been written. They are written
// together: for a small request the write is half of the cost. They wait while requests that have
// arrived already are served. If one of these takes long, the goroutine that was woken to read
// writes the queue.
type writeQueue struct {
	mu    sync.Mutex // guards the fields below
	batch batch
	free  [][]byte // lines that have been written

	written []byte // buffer for the lines of a batch, guarded by the write lock
}

// A queuedResponse is a response as a line or, for a Conn that is not a lineConn, as a message.
type queuedResponse struct {
	call    *peer.Call // ends when the response is written, and decides whether it is; nil for none
	line    []byte
	message *jsonrpc.Message
}

type batch struct {
	responses []queuedResponse
	size      int       // of the lines
	since     time.Time // when the first response was added
	uncalled  int       // responses without a call
	claimed   bool      // a goroutine is about to write the batch
}

func (q *writeQueue) add(r queuedResponse) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := &q.batch
	if len(b.responses) == 0 {
		b.since = time.Now()
	}
	if r.call == nil {
		b.uncalled++
	}
	b.responses, b.size = append(b.responses, r), b.size+len(r.line)
}

// unclaimed reports whether a batch waits that no goroutine is about to write, and whether it must
// wait no longer.
func (q *writeQueue) unclaimed() (waits, overdue bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := &q.batch
	waits = len(b.responses) > 0 && !b.claimed
	return waits, waits && (b.size >= maxBatch || time.Since(b.since) > batchDelay)
}

func (q *writeQueue) uncalled() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.batch.uncalled
}

func (q *writeQueue) claim() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	claimed := len(q.batch.responses) > 0 && !q.batch.claimed
	q.batch.claimed = q.batch.claimed || claimed
	return claimed
}

func (q *writeQueue) removeAll() []queuedResponse {
	q.mu.Lock()
	defer q.mu.Unlock()
	responses := q.batch.responses
	q.batch = batch{}
	return responses
}

func (q *writeQueue) newLine() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.free)
	if n == 0 {
		return make([]byte, 0, typicalLine)
	}
	line := q.free[n-1]
	q.free = q.free[:n-1]
	return line[:0]
}

func (q *writeQueue) recycle(responses []queuedResponse) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range responses {
		if n := cap(r.line); n > 0 && n <= maxFreeLine && len(q.free) < maxFreeLines {
			q.free = append(q.free, r.line)
		}
	}
}

// enqueue queues the response to a call, which may be nil. A nil response is ignored.
func (s *stream) enqueue(call *peer.Call, response *jsonrpc.Message) {
	switch {
	case response == nil:
	case s.lines == nil:
		s.queue.add(queuedResponse{call: call, message: response})
	default:
		s.enqueueLine(call, jsonrpc.Append(s.queue.newLine(), response))
	}
}

// enqueueLine is like enqueue for a response that is encoded already.
func (s *stream) enqueueLine(call *peer.Call, response []byte) {
	s.queue.add(queuedResponse{call: call, line: append(response, '\n')})
}

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
	locked := s.lock(ctx) == nil
	var lines []byte
	if locked {
		defer s.unlock()
		lines = s.queue.written[:0]
	} else if s.ctx.Err() == nil {
		return // the goroutines that added the responses write them
	}
	responses := s.queue.removeAll()
	defer s.queue.recycle(responses)
	for _, r := range responses {
		switch wanted := r.call == nil || r.call.End(); {
		case !wanted:
		case r.message != nil:
			_ = s.send(r.message) // fails only if the stream has ended
		default:
			lines = append(lines, r.line...)
		}
	}
	if locked && cap(lines) <= 2*maxBatch {
		s.queue.written = lines
	}
	if len(lines) == 0 || s.ctx.Err() != nil {
		return
	}
	if err := s.lines.WriteLines(s.ctx, lines); err != nil {
		_ = s.fail(err)
	}
}
