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

// progressBurst is the number of progress notifications that a call may send at once: enough for a
// loop of a size that people watch, and too few to flood a client.
const progressBurst = 1000

type progress struct {
	mu        sync.Mutex // guards the fields below, and orders notifications on the stream
	started   bool
	finished  bool
	last      float64    // of the last notification, sent or delayed
	rateLimit *rateLimit // nil before the first notification
}

// A rateLimit is the state of a token bucket.
type rateLimit struct {
	budget  float64 // notifications that may be sent now
	filled  time.Time
	delayed []byte // params of a notification that waits for budget; a newer one replaces it
}

// Progress notifies the client of the progress of the call of ctx: done of total, in any unit,
// where total is 0 if unknown, and a message for people. It does nothing if the client has not
// asked for progress or if done has not increased, so a handler that runs again after a question
// does not repeat its steps. It blocks while the client's stream is full. Notifications above
// [ServerOptions.ProgressRate] are merged; the last one is always sent. After [Request.Detach],
// [Detached.Progress] receives every step.
//
// Spec: basic/utilities/progress.
func Progress(ctx context.Context, done, total float64, message string) {
	c := callFrom(ctx)
	if c == nil || !c.req.takesProgress() || math.IsNaN(done) || math.IsInf(done, 0) {
		return
	}
	c.progress.report(c, done, total, message)
}

func (r *Request) takesProgress() bool {
	if d := r.detached; d != nil {
		return d.Progress != nil
	}
	return r.env.ProgressToken != nil && r.Notify != nil
}

func (p *progress) report(c *call, done, total float64, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if note := p.next(c, done, total, message); note != nil {
		// A closed stream cancels the context of the call.
		_ = c.req.Notify(c, wire.NotificationProgress, note)
	}
}

// next returns the params of the notification to send now, or nil. The caller holds p.mu.
func (p *progress) next(c *call, done, total float64, message string) []byte {
	if p.finished || p.started && done <= p.last {
		return nil
	}
	p.started, p.last = true, done
	if d := c.req.detached; d != nil {
		d.report(done, total, message)
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

// allow takes one notification from the budget, which refills by rate per second.
func (p *rateLimit) allow(now time.Time, rate float64) bool {
	p.budget = min(progressBurst, p.budget+now.Sub(p.filled).Seconds()*rate)
	p.filled = now
	if p.budget < 1 {
		return false
	}
	p.budget--
	return true
}

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
	const fixed = 80 // the names and two numbers
	b := append(make([]byte, 0, fixed+len(token)+len(message)), `{"progressToken":`...)
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

// appendNumber appends a number, and integers without an exponent.
func appendNumber(b []byte, v float64) []byte {
	const exact = 1 << 53 // every smaller integer has an exact float64
	if n := int64(v); 0 < n && n <= exact && float64(n) == v {
		return strconv.AppendInt(b, n, 10)
	}
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return strconv.AppendFloat(b, v, 'e', -1, 64)
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64)
}
