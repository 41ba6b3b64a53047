package peer

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// TimeLimits are the durations of a [Timeout].
type TimeLimits struct {
	Total time.Duration // from the start
	Idle  time.Duration // since the start or the last Touch; zero means no limit
	Grace time.Duration // by which grace periods extend Total at most
}

// A Timeout is a context that ends when any of its time limits is exceeded. It is safe for
// concurrent use, and must not be copied after Start.
type Timeout struct {
	LazyContext
	cause error
	idle  time.Duration

	mu       sync.Mutex // guards the fields below
	timer    *time.Timer
	heard    time.Time // the start of the idle time
	end      time.Time
	pauses   int       // Pause calls without a Resume
	pausedAt time.Time // of the first of them
	grace    time.Duration
	graceAt  time.Time // the start of the grace period; zero outside of a grace period
	stopped  bool
}

// Start starts the time of t, which is a child of ctx. When a limit is exceeded, t ends with the
// cause. The caller must call Stop in the end.
func (t *Timeout) Start(ctx context.Context, limits TimeLimits, cause error) {
	limits.Idle = cmp.Or(limits.Idle, limits.Total)
	now := time.Now()
	t.mu.Lock() // until the timer is set: it may fire at once
	defer t.mu.Unlock()
	t.Context, t.cause = ctx, cause
	t.idle, t.heard, t.end, t.grace = limits.Idle, now, now.Add(limits.Total), limits.Grace
	t.timer = time.AfterFunc(min(limits.Idle, limits.Total), t.fire)
}

func (t *Timeout) fire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped || t.pauses > 0 {
		return
	}
	if left := t.left(); left > 0 {
		t.timer.Reset(left)
		return
	}
	t.End(t.cause)
}

// left returns the time until a limit is exceeded, with the lock held.
func (t *Timeout) left() time.Duration {
	now := time.Now()
	if !t.graceAt.IsZero() {
		return t.end.Add(t.grace).Sub(now)
	}
	return min(t.heard.Add(t.idle).Sub(now), t.end.Sub(now))
}

// Touch restarts the idle time.
func (t *Timeout) Touch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard = time.Now()
}

// Pause stops the time until Resume is called, as many times as Pause was.
func (t *Timeout) Pause() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pauses++; t.pauses == 1 {
		t.timer.Stop()
		t.pausedAt = time.Now()
	}
}

// Resume continues the time after a Pause, and restarts the idle time.
func (t *Timeout) Resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pauses--; t.pauses > 0 || t.stopped {
		return
	}
	t.extend(time.Since(t.pausedAt))
}

// BeginGrace begins a grace period, which ends with EndGrace. It pauses the time, but no longer
// than the remaining part of TimeLimits.Grace.
func (t *Timeout) BeginGrace() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.graceAt = time.Now()
}

// EndGrace ends a grace period, and restarts the idle time.
func (t *Timeout) EndGrace() {
	t.mu.Lock()
	defer t.mu.Unlock()
	used := min(time.Since(t.graceAt), t.grace)
	t.grace -= used
	t.graceAt = time.Time{}
	t.extend(used)
}

// extend moves the end and restarts the idle time, with the lock held.
func (t *Timeout) extend(by time.Duration) {
	t.heard = time.Now()
	t.end = t.end.Add(by)
	if t.pauses == 0 && !t.stopped {
		t.timer.Reset(t.left())
	}
}

// Stop stops the time and ends the context.
func (t *Timeout) Stop() {
	t.mu.Lock()
	t.stopped = true
	t.timer.Stop()
	t.mu.Unlock()
	t.End(nil)
}

type timeoutKey struct{}

// Value returns the values of the parent, and t itself for PauseTimeouts.
func (t *Timeout) Value(key any) any {
	if key == (timeoutKey{}) {
		return t
	}
	return t.LazyContext.Value(key)
}

// A RequestKey is the key of a context's value that is the request of a client. The request has the
// method OnDone(f func()).
type RequestKey struct{}

// PauseTimeouts pauses every Timeout among ctx and its ancestors until resume is called.
func PauseTimeouts(ctx context.Context) (resume func()) {
	var paused []*Timeout
	for {
		t, ok := ctx.Value(timeoutKey{}).(*Timeout)
		if !ok {
			break
		}
		t.Pause()
		paused = append(paused, t)
		ctx = t.Context
	}
	return func() {
		for _, t := range paused {
			t.Resume()
		}
	}
}
