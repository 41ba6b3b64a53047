package mcp

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// progressBurst is the number of progress notes that a call may send at once: enough for a loop over what a person
// would look at, too few to drown a client.
const progressBurst = 1000

// progress is what a call has told of its progress.
type progress struct {
	mu        sync.Mutex // guards the fields below, and keeps notes in order on the stream
	started   bool
	finished  bool
	last      float64    // of the last note, told or delayed
	rateLimit *rateLimit // nil before the first note that is sent: most calls send none
}

// rateLimit is how fast notes are sent.
type rateLimit struct {
	budget  float64 // notes that may be sent now
	filled  time.Time
	delayed []byte // a note that waits for budget; a newer one takes its place
}

// Progress tells the client how far the call of ctx has come: done of total, in any unit, total 0 when unknown, and a
// message for people. It does nothing if the client did not ask, or if done is not more than before, so a handler
// that starts over after a question does not repeat its steps. It blocks while the client's stream is full. What
// exceeds [ServerOptions.ProgressRate] is merged; the last note always arrives. In a detached call [Detached.Progress] takes
// every step.
//
// Spec: basic/utilities/progress.
func Progress(ctx context.Context, done, total float64, message string) {
	c := callFrom(ctx)
	if c == nil || !c.req.takesProgress() || math.IsNaN(done) || math.IsInf(done, 0) {
		return
	}
	c.progress.tell(c, done, total, message)
}

// takesProgress reports whether somebody wants to know how far the request has come.
func (r *Request) takesProgress() bool {
	if d := r.detached; d != nil {
		return d.Progress != nil
	}
	return r.env.ProgressToken != nil && r.Notify != nil
}

func (p *progress) tell(c *call, done, total float64, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if note := p.next(c, done, total, message); note != nil {
		// A stream that is gone ends the call through its context; there is nobody else to tell.
		_ = c.req.Notify(c, wire.NotificationProgress, note)
	}
}

// next returns the note that is to be sent now, nil for none. The caller holds p.mu.
func (p *progress) next(c *call, done, total float64, message string) []byte {
	if p.finished || p.started && done <= p.last {
		return nil
	}
	p.started, p.last = true, done
	if d := c.req.detached; d != nil {
		d.tell(done, total, message)
		return nil
	}
	note := progressParams(c.req.env.ProgressToken, done, total, message)
	now := time.Now()
	if p.rateLimit == nil {
		p.rateLimit = &rateLimit{budget: progressBurst, filled: now}
	}
	if !p.rateLimit.allow(now, float64(c.server.opts.ProgressRate)) {
		p.rateLimit.delayed = note
		return nil
	}
	p.rateLimit.delayed = nil
	return note
}

// allow takes one note from the budget, which refills by rate per second.
func (p *rateLimit) allow(now time.Time, rate float64) bool {
	p.budget = min(progressBurst, p.budget+now.Sub(p.filled).Seconds()*rate)
	p.filled = now
	if p.budget < 1 {
		return false
	}
	p.budget--
	return true
}

// finish sends the note that waits and lets none follow.
func (p *progress) finish(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = true
	if p.rateLimit != nil && p.rateLimit.delayed != nil {
		_ = c.req.Notify(c, wire.NotificationProgress, p.rateLimit.delayed)
		p.rateLimit.delayed = nil
	}
}

func progressParams(token []byte, done, total float64, message string) []byte {
	const room = 80 // for the names and two numbers
	b := append(make([]byte, 0, room+len(token)+len(message)), `{"progressToken":`...)
	b = append(b, token...)
	b = append(b, `,"progress":`...)
	b = appendNumber(b, done)
	if total > 0 && !math.IsInf(total, 0) {
		b = appendNumber(append(b, `,"total":`...), total)
	}
	if message != "" {
		b = append(b, `,"message":`...)
		b = jsonscan.AppendQuote(b, message)
	}
	return append(b, '}')
}

// appendNumber writes counts, also large ones, as people do.
func appendNumber(b []byte, v float64) []byte {
	const exact = 1 << 53 // up to here every integer is a float
	if n := int64(v); 0 < n && n <= exact && float64(n) == v {
		return strconv.AppendInt(b, n, 10)
	}
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return strconv.AppendFloat(b, v, 'e', -1, 64)
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64)
}
