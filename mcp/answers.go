package mcp

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// patience is how long an answer waits for the answers to requests that came in together with it.
const patience = 500 * time.Microsecond

// answers are the responses of a stream that wait for their turn to be written. All that wait are written at once: to a
// small request the write is half of what it costs. Whoever finds none waiting writes, and all others go on to the next
// request. A response that is alone waits for nothing.
type answers struct {
	starting atomic.Int64 // requests that were handed to a goroutine which does not run yet

	mu      sync.Mutex // guards the fields below
	waiting *batch     // nil for none
	spare   *batch     // empty
}

// An answer is the response to a call.
type answer struct {
	message *jsonrpc.Message
	call    *peer.Call // ends when the answer is written, and decides whether it is; nil if it has ended
}

// A batch is answers that are written at once.
type batch struct {
	answers  []answer
	since    time.Time          // when the first of them came
	messages []*jsonrpc.Message // room for those of them that are wanted
}

// add reports whether the caller has to write what waits.
func (a *answers) add(new answer) (write bool) {
	now := time.Now()
	a.mu.Lock()
	first := a.waiting == nil
	if first {
		a.waiting, a.spare = a.spare, nil
		if a.waiting == nil {
			a.waiting = &batch{}
		}
		a.waiting.since = now
	}
	a.waiting.answers = append(a.waiting.answers, new)
	overdue := now.Sub(a.waiting.since) > patience // whoever was first is held up by other work
	a.mu.Unlock()
	if first && a.starting.Load() > 0 {
		runtime.Gosched() // to requests that came with this one, and so to their answers
	}
	return first || overdue
}

func (a *answers) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		return 0
	}
	return len(a.waiting.answers)
}

// take gives what waits, nil for nothing. The caller gives it back.
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
	clear(b.messages)
	b.answers, b.messages = b.answers[:0], b.messages[:0]
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spare = b
}

// answer has a response written, by whoever writes next.
func (s *stream) answer(a answer) {
	if s.answers.add(a) {
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
	for _, a := range b.answers {
		if a.call == nil || a.call.End() {
			b.messages = append(b.messages, a.message)
		}
	}
	if len(b.messages) > 0 {
		_ = s.send(b.messages...) // not, if the stream has ended
	}
	s.answers.giveBack(b)
}
