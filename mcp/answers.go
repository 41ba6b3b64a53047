package mcp

import (
	"context"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// keptBuffer is the largest buffer that is kept for later messages, and the size of the largest batch.
	keptBuffer = 64 << 10
	// patience is how long an answer waits for the answers to requests that came in together with it.
	patience = 500 * time.Microsecond
	// ownLine is the length from which a line is not copied to be written together with others.
	ownLine = 16 << 10
)

// answers are the responses of a stream that wait for their turn to be written. All that wait are written at once: to a
// small request the write is half of what it costs. They wait while requests that are here already are served, but no
// longer: when one of these takes its time, the goroutine that is called to read on writes them.
type answers struct {
	mu      sync.Mutex // guards the fields below
	waiting *batch     // nil for none
	spare   *batch     // empty
}

// An answer is the response to a call, as a line or, for a Conn that wants one, a message.
type answer struct {
	call    *peer.Call // ends when the answer is written, and decides whether it is; nil for none
	size    int        // of its line among the lines of the batch
	line    []byte     // in place of that, if it is long
	message *jsonrpc.Message
}

// A batch is answers that are written at once.
type batch struct {
	answers []answer
	lines   []byte
	since   time.Time // when the first of them came
	replies int       // answers without a call
	claimed bool      // a goroutine is about to write them
}

// add takes an answer. It gives back the memory of its line, or nil if the line stays there.
func (a *answers) add(new answer) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting, a.spare = a.spare, nil
		if a.waiting == nil {
			a.waiting = &batch{}
		}
		a.waiting.since = time.Now()
	}
	b, room := a.waiting, new.line
	if len(room) < ownLine {
		b.lines = append(b.lines, new.line...)
		new.size, new.line = len(new.line), nil
	} else {
		room = nil
	}
	if new.call == nil {
		b.replies++
	}
	b.answers = append(b.answers, new)
	return room
}

// unclaimed reports whether answers wait that nobody is about to write, and whether they should wait no longer.
func (a *answers) unclaimed() (wait, overdue bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.waiting
	if b == nil || b.claimed {
		return false, false
	}
	return true, len(b.lines) >= keptBuffer || time.Since(b.since) > patience
}

// replies is the number of answers that wait and have no call.
func (a *answers) replies() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		return 0
	}
	return a.waiting.replies
}

// claim reports whether the caller has to write what waits.
func (a *answers) claim() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil || a.waiting.claimed {
		return false
	}
	a.waiting.claimed = true
	return true
}

// take returns what waits, nil for nothing. The caller gives it back.
func (a *answers) take() *batch {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.waiting
	a.waiting = nil
	return taken
}

// giveBack lets the room of a batch be used again.
func (a *answers) giveBack(b *batch) {
	clear(b.answers)
	*b = batch{answers: b.answers[:0], lines: b.lines[:0]}
	if cap(b.lines) > keptBuffer {
		b.lines = nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spare = b
}

// answer adds the response to a call, nil for none. It gives back room, which is for the line.
func (s *stream) answer(call *peer.Call, response *jsonrpc.Message, room []byte) []byte {
	switch {
	case response == nil:
		return room
	case s.lines == nil:
		s.answers.add(answer{call: call, message: response})
		return room
	}
	return s.answers.add(answer{call: call, line: append(jsonrpc.Append(room[:0], response), '\n')})
}

// reply adds a response without a job, nil for none.
func (s *stream) reply(response *jsonrpc.Message) { s.answer(nil, response, nil) }

// flush writes the answers that wait, unless another goroutine is about to.
func (s *stream) flush() {
	if s.answers.claim() {
		s.writeAnswers(s.ctx)
	}
}

// writeAnswers writes the answers that wait, once it is its turn. The end of a call and its answer are one step: a client
// that reads the response may use the id again, and one that cancels before it is written gets none.
func (s *stream) writeAnswers(ctx context.Context) {
	if s.lock(ctx) == nil {
		defer s.unlock()
	} else if s.ctx.Err() == nil {
		return // those who added them write them
	}
	b := s.answers.take()
	if b == nil {
		return
	}
	defer s.answers.giveBack(b)
	next, end, sent := 0, 0, 0 // in the lines: what is looked at, and what is wanted, which moves up to what is not
	for _, a := range b.answers {
		wanted := a.call == nil || a.call.End()
		line := b.lines[next : next+a.size]
		next += a.size
		switch {
		case !wanted:
		case a.message != nil:
			_ = s.send(a.message) // not, if the stream has ended
		case a.line != nil:
			s.sendLines(b.lines[sent:end])
			s.sendLines(a.line)
			sent = end
		default:
			end += copy(b.lines[end:], line)
		}
	}
	s.sendLines(b.lines[sent:end])
}
