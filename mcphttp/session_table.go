package mcphttp

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// endSessionTimeout bounds [EventStore.EndSession], which may be called without a request.
const endSessionTimeout = 10 * time.Second

// sessions is the table of all sessions of a handler.
type sessions struct {
	opts   *Options
	config legacy.Config
	quota  *quota
	begin  time.Time                     // times are stored as durations since then
	change atomic.Pointer[encodedChange] // the last one

	mu      sync.Mutex // guards the fields below
	byID    map[string]*session
	closed  bool
	sweeper *time.Timer // runs while there are sessions
}

func newSessions(h mcp.Handler, opts *Options) *sessions {
	return &sessions{
		opts: opts,
		config: legacy.Config{
			Core:        &sessionCore{h},
			Logger:      opts.Logger,
			MaxInFlight: opts.Sessions.MaxInFlight,
			Cancelled:   func(reason string) error { return fmt.Errorf("%w: %s", mcp.ErrCancelled, reason) },
		},
		quota: newQuota("sessions", opts.Sessions.Max, opts.Sessions.MaxPerPrincipal),
		begin: time.Now(),
		byID:  make(map[string]*session),
	}
}

// open creates a session, which the caller releases. The queue is that of the stream of an HTTP+SSE
// session, and nil for any other one.
func (t *sessions) open(principal string, queue *messageQueue) (*session, *refusal) {
	if no := t.quota.acquire(principal); no != nil {
		return nil, no
	}
	s := &session{id: rand.Text(), principal: principal, digest: digest(principal), queue: queue, users: 1}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		t.quota.release(principal)
		return nil, errShutdown
	}
	t.byID[s.id] = s
	if t.sweeper == nil {
		t.sweeper = time.AfterFunc(t.sweepInterval(), t.sweep)
	}
	return s, nil
}

// acquire returns the session with an id, which the caller releases. It returns nil if the session
// belongs to another principal.
func (t *sessions) acquire(id, principal string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byID[id]
	if s == nil || s.principal != principal {
		return nil
	}
	s.users++
	s.used = true
	return s
}

func (t *sessions) release(s *session) {
	now := time.Since(t.begin)
	t.mu.Lock()
	defer t.mu.Unlock()
	s.users--
	s.touched = now
}

// isOverloaded reports whether a session has so many requests that its client must have stopped
// reading. In addition to the calls in flight, as many requests may wait to be refused.
func (t *sessions) isOverloaded(s *session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(s.users) > 2*t.opts.Sessions.MaxInFlight
}

func (t *sessions) end(s *session, cause error) {
	t.mu.Lock()
	known := t.byID[s.id] == s
	delete(t.byID, s.id)
	t.mu.Unlock()
	if known {
		t.finish(s, cause)
	}
}

// finish closes a session that was removed from the table.
func (t *sessions) finish(s *session, cause error) {
	t.quota.release(s.principal)
	s.close(cause)
	ctx, cancel := context.WithTimeout(context.Background(), endSessionTimeout)
	defer cancel()
	if err := t.opts.Sessions.Events.EndSession(ctx, s.id, s.digest); err != nil {
		t.opts.Logger.ErrorContext(ctx, "mcphttp: events of an ended session not deleted", "error", err)
	}
}

func (t *sessions) endAll(cause error) {
	t.mu.Lock()
	all := t.byID
	t.byID, t.closed = nil, true
	t.mu.Unlock()
	for _, s := range all {
		t.finish(s, cause)
	}
}

// sweepInterval is the interval at which idle sessions are closed: a quarter of the shortest
// timeout.
func (t *sessions) sweepInterval() time.Duration {
	return min(t.opts.Sessions.IdleTimeout, t.opts.Sessions.InitTimeout)/4 + 1
}

// sweep closes idle sessions. One timer serves all of them.
func (t *sessions) sweep() {
	for _, s := range t.removeIdle() {
		t.finish(s, errSessionIdle)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.byID) > 0 {
		t.sweeper.Reset(t.sweepInterval())
	} else {
		t.sweeper = nil
	}
}

// removeIdle removes and returns the sessions that were idle for too long.
func (t *sessions) removeIdle() (idle []*session) {
	now := time.Since(t.begin)
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, s := range t.byID {
		timeout := t.opts.Sessions.IdleTimeout
		if !s.used {
			timeout = t.opts.Sessions.InitTimeout
		}
		if s.users == 0 && now-s.touched >= timeout {
			delete(t.byID, id)
			idle = append(idle, s)
		}
	}
	return idle
}

var errSessionIdle = fmt.Errorf("%w: session was idle", mcp.ErrClosed)
