package linestream

import (
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// MaxBatch is the number of bytes at which a batch is written at once.
	MaxBatch = 64 << 10
	// batchDelay is how long a response waits for the responses to requests that arrived together
	// with its own.
	batchDelay = 500 * time.Microsecond
	// typicalLine is the capacity with which the line of a response is allocated. Lines of up to
	// maxFreeLine are reused, at most maxFreeLines of them.
	typicalLine, maxFreeLine, maxFreeLines = 512, 4 << 10, 64
)

// A Queue holds the responses of a stream that were not written yet. They are written
// together: for a small request the write is half of the cost. They wait while requests that have
// arrived already are served. If such a request takes long, the goroutine that was woken to read
// writes the queue. It is safe for concurrent use.
type Queue struct {
	mu    sync.Mutex // guards the fields below
	batch batch
	free  [][]byte   // lines that were written
	spare []Response // empty, for the next batch
}

// A Response is a queued response: as a line, or as a message for a connection without lines.
type Response struct {
	Call    *peer.Call // ends when the response is written, and decides whether it is; may be nil
	Line    []byte
	Message *jsonrpc.Message
}

type batch struct {
	responses []Response
	size      int       // of the lines
	since     time.Time // when the first response was added
	uncalled  int       // responses without a call
	claimed   bool      // a goroutine is about to write the batch
}

// Add queues a response.
func (q *Queue) Add(r Response) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := &q.batch
	if len(b.responses) == 0 {
		b.since = time.Now()
	}
	if r.Call == nil {
		b.uncalled++
	}
	b.responses, b.size = append(b.responses, r), b.size+len(r.Line)
}

// Unclaimed reports whether a batch waits that no goroutine is about to write, and whether it must
// wait no longer.
func (q *Queue) Unclaimed() (waits, overdue bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := &q.batch
	waits = len(b.responses) > 0 && !b.claimed
	return waits, waits && (b.size >= MaxBatch || time.Since(b.since) > batchDelay)
}

// Uncalled returns the number of queued responses without a call.
func (q *Queue) Uncalled() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.batch.uncalled
}

// Claim reports whether the caller must write the queue, which no other goroutine is about to.
func (q *Queue) Claim() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	claimed := len(q.batch.responses) > 0 && !q.batch.claimed
	q.batch.claimed = q.batch.claimed || claimed
	return claimed
}

// RemoveAll empties the queue and returns its responses.
func (q *Queue) RemoveAll() []Response {
	q.mu.Lock()
	defer q.mu.Unlock()
	responses := q.batch.responses
	q.batch, q.spare = batch{responses: q.spare}, nil
	return responses
}

// NewLine returns an empty buffer for a response.
func (q *Queue) NewLine() []byte {
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

// Recycle keeps the buffers of responses that were written for others.
func (q *Queue) Recycle(responses []Response) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range responses {
		if n := cap(r.Line); n > 0 && n <= maxFreeLine && len(q.free) < maxFreeLines {
			q.free = append(q.free, r.Line)
		}
	}
	clear(responses)
	q.spare = responses[:0]
}
