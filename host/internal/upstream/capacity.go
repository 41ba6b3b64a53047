package upstream

import (
	"errors"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
)

const (
	// maxLocal limits the connections to a server for the local user, whose clients are several programs.
	// maxPerPrincipal limits the connections for any other principal: it cannot take all processes of a
	// server.
	maxLocal        = 16
	maxPerPrincipal = 4
	// maxEnding limits the connections that are ending, as a multiple of the other connections.
	maxEnding = 2
)

// makeRoom makes room for another connection by ending an unused connection.
func (i *instance) makeRoom() error {
	p, u := i.pool, i.pool.up
	limit := u.entry().Settings.Instances
	most := min(maxPerPrincipal, limit)
	if p.caller.Principal == nil {
		most = min(maxLocal, limit)
	}
	if u.Share() == config.ShareShared {
		most = limit
	}
	mine := func(s *Conn) bool { return s.in.pool.caller.Key() == p.caller.Key() }
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

// errProcesses is wrapped by the error of a start that the limit of processes refuses.
var errProcesses = errors.New("too many processes")

// countProcess counts a process that is about to start, and ends an unused process if too many run. It reports whether
// the connection is a process.
func (i *instance) countProcess() (counted bool, err error) {
	p, u := i.pool, i.pool.up
	if !u.isCommand() {
		return false, nil
	}
	limit, principal := u.env.processLimit(), p.caller.Key()
	most := limit
	if p.caller.Principal != nil && u.Share() != config.ShareShared {
		most -= limit / 4 // for others
	}
	all, own := u.env.addProcess(principal, 1)
	if all <= limit && own <= most {
		return true, nil
	}
	now := time.Now()
	ends := func(s *Conn) bool { // a caller over its limit may end only its own processes
		used, _ := s.IdleSince(now)
		return (own <= most || s.in.pool.caller.Key() == principal) &&
			(s.in.pool.lists.WereRead() || now.Sub(used) >= listsExpected)
	}
	if all <= maxEnding*limit && own <= maxEnding*most && u.env.endIdle(u, ends) {
		return true, nil
	}
	u.env.addProcess(principal, -1)
	e := u.Errorf(hosterr.CodeLimited, "%w of all servers run: %d of at most %d for the caller, %d of at most %d in "+
		"total; share servers without state, or raise the setting limits.processes",
		errProcesses, own-1, most, all-1, limit)
	e.RetryAfter = limits.RetryAfter
	return false, e
}

// listsExpected is how long a process without a request is kept for its lists. Some callers read no lists.
const listsExpected = 10 * time.Second

// processWait is the delay before the next attempt to start a process that the limit has refused, unless
// another process ends or becomes unused earlier.
const processWait = time.Second

// endIdleProcess ends an unused process that matches, and reports whether there was any. The caller has
// locked the server locked. Servers that other goroutines have locked are skipped, so that two goroutines
// do not wait for each other.
func (s *Servers) endIdleProcess(locked *Server, matches func(*Conn) bool) (ended bool) {
	for _, u := range s.Current().servers {
		if !u.isCommand() || u != locked && !u.mu.TryLock() {
			continue
		}
		victim := u.longestIdle(matches)
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

// longestIdle returns the matching connection that was not used for the longest time, nil if all are
// in use.
func (u *Server) longestIdle(matches func(*Conn) bool) (oldest *Conn) {
	now := time.Now()
	var since time.Time
	for s := range u.connections {
		used, idle := s.IdleSince(now)
		if idle && matches(s) && (oldest == nil || used.Before(since)) && !s.in.pool.isWatched() {
			oldest, since = s, used
		}
	}
	return oldest
}

// Queue returns the queue of the requests of a pool, which shares it unless it owns its processes.
func (p *Pool) Queue() *limits.Queue {
	if inCluster(p.up) {
		return nil // the host that runs the server queues the requests of all hosts: see [Conn.serve]
	}
	if p.IsCommand() && p.Share() != config.ShareShared {
		return p.requests
	}
	return p.up.requests
}

// queuesLocked calls f for each queue.
func queuesLocked(u *Server, f func(q *limits.Queue)) {
	f(u.requests)
	for _, p := range u.pools {
		f(p.requests)
	}
}

// ApplyLimits applies changed limits, also to the requests that wait.
func (u *Server) ApplyLimits() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limits.Configure(u.entry().Settings)
	queuesLocked(u, (*limits.Queue).Update)
}
