package upstream

import (
	"maps"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/status"
)

const (
	// swapInterval is the shortest time between two attempts to replace a connection after a change
	// of the configuration: programs write files several times in sequence.
	swapInterval = time.Second
	// swapRetry is the time between two attempts after a failure.
	swapRetry = time.Minute
)

// swap begins to connect with the present entry, in place of the current connection. It returns when to
// check again.
func (i *instance) swap(now time.Time) (due time.Time) {
	if n := i.next; n != nil && !n.isOutdatedLocked() {
		return due
	}
	wait := swapInterval
	if i.swapFailed {
		wait = swapRetry
	}
	if due = i.swapped.Add(wait); now.Before(due) {
		return due
	}
	i.swapped, i.swapFailed = now, false
	if n := i.next; n != nil {
		n.replaced, i.next = true, nil
		n.stopLocked()
	}
	if _, err := i.restart(); err != nil { // too many connections are ending
		return now.Add(swapInterval)
	}
	return time.Time{}
}

// hasOutdated reports whether some connection has another fingerprint.
func (u *Server) hasOutdated(wanted server.Fingerprint) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range u.pools {
		for _, i := range p.instances {
			if s := i.current; s != nil && s.fingerprint != (server.Fingerprint{}) && s.fingerprint != wanted {
				return true
			}
		}
	}
	return false
}

// remove ends the connections of a server that was removed from the configuration, each with its
// last request. Another server may use its name now.
func (u *Server) remove(successor *Server) {
	u.mu.Lock()
	u.removed = true
	stopped := u.stopped
	for s := range u.connections {
		switch c := s.Status(); {
		case c.State == status.Starting:
			s.replaced = true
			if s.in.current == s {
				s.in.current = nil
			}
			s.stopLocked()
		case !c.Stopping && c.State != status.Draining:
			if s.in.current == s {
				s.in.current, s.in.state = nil, status.Off
			}
			s.drainLocked()
		}
	}
	pools := slices.Collect(maps.Values(u.pools))
	for _, p := range pools {
		for _, i := range p.instances {
			i.wake()
		}
	}
	u.mu.Unlock()
	if successor != nil && stopped {
		successor.mu.Lock()
		successor.stopped = true
		successor.mu.Unlock()
	}
	for _, p := range pools {
		p.lists.Close()
	}
}

// reconfigure makes the supervisor replace the connections with another fingerprint. For a changed
// server it ends the delay of starts after failures.
func (u *Server) reconfigure(wanted server.Fingerprint, changed bool) {
	u.mu.Lock()
	now := time.Now()
	u.wanted = wanted
	if changed {
		u.endDelayLocked()
	}
	var unconnected []*Pool
	for _, p := range u.pools {
		connected := false
		for _, i := range p.instances {
			if connected = connected || i.current != nil; !changed {
				continue
			}
			i.swapFailed = false
			if i.current == nil && !i.backoff.Until.IsZero() {
				i.backoff = connection.Backoff{Until: now}
				i.wake()
			}
		}
		if changed && !connected {
			unconnected = append(unconnected, p)
		}
	}
	u.mu.Unlock()
	for _, p := range unconnected {
		p.lists.SetReviewer(p.reviewer(u.entry().pins))
		p.lists.AllChanged()
	}
}

// isGone reports whether the server was removed and its connections have ended.
func (u *Server) isGone() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.removed && len(u.connections) == 0
}
