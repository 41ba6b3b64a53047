package mcphttp

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// tableParts is how many locks a table of sessions has: enough that two requests seldom want the same one, and that
// looking through one part holds up nobody.
const tableParts = 64

// endSessionTimeout bounds [EventStore.EndSession], which may be called without a request.
const endSessionTimeout = 10 * time.Second

// sessions is the table of all sessions of a handler.
type sessions struct {
	opts   *Options
	config legacy.Config
	quota  *quota
	begin  time.Time // times are kept as distances from it
	seed   maphash.Seed
	parts  [tableParts]tablePart
	change atomic.Pointer[encodedChange] // told last

	mu      sync.Mutex // guards the fields below
	live    int
	sweeper *time.Timer // runs while there are sessions
}

// A tablePart holds the sessions whose ids have one hash.
type tablePart struct {
	mu     sync.Mutex // guards the fields below
	byID   map[string]*session
	closed bool
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
		seed:  maphash.MakeSeed(),
	}
}

// part returns the part of the table in which a session with that id is, if there is one.
func (t *sessions) part(id string) *tablePart {
	return &t.parts[maphash.String(t.seed, id)%tableParts]
}

// open makes a session; queue is that of its stream if it is one of HTTP+SSE. It is in use until it is released.
func (t *sessions) open(principal string, queue *messageQueue) (*session, *refusal) {
	if no := t.quota.take(principal); no != nil {
		return nil, no
	}
	s := &session{id: rand.Text(), principal: principal, digest: digest(principal), queue: queue, users: 1}
	s.part = t.part(s.id)
	if !s.part.add(s) {
		t.quota.give(principal)
		return nil, refuseBusy(http.StatusServiceUnavailable, "server is shutting down")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live++
	if t.sweeper == nil {
		t.sweeper = time.AfterFunc(t.sweepInterval(), t.sweep)
	}
	return s, nil
}

// add enters a new session, unless the table is closed.
func (p *tablePart) add(s *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if p.byID == nil {
		p.byID = make(map[string]*session)
	}
	p.byID[s.id] = s
	return true
}

// acquire returns the session with that id, if it is the principal's. It is in use until it is released.
func (t *sessions) acquire(id, principal string) *session {
	p := t.part(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.byID[id]
	if s == nil || s.principal != principal {
		return nil
	}
	s.users++
	s.used = true
	return s
}

func (t *sessions) release(s *session) {
	now := time.Since(t.begin)
	p := s.part
	p.mu.Lock()
	defer p.mu.Unlock()
	s.users--
	s.touched = now
}

// isCrowded reports whether so much goes on in a session that its client must have stopped to read answers. Beside the
// calls that may be in flight, as many requests may wait to be told that they are too many.
func (t *sessions) isCrowded(s *session) bool {
	p := s.part
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(s.users) > 2*t.opts.Sessions.MaxInFlight
}

// end takes a session out of the table and ends what goes on in it.
func (t *sessions) end(s *session, cause error) {
	p := s.part
	p.mu.Lock()
	known := p.byID[s.id] == s
	delete(p.byID, s.id)
	p.mu.Unlock()
	if known {
		t.finish(s, cause)
	}
}

// finish ends a session that is no longer in the table.
func (t *sessions) finish(s *session, cause error) {
	t.mu.Lock()
	t.live--
	t.mu.Unlock()
	t.quota.give(s.principal)
	s.close(cause)
	ctx, cancel := context.WithTimeout(context.Background(), endSessionTimeout)
	defer cancel()
	if err := t.opts.Sessions.Events.EndSession(ctx, s.id, s.digest); err != nil {
		t.opts.Logger.ErrorContext(ctx, "mcphttp: events of a session not forgotten", "error", err)
	}
}

func (t *sessions) endAll(cause error) {
	for i := range t.parts {
		for _, s := range t.parts[i].close() {
			t.finish(s, cause)
		}
	}
}

// close lets no session in any more, and gives those that were in it.
func (p *tablePart) close() map[string]*session {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.byID
	p.byID, p.closed = nil, true
	return all
}

// sweepInterval is how often sessions are looked through for those that are idle: often enough for the shortest timeout
// to mean what it says.
func (t *sessions) sweepInterval() time.Duration {
	return min(t.opts.Sessions.IdleTimeout, t.opts.Sessions.InitTimeout)/4 + 1
}

// sweep ends idle sessions. One timer serves them all.
func (t *sessions) sweep() {
	now := time.Since(t.begin)
	for i := range t.parts {
		for _, s := range t.takeIdle(&t.parts[i], now) {
			t.finish(s, errSessionIdle)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live > 0 {
		t.sweeper.Reset(t.sweepInterval())
	} else {
		t.sweeper = nil
	}
}

// takeIdle takes the sessions out of a part of the table that were idle for too long.
func (t *sessions) takeIdle(p *tablePart, now time.Duration) (idle []*session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, s := range p.byID {
		timeout := t.opts.Sessions.IdleTimeout
		if !s.used {
			timeout = t.opts.Sessions.InitTimeout
		}
		if s.users == 0 && now-s.touched >= timeout {
			delete(p.byID, id)
			idle = append(idle, s)
		}
	}
	return idle
}

var errSessionIdle = fmt.Errorf("%w: session was idle", mcp.ErrClosed)
