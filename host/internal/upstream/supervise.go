package upstream

import (
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/internal/limit"
)

const (
	// maxLocal bounds the connections to one server for the local user, whose clients are several
	// programs. maxPerPrincipal bounds those of any other principal: it cannot take all processes of a
	// server.
	maxLocal        = 16
	maxPerPrincipal = 4
	// maxPools bounds the sessions or principals whose lists of one server are kept, as there are views.
	maxPools = 1000
	// maxEnding bounds the connections that are ending, as a multiple of those that are not.
	maxEnding = 2
	// idleCheck is the time until a start that a limit has refused is tried again.
	idleCheck = time.Minute
	// poolAge is how long the lists of a session or principal without connections are kept.
	poolAge = time.Hour
)

// Wake makes the supervisor check all connections. It never blocks.
func (s *Servers) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

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

// check does what is due, and returns when it has to be called again.
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
		if p.isUnused(now) {
			p.lists.Retire()
			delete(u.pools, key)
		}
	}
	return next
}

// check stops a connection that is idle, or that was replaced and serves no requests. It returns when
// to check again, zero for not before the next event.
func (s *Conn) check(now time.Time) (due time.Time) {
	idle := time.Duration(s.in.Pool.up.entry().Settings.Idle)
	due, stop := s.Check(now, idle, idle > 0 && s.in.Pool.isWatched())
	if stop {
		s.stopLocked()
	}
	return due
}

// check begins the start that a subscription waits for, and replaces a connection whose entry has changed.
func (i *instance) check(now time.Time) (due time.Time) {
	if i.current != nil && i.current.isOutdated() {
		return i.swap(now)
	}
	if i.calls || i.current != nil || i.next != nil || i.backoff.Until.IsZero() || !i.Pool.isWatched() {
		return due
	}
	switch i.state {
	case connection.StateBackoff, connection.StateCrashLoop, connection.StateAuth, connection.StateConfig:
	default:
		return due
	}
	if due = i.startsAtLocked(); now.Before(due) {
		return due
	}
	s, err := i.begin()
	if err != nil {
		return now.Add(idleCheck)
	}
	i.current = s
	return time.Time{}
}

// isUnused reports whether a pool is of a session or a principal that has not used it for long. The
// lock of the upstream is held.
func (p *Pool) isUnused(now time.Time) bool {
	if p.caller.Session == "" && p.caller.Principal == nil || p.isWatched() {
		return false
	}
	for s := range p.up.connections {
		if s.in.Pool == p {
			return false
		}
	}
	return now.Sub(p.used) > poolAge
}

// evictPool removes a pool that has no connections and no subscriptions, of the principal with the most
// pools: the one that was not used for the longest time. The lock is held.
func (u *Server) evictPool() {
	connected := map[*Pool]struct{}{}
	for s := range u.connections {
		connected[s.in.Pool] = struct{}{}
	}
	counts := map[string]int{}
	for _, p := range u.pools {
		counts[p.caller.Key()]++
	}
	var oldest *Pool
	most := 0
	for _, p := range u.pools {
		n := counts[p.caller.Key()]
		if n < most || n == most && oldest != nil && !p.used.Before(oldest.used) {
			continue
		}
		if _, ok := connected[p]; !ok && !p.isWatched() {
			oldest, most = p, n
		}
	}
	if oldest != nil {
		oldest.lists.Retire()
		delete(u.pools, oldest.key)
	}
}

// makeRoom makes room for one more connection, by ending one that is not used. The lock is held.
func (u *Server) makeRoom(p *Pool) error {
	limit := u.entry().Settings.Instances
	most := min(maxPerPrincipal, limit)
	if p.caller.Principal == nil {
		most = min(maxLocal, limit)
	}
	if u.Share() == config.ShareShared {
		most = limit
	}
	mine := func(s *Conn) bool { return s.in.Pool.caller.Key() == p.caller.Key() }
	var all, own, ending, ownEnding int
	for s := range u.connections {
		switch stopping := s.IsStopping(); {
		case stopping && mine(s):
			ownEnding++
			fallthrough
		case stopping:
			ending++
		case mine(s):
			own++
			fallthrough
		default:
			all++
		}
	}
	var victim *Conn
	switch {
	case all+ending >= maxEnding*limit || own+ownEnding >= maxEnding*most:
	case own >= most:
		victim = u.longestIdle(mine)
	case all >= limit:
		victim = u.longestIdle(func(*Conn) bool { return true })
	default:
		return nil
	}
	if victim == nil {
		return u.limits.Refuse(hosterr.CodeLimited, "instances", limits.RetryAfter,
			"too many instances are in use: %d of at most %d "+
				"for a caller, %d of at most %d in total; share the server, or raise its setting instances",
			own, most, all, limit)
	}
	victim.stopLocked()
	return nil
}

// countProcess counts a process that is to start among those of all servers, and ends one of another
// server that is not used if there are too many. The lock is held.
func (u *Server) countProcess(p *Pool) error {
	if !u.isCommand() {
		return nil
	}
	limit, principal := u.servers.Current().settings.Limits.Processes, p.caller.Key()
	most := limit
	if p.caller.Principal != nil && u.Share() != config.ShareShared {
		most -= limit / 4 // for others
	}
	all, own := u.servers.addProcess(principal, 1)
	if all <= limit && own <= most {
		return nil
	}
	if all < maxEnding*limit && own <= most && u.servers.endIdle(u) {
		return nil
	}
	u.servers.addProcess(principal, -1)
	return u.limits.Refuse(hosterr.CodeLimited, "limits.processes", limits.RetryAfter,
		"too many processes of all servers run: %d of at "+
			"most %d for the caller, %d of at most %d in total; share servers without state, or raise the setting "+
			"limits.processes", own-1, most, all-1, limit)
}

// endIdle ends a process that is not used, and reports whether there was any. The lock of one server is
// held. A server whose lock another goroutine holds is left out, so that two of them do not wait for each
// other.
func (s *Servers) endIdle(locked *Server) (ended bool) {
	for _, u := range s.Current().servers {
		if !u.isCommand() || u != locked && !u.mu.TryLock() {
			continue
		}
		victim := u.longestIdle(func(*Conn) bool { return true })
		if victim != nil {
			victim.stopLocked()
		}
		if u != locked {
			u.mu.Unlock()
		}
		if victim != nil {
			return true
		}
	}
	return false
}

// A processCount holds the number of processes of all servers by principal.
type processCount struct {
	all int
	by  map[string]int
}

// addProcess adds to the number of processes of a principal, and returns the numbers of all and of the
// principal.
func (s *Servers) addProcess(principal string, n int) (all, own int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.processes
	if c.by == nil {
		c.by = map[string]int{}
	}
	c.all += n
	own = c.by[principal] + n
	if c.by[principal] = own; own == 0 {
		delete(c.by, principal)
	}
	return c.all, own
}

// longestIdle returns the matching connection that was not used for the longest time, nil if all are
// in use.
func (u *Server) longestIdle(matches func(*Conn) bool) (oldest *Conn) {
	now := time.Now()
	var since time.Time
	for s := range u.connections {
		used, idle := s.IdleSince(now)
		if idle && matches(s) && (oldest == nil || used.Before(since)) && !s.in.Pool.isWatched() {
			oldest, since = s, used
		}
	}
	return oldest
}

// EndSession ends the connections and pools of a session.
func (u *Server) EndSession(session string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for s := range u.connections {
		if s.in.Pool.caller.Session == session {
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

// Queue returns the queue of the requests of a pool, which shares it unless it owns its processes.
func (p *Pool) Queue() *limits.Queue {
	if p.IsCommand() && p.Share() != config.ShareShared {
		return p.requests
	}
	return p.up.requests
}

// queues calls f for each queue. The caller must hold u.mu.
func (u *Server) queues(f func(q *limits.Queue)) {
	f(u.requests)
	for _, p := range u.pools {
		f(p.requests)
	}
}

// applyLimits applies changed limits, also to the requests that wait.
func (u *Server) applyLimits() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limits.Configure(u.entry().Settings)
	u.queues((*limits.Queue).Update)
}

// LimitStatus returns the figures of the limits. The caller must hold u.mu.
func (u *Server) LimitStatus(now time.Time) LimitStatus {
	s := u.entry().Settings
	st := LimitStatus{Concurrency: s.Concurrency, Queue: s.Queue, Conns: s.Instances, Breaker: limit.Closed,
		Refused: u.limits.Refused()}
	u.queues(func(q *limits.Queue) {
		running, waiting := q.Len()
		st.Running += running
		st.Queued += waiting
	})
	for _, p := range u.pools {
		for _, i := range p.instances {
			state, wait := i.breaker.State(now)
			if state == limit.Open || state == limit.HalfOpen && st.Breaker == limit.Closed {
				st.Breaker = state
			}
			st.RetryAfter = max(st.RetryAfter, wait)
		}
	}
	return st
}
