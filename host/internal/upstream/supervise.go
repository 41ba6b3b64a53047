package upstream

import (
	"time"

	"github.com/patchbay-mcp/patchbay/host/status"
)

const (
	// idleCheck is the delay of the next attempt after a limit refused a start.
	idleCheck = time.Minute
	// poolAge is how long the lists of a session or principal without connections are kept.
	poolAge = time.Hour
)

// supervise stops idle connections and begins delayed starts until the host is closed.
func (s *Servers) supervise() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		next := now.Add(poolAge)
		for _, u := range s.All() {
			if due := u.check(now); due.Before(next) {
				next = due
			}
		}
		s.endLeases()
		s.forgetRemoved()
		timer.Reset(max(time.Until(next), 0))
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.Context.Done():
			return
		}
	}
}

// check does the work that is due, and returns when it must be called again.
func (u *Server) check(now time.Time) (next time.Time) {
	next = now.Add(poolAge)
	u.mu.Lock()
	defer u.mu.Unlock()
	for s := range u.connections {
		if due := s.check(now); !due.IsZero() && due.Before(next) {
			next = due
		}
	}
	for key, p := range u.pools {
		for _, i := range p.instances {
			if due := i.check(now); !due.IsZero() && due.Before(next) {
				next = due
			}
		}
		if p.isUnusedLocked(now) {
			p.lists.Retire()
			delete(u.pools, key)
		}
	}
	return next
}

// check stops a connection that is idle, or that was replaced and serves no requests. It returns when
// to check again, zero for not before the next event.
func (s *Conn) check(now time.Time) (due time.Time) {
	idle := time.Duration(s.in.pool.up.entry().Settings.Idle)
	due, stop := s.Check(now, idle, idle > 0 && s.in.pool.isWatched())
	if stop {
		s.stopLocked()
	}
	return due
}

// check begins the start that a subscription waits for, and replaces a connection after a change of
// its entry.
func (i *instance) check(now time.Time) (due time.Time) {
	if i.current != nil && i.current.isOutdatedLocked() {
		return i.swap(now)
	}
	if i.calls || i.current != nil || i.next != nil || i.backoff.Until.IsZero() || !i.pool.isWatched() {
		return due
	}
	switch i.state {
	case status.Backoff, status.CrashLoop, status.Auth, status.Config:
	default:
		return due
	}
	if due = i.startsAt(); now.Before(due) {
		return due
	}
	s, err := i.begin()
	if err != nil {
		return now.Add(idleCheck)
	}
	i.current = s
	return time.Time{}
}

// isUnusedLocked reports whether a pool of a session or principal was not used for poolAge.
func (p *Pool) isUnusedLocked(now time.Time) bool {
	if p.caller.Session == "" && p.caller.Principal == nil || now.Sub(p.used) <= poolAge || p.isWatched() {
		return false // most pools end here, so that a check of all pools is not quadratic
	}
	for s := range p.up.connections {
		if s.in.pool == p {
			return false
		}
	}
	return true
}

// EndSession ends the connections and pools of a session.
func (u *Server) EndSession(session string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for s := range u.connections {
		if s.in.pool.caller.Session == session {
			s.stopLocked()
		}
	}
	for key, p := range u.pools {
		if p.caller.Session == session {
			p.lists.Retire()
			delete(u.pools, key)
		}
	}
}
