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

// Limits of the time for which a call waits until its client reads its notifications.
const (
	// promptNotify is the longest time of a notification that did not wait for the client.
	promptNotify = time.Millisecond
	// maxNotifyWait is how long a call waits for its client before it merges notifications: longer
	// than pauses of the scheduler, and hardly noticed by a user.
	maxNotifyWait = 250 * time.Millisecond
	// notifyWaitShare is the fraction of a call's time, 1/notifyWaitShare, that it waits beyond that.
	notifyWaitShare = 10
)

type progress struct {
	mu       sync.Mutex // guards the fields below, and orders notifications on the stream
	started  bool
	finished bool
	last     float64 // of the last notification, sent or delayed
	wait     notifyWait
	delayed  []byte // params of a notification that waits for the client to catch up; a newer notification replaces it
}

// A notifyWait measures how long a call waits for a client that is slow to read.
type notifyWait struct {
	waited time.Duration // minus the share of the elapsed time
	until  time.Time     // the end of the last notification
}

// isBehind reports whether the client does not keep up.
func (w *notifyWait) isBehind(now time.Time) bool {
	if w.waited > 0 {
		w.waited = max(0, w.waited-now.Sub(w.until)/notifyWaitShare)
		w.until = now
	}
	return w.waited >= maxNotifyWait
}

// add records a notification that was sent from start to end.
func (w *notifyWait) add(start, end time.Time) {
	if took := end.Sub(start); took > promptNotify {
		w.waited += took
		w.until = end
	}
}

// Progress notifies the client of the progress of the call of ctx: done of total, in any unit,
// where total is 0 if unknown, and a message for people. It sends no notification if the client did
// not ask for progress or if done did not increase, so a handler that runs again after a question
// does not repeat its steps.
//
// The client receives every notification while it keeps up. Progress blocks while the client's
// stream is full: for a quarter of a second per call, and beyond that for a tenth of the call's
// time. A notification that would block for longer is merged with the next; the last notification
// is always sent. After [Request.Detach], [Detached.Progress] receives every step.
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
	if p.finished || p.started && done <= p.last {
		return
	}
	p.started, p.last = true, done
	if d := c.req.detached; d != nil {
		d.report(done, total, message)
		return
	}
	note := progressParams(c.req.env.ProgressToken, done, total, message)
	now := time.Now()
	if p.wait.isBehind(now) {
		p.delayed = note
		return
	}
	p.delayed = nil
	// A closed stream cancels the context of the call.
	_ = c.req.Notify(c, wire.NotificationProgress, note)
	p.wait.add(now, time.Now())
}

func (p *progress) finish(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = true
	if p.delayed != nil {
		_ = c.req.Notify(c, wire.NotificationProgress, p.delayed)
		p.delayed = nil
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

// appendNumber appends a number. Integers are written without an exponent.
func appendNumber(b []byte, v float64) []byte {
	const exact = 1 << 53 // every smaller integer equals a float64
	if n := int64(v); 0 < n && n <= exact && float64(n) == v {
		return strconv.AppendInt(b, n, 10)
	}
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return strconv.AppendFloat(b, v, 'e', -1, 64)
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64)
}
