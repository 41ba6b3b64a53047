package host

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A requestQueue admits requests to a server, as many as it serves at once and as its rate allows. Others
// wait: those of one principal in their order, and principals in turn. If callers share it, the last
// quarter of the concurrency is for other principals than the one that uses the rest; the local user may
// use all of it. A request that has asked its caller a question is not counted while it waits for the
// answer. The zero value with an upstream is ready to use, nil admits everything. It is safe for
// concurrent use.
type requestQueue struct {
	up     *Upstream
	shared bool // by all callers of the server

	mu      sync.Mutex     // guards the fields below
	running int            // requests
	by      map[string]int // of them those of principals
	waiting int
	turns   []*callerQueue // the first is next
	tokens  *rate.Limiter  // nil without a rate
	rate    config.Rate    // of tokens
	timer   *time.Timer    // for the next token
}

// A callerQueue has the requests of one principal that wait, the oldest first.
type callerQueue struct {
	principal string
	waiters   []*waiter
}

// A waiter is a request that waits. The lock of the queue guards admitted and dropped.
type waiter struct {
	ready             chan struct{} // closed when one of the others is set
	admitted, dropped bool
}

// enter waits until a request may be sent. The error is an [*Error].
func (q *requestQueue) enter(ctx context.Context, principal string) error {
	s := q.up.entry().settings
	q.mu.Lock()
	// Those that wait cannot run, unless a new token has just become available.
	if q.waiting == 0 || s.Rate == (config.Rate{}) && q.find(principal) == nil {
		if q.hasSlot(principal, s) && q.takeToken(s) == 0 {
			q.start(principal)
			q.mu.Unlock()
			return nil
		}
	}
	w, err := q.add(principal, s)
	q.dispatch(s)
	q.mu.Unlock()
	if err != nil {
		return err
	}
	return q.wait(ctx, principal, w, s)
}

// force admits a request at once.
func (q *requestQueue) force(principal string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.start(principal)
}

// leave ends a request that was admitted.
func (q *requestQueue) leave(principal string) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end(principal)
}

// end counts the end of a request that was running. The lock is held.
func (q *requestQueue) end(principal string) {
	q.running--
	if q.by[principal]--; q.by[principal] == 0 {
		delete(q.by, principal)
	}
	if q.waiting > 0 {
		q.dispatch(q.up.entry().settings)
	}
}

// update applies changed settings.
func (q *requestQueue) update() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatch(q.up.entry().settings)
}

// figures returns how many requests run and wait.
func (q *requestQueue) figures() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running, q.waiting
}

// hasSlot reports whether a request of a principal may run. The lock is held.
func (q *requestQueue) hasSlot(principal string, s *config.ServerSettings) bool {
	most := s.Concurrency
	switch {
	case most == 0: // the entry is invalid
		return true
	case q.running >= most:
		return false
	}
	return !q.shared || principal == localPrincipal || q.by[principal] < most-most/4
}

// takeToken takes a token of the rate, or returns when there is one. The lock is held.
func (q *requestQueue) takeToken(s *config.ServerSettings) (wait time.Duration) {
	if s.Rate == (config.Rate{}) {
		return 0
	}
	if q.rate != s.Rate {
		q.tokens, q.rate = newLimiter(s.Rate), s.Rate
	}
	return takeToken(q.tokens)
}

// start counts a request that runs. The lock is held.
func (q *requestQueue) start(principal string) {
	q.running++
	if q.by == nil {
		q.by = map[string]int{}
	}
	q.by[principal]++
}

// find returns the requests of a principal that wait, nil if there are none. The lock is held.
func (q *requestQueue) find(principal string) *callerQueue {
	for _, c := range q.turns {
		if c.principal == principal {
			return c
		}
	}
	return nil
}

// add adds a request that waits. If the queue is full, the last request of the principal with the most is
// refused. The lock is held.
func (q *requestQueue) add(principal string, s *config.ServerSettings) (*waiter, error) {
	c := q.find(principal)
	if q.waiting >= s.Queue {
		var longest *callerQueue
		for _, other := range q.turns {
			if longest == nil || len(other.waiters) > len(longest.waiters) {
				longest = other
			}
		}
		own := 0
		if c != nil {
			own = len(c.waiters)
		}
		if longest == nil || len(longest.waiters) <= own+1 {
			return nil, q.full(principal, s)
		}
		last := longest.waiters[len(longest.waiters)-1]
		q.remove(longest, last)
		last.dropped = true
		close(last.ready)
	}
	if c == nil {
		c = &callerQueue{principal: principal}
		q.turns = append(q.turns, c)
	}
	w := &waiter{ready: make(chan struct{})}
	c.waiters = append(c.waiters, w)
	q.waiting++
	return w, nil
}

// remove removes a request that waits. The lock is held.
func (q *requestQueue) remove(c *callerQueue, w *waiter) {
	c.waiters = slices.DeleteFunc(c.waiters, func(other *waiter) bool { return other == w })
	q.waiting--
	if len(c.waiters) == 0 {
		q.turns = slices.DeleteFunc(q.turns, func(other *callerQueue) bool { return other == c })
	}
}

// dispatch admits the requests that may run. The lock is held.
func (q *requestQueue) dispatch(s *config.ServerSettings) {
	for passed := 0; passed < len(q.turns); {
		c := q.turns[0]
		if !q.hasSlot(c.principal, s) {
			if s.Concurrency > 0 && q.running >= s.Concurrency {
				return
			}
			q.turns = append(q.turns[1:], c)
			passed++
			continue
		}
		if wait := q.takeToken(s); wait > 0 {
			if q.timer == nil {
				q.timer = time.AfterFunc(wait, q.nextToken)
			}
			return
		}
		w := c.waiters[0]
		q.remove(c, w)
		if len(c.waiters) > 0 {
			q.turns = append(q.turns[1:], c)
		}
		q.start(c.principal)
		w.admitted = true
		close(w.ready)
		passed = 0
	}
}

func (q *requestQueue) nextToken() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timer = nil
	q.dispatch(q.up.entry().settings)
}

// wait waits until a request is admitted.
func (q *requestQueue) wait(ctx context.Context, principal string, w *waiter, s *config.ServerSettings) error {
	timer := time.NewTimer(s.QueueTimeout)
	defer timer.Stop()
	host := q.up.host.ctx
	select {
	case <-w.ready:
	case <-timer.C:
	case <-ctx.Done():
	case <-host.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	ended := ctx.Err() != nil || host.Err() != nil
	switch {
	case w.admitted && !ended:
		return nil
	case w.admitted:
		q.end(principal)
	case w.dropped:
		return q.full(principal, s)
	default:
		q.remove(q.find(principal), w)
	}
	switch {
	case ctx.Err() != nil:
		return q.up.requestError(ctx, context.Cause(ctx))
	case host.Err() != nil:
		return &Error{Code: CodeUnavailable, Server: q.up.name, Err: mcp.ErrClosed}
	}
	setting, value := q.bottleneck(principal, s)
	return q.up.refusal(CodeLimited, setting, limitedRetry,
		"the request has waited for queueTimeout of %v: %s; send it again later", s.QueueTimeout, value)
}

// full returns the error of a request that finds no place in the queue. The lock is held.
func (q *requestQueue) full(principal string, s *config.ServerSettings) error {
	_, value := q.bottleneck(principal, s)
	return q.up.refusal(CodeLimited, "queue", limitedRetry,
		"%s, and queue of %d is full: send the request again in %v", value, s.Queue, limitedRetry)
}

// bottleneck returns what requests wait for, and as a sentence. The lock is held.
func (q *requestQueue) bottleneck(principal string, s *config.ServerSettings) (setting, sentence string) {
	switch {
	case q.hasSlot(principal, s) && s.Rate != (config.Rate{}):
		return "rate", fmt.Sprintf("the server has reached rate of %v", s.Rate)
	case q.running < s.Concurrency:
		return "concurrency", fmt.Sprintf("the caller uses three quarters of concurrency of %d", s.Concurrency)
	}
	return "concurrency", fmt.Sprintf("the server is busy with concurrency of %d", s.Concurrency)
}
