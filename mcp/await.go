package mcp

import (
	"context"
	"sync"
	"time"
)

// AwaitUser says that the request which ctx belongs to waits for a person, for a login say, or for other work that takes
// as long as it takes, such as a task of the server. Until done is called the time limits of its [Client] stand still,
// those of [CallOptions] and of [Connect]; a deadline of the caller's own does not. It is for middleware, for transports,
// and for what lies beneath them, such as an http.RoundTripper. done must be called, once.
func AwaitUser(ctx context.Context) (done func()) {
	var stopped []timeLimit
	for l := timeLimitOf(ctx); l != nil; l = timeLimitOf(l.around()) {
		l.pause()
		stopped = append(stopped, l)
	}
	return func() {
		for _, l := range stopped {
			l.resume()
		}
	}
}

// AfterRequest has f called when the request of a [Client] to which ctx belongs is over, with all its rounds and whatever
// came of it. The method that made the request waits for f before it returns. It is for middleware that keeps something
// from one round to the next, of which there may be none. Where there are several functions, the last comes first; when the
// request is over already, f is called at once, and never if ctx belongs to no request.
func AfterRequest(ctx context.Context, f func()) {
	if w, ok := ctx.Value(requestKey{}).(*watch); ok {
		w.afterwards(f)
	}
}

// A timeLimit is a context that ends by itself, but not while somebody waits for a person.
type timeLimit interface {
	pause()
	resume()
	around() context.Context // what the limit was made of, which may have limits of its own
}

type timeLimitKey struct{}

func timeLimitOf(ctx context.Context) timeLimit {
	l, _ := ctx.Value(timeLimitKey{}).(timeLimit)
	return l
}

// A deadline is a context that ends with ErrTimeout after a time.
type deadline struct {
	context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex // guards the fields below
	timer  *time.Timer
	end    time.Time
	paused int // how many wait for a person
	since  time.Time
	over   bool
}

func withTimeLimit(ctx context.Context, limit time.Duration) (d *deadline, stop func()) {
	d = &deadline{end: time.Now().Add(limit)}
	d.Context, d.cancel = context.WithCancelCause(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer = time.AfterFunc(limit, d.fire)
	return d, d.stop
}

// Value returns the deadline itself to AwaitUser.
func (d *deadline) Value(key any) any {
	if key == (timeLimitKey{}) {
		return d
	}
	return d.Context.Value(key)
}

func (d *deadline) around() context.Context { return d.Context }

func (d *deadline) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paused == 0 && !d.over {
		d.cancel(ErrTimeout)
	}
}

func (d *deadline) pause() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paused++; d.paused == 1 {
		d.timer.Stop()
		d.since = time.Now()
	}
}

func (d *deadline) resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paused--; d.paused > 0 || d.over {
		return
	}
	now := time.Now()
	d.end = d.end.Add(now.Sub(d.since))
	d.timer.Reset(d.end.Sub(now))
}

func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	d.timer.Stop()
	d.cancel(nil)
}
