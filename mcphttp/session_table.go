package mcphttp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/replica"
)

// sessions is the table of all sessions of a handler.
type sessions struct {
	opts   *Options
	config legacy.Config
	quota  *quota
	events *sessionEventLog
	// observer is the observer of the server; may be nil.
	observer driver.SessionObserver
	begin    time.Time                     // times are stored as durations since then
	change   atomic.Pointer[encodedChange] // the last one
	shared   sharedSessions

	mu      sync.Mutex // guards the fields below
	byID    map[string]*session
	unused  sessionList // idle anonymous sessions that were not used since initialize
	idle    sessionList // other idle anonymous sessions
	closed  bool
	sweeper *time.Timer // runs while there are sessions
	// stopping is the context of Shutdown, or a context that does not end.
	stopping context.Context
}

func newSessions(h mcp.Handler, opts *Options, filters *quota) *sessions {
	core := &sessionCore{handler: h}
	core.server = mcp.Driver(core)
	t := &sessions{
		opts: opts,
		config: legacy.Config{
			Core:        core,
			Logger:      opts.Logger,
			MaxInFlight: opts.Sessions.MaxInFlight,
			Reserve:     reserveIn(filters),
			Stateless:   opts.Sessions.Stateless,
			Cancelled:   func(reason string) error { return fmt.Errorf("%w: %s", mcp.ErrCancelled, reason) },
		},
		quota:  newQuota("sessions", int64(opts.Sessions.Max), int64(opts.Sessions.MaxPerPrincipal)),
		events: newSessionEventLog(opts),
		begin:  time.Now(),
		byID:   make(map[string]*session),

		stopping: context.Background(),
	}
	server := mcp.Driver(h)
	t.config.RootsChanged = server.RootsChanged()
	for _, version := range server.Revisions() {
		if r, known := wire.ParseRevision(version); known {
			t.config.Revisions = append(t.config.Revisions, r)
		}
	}
	if !opts.Sessions.Stateless {
		t.observer, _ = server.Observer().(driver.SessionObserver)
		if opts.Sessions.Store != nil {
			t.share(h, &opts.Sessions, &t.shared)
		}
	}
	return t
}

// eventLog returns the store of the events of calls, nil if no client can resume a stream.
func (t *sessions) eventLog() *sessionEventLog {
	if !t.opts.Sessions.resumes() {
		return nil
	}
	return t.events
}

type callerKey struct{}

// reserveIn returns a function that reserves bytes for the caller of a conversation's context.
func reserveIn(q *quota) func(ctx context.Context, n int) bool {
	return func(ctx context.Context, n int) bool {
		c, _ := ctx.Value(callerKey{}).(caller)
		if n < 0 {
			q.release(c, int64(-n))
			return true
		}
		return q.acquire(c, int64(n)) == nil
	}
}

// open creates a session, which the caller of open releases. The queue is that of the stream of an
// HTTP+SSE session, and nil for any other session. If the table is full, open ends the anonymous
// session that was idle for the longest time.
func (t *sessions) open(c caller, queue *messageQueue) (*session, *refusal) {
	if no := t.admit(c); no != nil {
		return nil, no
	}
	id := rand.Text()
	if queue != nil && t.shared.bus != nil {
		id += t.shared.process // for messages that arrive elsewhere
	}
	s := t.newSession(id, c, queue)
	if no := t.add(s); no != nil {
		t.quota.release(c, 1)
		return nil, no
	}
	return s, nil
}

// admit takes a place in the quota for a session.
func (t *sessions) admit(c caller) *refusal {
	for {
		no := t.quota.acquire(c, 1)
		if no == nil || no.status != http.StatusServiceUnavailable || !t.evict() {
			return no
		}
	}
}

// newSession returns a session that is not in the table yet.
func (t *sessions) newSession(id string, c caller, queue *messageQueue) *session {
	s := &session{id: id, caller: c, queue: queue, users: 1}
	s.digest = digest(s.principal())
	if t.shared.SessionStore != nil && queue == nil {
		s.shared = &sharedState{key: t.opts.Sessions.key(id)}
	}
	return s
}

// add adds a session to the table.
func (t *sessions) add(s *session) *refusal {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errShutdown
	}
	t.byID[s.id] = s
	if t.sweeper == nil {
		t.sweeper = time.AfterFunc(t.sweepInterval(), t.sweep)
	}
	return nil
}

func (t *sessions) isKnown(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id] != nil
}

// acquire returns the session with an id, which the caller releases. It returns nil if the session
// belongs to another principal.
func (t *sessions) acquire(id, principal string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byID[id]
	if s == nil || s.principal() != principal {
		return nil
	}
	t.unlist(s)
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
	if s.users == 0 && s.caller.isAnonymous && t.byID[s.id] == s {
		s.list = t.listOf(s)
		s.list.push(s)
	}
}

// listOf returns the list of idle sessions for s.
func (t *sessions) listOf(s *session) *sessionList {
	if s.used {
		return &t.idle
	}
	return &t.unused
}

// unlist removes a session from its list of idle sessions, if it is in a list. The caller holds
// t.mu.
func (t *sessions) unlist(s *session) {
	if s.list != nil {
		s.list.remove(s)
		s.list = nil
	}
}

// remove removes a session from the table. The caller holds t.mu.
func (t *sessions) remove(s *session) {
	t.unlist(s)
	delete(t.byID, s.id)
}

// evict ends the anonymous session that was idle for the longest time, and reports whether there
// was one. Sessions without a request after initialize come first, since their clients lose least.
func (t *sessions) evict() bool {
	t.mu.Lock()
	s := t.unused.first
	if s == nil {
		s = t.idle.first
	}
	if s != nil {
		t.remove(s)
	}
	t.mu.Unlock()
	switch {
	case s == nil:
		return false
	case s.shared != nil && (s.used || s.shared.restored): // its client may use it at other processes
		t.drop(s, errSessionEvicted)
	default: // so that all anonymous clients together cannot fill the store
		t.finish(s, errSessionEvicted)
	}
	return true
}

// isOverloaded reports whether a session sent so many requests that its client must have stopped
// reading. In addition to the calls in flight, as many requests may wait to be refused.
func (t *sessions) isOverloaded(s *session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(s.users) > 2*t.opts.Sessions.MaxInFlight
}

func (t *sessions) end(s *session, cause error) {
	if t.take(s) {
		t.finish(s, cause)
	}
}

// take removes a session from the table, and reports whether it was there.
func (t *sessions) take(s *session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.byID[s.id] == s
	if known {
		t.remove(s)
	}
	return known
}

// finish ends a session that was removed from the table.
func (t *sessions) finish(s *session, cause error) {
	t.leave(s, cause)
	t.events.delete(sessionKey{s.id, s.digest})
}

// leave closes a session that was removed from the table.
func (t *sessions) leave(s *session, cause error) {
	t.quota.release(s.caller, 1)
	if s.shared != nil {
		t.shared.remove(s)
	}
	t.mu.Lock()
	stopping := t.stopping
	t.mu.Unlock()
	if s.close(stopping, cause) {
		if s.dropped && !errors.Is(cause, errSessionGone) { // dropped does not change any more
			cause = fmt.Errorf("%w: %w", cause, replica.ErrElsewhere)
		}
		t.over(s, cause)
	}
}

// pass ends a session that was removed from the table. If other processes serve it too, only this
// process forgets it.
func (t *sessions) pass(s *session, cause error) {
	if s.shared != nil {
		t.drop(s, cause)
	} else {
		t.finish(s, cause)
	}
}

// endAll ends all sessions. After ctx, it stores nothing more: a store that is slow must not delay it.
func (t *sessions) endAll(ctx context.Context, cause error) {
	t.mu.Lock()
	all := t.byID
	t.byID, t.closed, t.stopping = nil, true, ctx
	t.unused, t.idle = sessionList{}, sessionList{}
	t.mu.Unlock()
	for _, s := range all {
		t.pass(s, cause)
	}
}

// endShared ends the communication with other processes, after the calls that endAll canceled.
func (t *sessions) endShared() {
	t.sendChanges() // that the program announced before the end
	t.sendAnswers() // about the last events
	t.shared.end()
}

// sweepInterval is the interval at which idle sessions are closed: a quarter of the shortest
// timeout.
func (t *sessions) sweepInterval() time.Duration {
	return min(t.opts.Sessions.IdleTimeout, t.opts.Sessions.InitTimeout)/4 + 1
}

// sweep closes idle sessions. One timer serves all of them.
func (t *sessions) sweep() {
	for _, s := range t.removeIdle() {
		t.pass(s, errSessionIdle)
	}
	t.refreshStale()
	t.keep()
	t.shared.expire()
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
	for _, s := range t.byID {
		timeout := t.opts.Sessions.IdleTimeout
		if !s.used {
			timeout = t.opts.Sessions.InitTimeout
		}
		if s.users == 0 && now-s.touched >= timeout {
			t.remove(s)
			idle = append(idle, s)
		}
	}
	return idle
}

var (
	errSessionIdle    = fmt.Errorf("%w: session was idle", mcp.ErrClosed)
	errSessionEvicted = fmt.Errorf("%w: session was idle, and there were too many", mcp.ErrClosed)
)

// A sessionList is a list of idle sessions, the session that was idle longest first.
type sessionList struct{ first, last *session }

func (l *sessionList) push(s *session) {
	s.prev, s.next = l.last, nil
	if l.last != nil {
		l.last.next = s
	} else {
		l.first = s
	}
	l.last = s
}

func (l *sessionList) remove(s *session) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		l.last = s.prev
	}
	s.prev, s.next = nil, nil
}
