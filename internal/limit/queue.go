package limit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// QueueLimits configure a [Queue].
type QueueLimits struct {
	Running int           // requests that run at a time; 0 means no limit
	Waiting int           // requests that wait for their turn
	Timeout time.Duration // how long a request waits at most
	Rate    Rate          // of the requests that begin to run; zero means no limit
}

// A Bottleneck is what the requests of a queue wait for.
type Bottleneck int

// Bottlenecks.
const (
	ByRunning Bottleneck = iota // all places are taken
	ByShare                     // the caller has taken three quarters of the places
	ByRate
)

// A QueueError is the refusal of a request by a [Queue].
type QueueError struct {
	IsFull bool // the request found no place to wait, or lost it; otherwise it waited for the timeout
	By     Bottleneck
}

// Error returns whether the request found no place or waited too long.
func (e *QueueError) Error() string {
	if e.IsFull {
		return "the queue is full"
	}
	return "the request has waited too long"
}

// ErrClosed is the error of a request that waits when its queue is closed.
var ErrClosed = errors.New("limit: the queue is closed")

// A Queue admits requests to a server, as many at a time as its limits allow. Other requests wait:
// the requests of a caller in their order, and callers in turn. A Queue is safe for concurrent use.
type Queue struct {
	// shares reports whether a caller must leave the last quarter of the places to other callers.
	// Nil means that no caller must.
	shares func(caller string) bool
	done   <-chan struct{}

	mu      sync.Mutex // guards the fields below
	limits  QueueLimits
	running int            // requests
	by      map[string]int // running requests, by caller that must share
	waiting int
	turns   []*line // the first line is next
	tokens  *bucket // nil without a rate
	timer   *time.Timer
}

// A line contains the waiting requests of a caller, oldest first.
type line struct {
	caller  string
	waiters []*waiter
}

// A waiter is a waiting request. The lock of the queue guards admitted and dropped.
type waiter struct {
	ready             chan struct{} // closed when admitted or dropped is set
	admitted, dropped bool
}

// NewQueue returns a queue. The function shares reports whether a caller must leave the last
// quarter of the places to other callers; nil means that no caller must. Closing done ends the
// waits of requests.
func NewQueue(limits QueueLimits, shares func(caller string) bool, done <-chan struct{}) *Queue {
	q := &Queue{shares: shares, done: done, by: map[string]int{}}
	q.SetLimits(limits)
	return q
}

// SetLimits changes the limits, also for the requests that wait.
func (q *Queue) SetLimits(limits QueueLimits) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tokens == nil || q.limits.Rate != limits.Rate {
		q.tokens = nil
		if limits.Rate != (Rate{}) {
			q.tokens = newBucket(limits.Rate)
		}
	}
	q.limits = limits
	q.dispatch()
}

// Enter waits until a request may run. Unless Enter fails, the caller must call Leave. The error is
// a [*QueueError], the error of the context, or [ErrClosed].
func (q *Queue) Enter(ctx context.Context, caller string) error {
	q.mu.Lock()
	// The waiting requests cannot run, unless a token just became available.
	if q.waiting == 0 || q.tokens == nil && q.find(caller) == nil {
		if q.hasPlace(caller) && q.takeToken() == 0 {
			q.start(caller)
			q.mu.Unlock()
			return nil
		}
	}
	w, err := q.add(caller)
	timeout := q.limits.Timeout
	q.dispatch()
	q.mu.Unlock()
	if err != nil {
		return err
	}
	return q.wait(ctx, caller, w, timeout)
}

// Force admits a request at once, whatever the limits. The caller must call Leave.
func (q *Queue) Force(caller string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.start(caller)
}

// Leave ends a request that was admitted.
func (q *Queue) Leave(caller string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end(caller)
}

// Len returns the numbers of running and waiting requests.
func (q *Queue) Len() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running, q.waiting
}

// end counts the end of a running request. The caller must hold q.mu.
func (q *Queue) end(caller string) {
	q.running--
	if q.mustShare(caller) {
		if q.by[caller]--; q.by[caller] == 0 {
			delete(q.by, caller)
		}
	}
	if q.waiting > 0 {
		q.dispatch()
	}
}

// hasPlace reports whether a request of a caller may run. The caller must hold q.mu.
func (q *Queue) hasPlace(caller string) bool {
	limit := q.limits.Running
	switch {
	case limit == 0:
		return true
	case q.running >= limit:
		return false
	}
	return !q.mustShare(caller) || q.by[caller] < limit-limit/4
}

// mustShare reports whether a caller must leave the last quarter of the places to others.
func (q *Queue) mustShare(caller string) bool { return q.shares != nil && q.shares(caller) }

// takeToken takes a token of the rate, or returns the time until it is available. The caller must
// hold q.mu.
func (q *Queue) takeToken() (wait time.Duration) {
	if q.tokens == nil {
		return 0
	}
	return q.tokens.take(q.limits.Rate, 1, time.Now())
}

// start counts a request that runs. The caller must hold q.mu.
func (q *Queue) start(caller string) {
	q.running++
	if q.mustShare(caller) {
		q.by[caller]++
	}
}

// find returns the line of a caller, nil without waiting requests. The caller must hold q.mu.
func (q *Queue) find(caller string) *line {
	for _, l := range q.turns {
		if l.caller == caller {
			return l
		}
	}
	return nil
}

// add adds a request that waits. If the queue is full, the last request of the longest line is
// refused. The caller must hold q.mu.
func (q *Queue) add(caller string) (*waiter, error) {
	l := q.find(caller)
	if q.waiting >= q.limits.Waiting {
		var longest *line
		for _, other := range q.turns {
			if longest == nil || len(other.waiters) > len(longest.waiters) {
				longest = other
			}
		}
		length := 0
		if l != nil {
			length = len(l.waiters)
		}
		if longest == nil || len(longest.waiters) <= length+1 {
			return nil, &QueueError{IsFull: true, By: q.bottleneck(caller)}
		}
		last := longest.waiters[len(longest.waiters)-1]
		q.remove(longest, last)
		last.dropped = true
		close(last.ready)
	}
	if l == nil {
		l = &line{caller: caller}
		q.turns = append(q.turns, l)
	}
	w := &waiter{ready: make(chan struct{})}
	l.waiters = append(l.waiters, w)
	q.waiting++
	return w, nil
}

// remove removes a request that waits. The caller must hold q.mu.
func (q *Queue) remove(l *line, w *waiter) {
	l.waiters = slices.DeleteFunc(l.waiters, func(other *waiter) bool { return other == w })
	q.waiting--
	if len(l.waiters) == 0 {
		q.turns = slices.DeleteFunc(q.turns, func(other *line) bool { return other == l })
	}
}

// dispatch admits the requests that may run. The caller must hold q.mu.
func (q *Queue) dispatch() {
	for passed := 0; passed < len(q.turns); {
		l := q.turns[0]
		if !q.hasPlace(l.caller) {
			if q.limits.Running > 0 && q.running >= q.limits.Running {
				return
			}
			q.turns = append(q.turns[1:], l)
			passed++
			continue
		}
		if wait := q.takeToken(); wait > 0 {
			if q.timer == nil {
				q.timer = time.AfterFunc(wait, q.nextToken)
			}
			return
		}
		w := l.waiters[0]
		q.remove(l, w)
		if len(l.waiters) > 0 {
			q.turns = append(q.turns[1:], l)
		}
		q.start(l.caller)
		w.admitted = true
		close(w.ready)
		passed = 0
	}
}

func (q *Queue) nextToken() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timer = nil
	q.dispatch()
}

// wait waits until a request is admitted.
func (q *Queue) wait(ctx context.Context, caller string, w *waiter, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-timer.C:
	case <-ctx.Done():
	case <-q.done:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.ended(ctx)
	switch {
	case w.admitted && err == nil:
		return nil
	case w.admitted:
		q.end(caller)
	case w.dropped:
		return &QueueError{IsFull: true, By: q.bottleneck(caller)}
	default:
		q.remove(q.find(caller), w)
	}
	if err != nil {
		return err
	}
	return &QueueError{By: q.bottleneck(caller)}
}

// ended returns why a request no longer waits, apart from the limits: nil if it waits.
func (q *Queue) ended(ctx context.Context) error {
	select {
	case <-q.done:
		return cmp.Or(ctx.Err(), ErrClosed)
	default:
		return ctx.Err()
	}
}

// bottleneck returns what the requests of a caller wait for. The caller must hold q.mu.
func (q *Queue) bottleneck(caller string) Bottleneck {
	switch {
	case q.hasPlace(caller) && q.tokens != nil:
		return ByRate
	case q.running < q.limits.Running:
		return ByShare
	}
	return ByRunning
}
