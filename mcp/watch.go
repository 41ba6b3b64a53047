package mcp

import (
	"context"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
)

// A watch ends a request whose server is silent for too long. It is the context of the request.
type watch struct {
	peer.CallContext
	client *Client
	idle   time.Duration

	before, after *watch // in the list of the client's; guarded by its lock

	mu     sync.Mutex
	alarm  *alarm
	begun  time.Time
	heard  time.Time     // when the server was heard of last
	end    time.Time     // of the request, however lively it is
	pauses int           // how many wait for somebody else than the server
	paused time.Time     // since when they do
	asking time.Duration // by which end was put off already, because the server waited for answers
	rest   []func()      // what is left to do when the request is over
	over   bool
}

type requestKey struct{}

// newWatch starts the time of a request, which ends with the client too.
func (c *Client) newWatch(ctx context.Context, idle, most time.Duration) *watch {
	now := time.Now()
	w := &watch{CallContext: peer.CallContext{Context: ctx}, client: c, idle: idle, begun: now, heard: now, end: now.Add(most)}
	w.alarm = c.watches.add(w)
	w.alarm.set(w, min(idle, most))
	return w
}

// EndRequest ends the request. A transport that is closed looks for this method, and where it finds it needs no context
// of its own.
func (w *watch) EndRequest(cause error) { w.End(cause) }

// An alarm is the timer of one watch, and then of another.
type alarm struct {
	timer *time.Timer // nil before the first one
	watch *watch
}

// set makes the alarm that of a watch.
func (a *alarm) set(w *watch, after time.Duration) {
	w.mu.Lock() // an alarm that goes off at once waits until all is set
	defer w.mu.Unlock()
	a.watch = w
	if a.timer == nil {
		a.timer = time.AfterFunc(after, a.fire)
		return
	}
	a.timer.Reset(after)
}

func (a *alarm) fire() { a.watch.fire() }

// maxSpareAlarms is how many alarms a client keeps: as many as a busy one has requests at a time.
const maxSpareAlarms = 64

// watches are the requests of a client that are in progress.
type watches struct {
	mu     sync.Mutex
	first  *watch   // of the list
	spare  []*alarm // which will not go off
	closed bool
}

// add puts a watch into the list, and gives the alarm for it.
func (s *watches) add(w *watch) *alarm {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		w.End(ErrClosed)
	}
	if w.after = s.first; w.after != nil {
		w.after.before = w
	}
	s.first = w
	n := len(s.spare)
	if n == 0 {
		return &alarm{}
	}
	a := s.spare[n-1]
	s.spare = s.spare[:n-1]
	return a
}

// remove takes a watch out of the list, and its alarm unless that is nil, because it may still go off.
func (s *watches) remove(w *watch, a *alarm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.before == nil {
		s.first = w.after
	} else {
		w.before.after = w.after
	}
	if w.after != nil {
		w.after.before = w.before
	}
	w.before, w.after = nil, nil // whoever keeps the context keeps no others
	if a != nil && len(s.spare) < maxSpareAlarms {
		a.watch = nil
		s.spare = append(s.spare, a)
	}
}

// answered says that the server has waited for an answer that long; for which request, nobody knows.
func (s *watches) answered(waited time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := s.first; w != nil; w = w.after {
		w.answered(waited)
	}
}

func (s *watches) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for w := s.first; w != nil; w = w.after {
		w.End(ErrClosed)
	}
}

// fire ends a request, unless it is the user who is waited for, or the server has just been heard of.
func (w *watch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pauses > 0 {
		return
	}
	if left := time.Until(w.end.Add(w.patience())); left > 0 && w.client.isAsking() {
		w.alarm.timer.Reset(min(w.idle, left))
		return
	}
	if left := w.left(); left > 0 {
		w.alarm.timer.Reset(left)
		return
	}
	w.End(ErrTimeout)
}

// left is the time that is left if nothing more is heard of the server.
func (w *watch) left() time.Duration {
	now := time.Now()
	return min(w.heard.Add(w.idle).Sub(now), w.end.Sub(now))
}

// patience is how much longer the server may wait for answers to questions that are requests of their own.
func (w *watch) patience() time.Duration { return w.client.opts.InputTimeout - w.asking }

// answered says that the server has waited for an answer that long. It is its turn again, and its time begins.
func (w *watch) answered(waited time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = time.Now()
	waited = min(waited, w.heard.Sub(w.begun), w.patience())
	w.asking += waited
	w.end = w.end.Add(waited)
}

// touch says that the server has been heard of.
func (w *watch) touch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = time.Now()
}

// pause stops the time while it is not the server that is waited for.
func (w *watch) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pauses++; w.pauses == 1 {
		w.alarm.timer.Stop()
		w.paused = time.Now()
	}
}

func (w *watch) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pauses--; w.pauses > 0 {
		return
	}
	w.heard = time.Now()
	w.end = w.end.Add(w.heard.Sub(w.paused))
	w.alarm.timer.Reset(w.left())
}

// Value returns the watch itself to AwaitUser and AfterRequest, and the client to ClientFrom.
func (w *watch) Value(key any) any {
	switch key {
	case timeLimitKey{}, requestKey{}:
		return w
	case clientKey{}:
		return w.client
	}
	return w.CallContext.Value(key)
}

func (w *watch) around() context.Context { return w.Context }

// afterwards has f called when the request is over.
func (w *watch) afterwards(f func()) {
	w.mu.Lock()
	over := w.over
	if !over {
		w.rest = append(w.rest, f)
	}
	w.mu.Unlock()
	if over {
		f()
	}
}

// finish calls what was left for the end of the request.
func (w *watch) finish() {
	for {
		w.mu.Lock()
		n := len(w.rest)
		if n == 0 {
			w.over = true
			w.mu.Unlock()
			return
		}
		f := w.rest[n-1]
		w.rest = w.rest[:n-1]
		w.mu.Unlock()
		f()
	}
}

func (w *watch) stop() {
	w.finish()
	w.mu.Lock()
	spare := w.alarm
	if !spare.timer.Stop() || !w.paused.IsZero() {
		spare = nil // it may have gone off, if only before it was set again
	}
	w.pauses++ // for a fire that waits for the lock, and a resume that comes late
	w.mu.Unlock()
	w.client.watches.remove(w, spare)
	w.End(nil)
}
