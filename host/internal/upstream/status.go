package upstream

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/internal/limit"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Status is the condition of a server at a moment, with counts since the server was configured.
type Status struct {
	status.Server
	Restarts, Quarantined uint64
	Held                  int // requests that wait for the operator
	Errors                map[hosterr.Code]uint64
}

// order contains the states by how able to serve a server is, the best first.
var order = []status.State{status.Ready, status.Degraded, status.Starting, status.Draining, status.Auth,
	status.Backoff, status.CrashLoop, status.Config, status.Stopped, status.Off}

// Status returns the condition of the server.
func (u *Server) Status() *Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	st := &Status{Server: status.Server{State: status.Off}, Restarts: u.counts.restarts.Load(),
		Errors: u.counts.errors.All(), Quarantined: u.counts.quarantined.Load(), Held: int(u.counts.held.Load())}
	if u.stopped {
		st.State = status.Stopped
	}
	if u.entry().Invalid != nil {
		st.State = status.Config
		st.Err = u.Errorf(hosterr.CodeConfigError, "%w", withoutServer(u.entry().Invalid, u.name))
	}
	now := time.Now()
	st.Limits = u.limitsLocked(now)
	for _, p := range u.pools {
		for _, i := range p.instances {
			st.addInstance(i, now)
		}
	}
	for s := range u.connections {
		if c := s.Status(); !c.Stopping {
			st.add(s, &c)
		}
	}
	slices.SortFunc(st.Instances, func(a, b status.Instance) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return st
}

// offer makes a state the state of the server if it is better than the present state.
func (st *Status) offer(state status.State, since time.Time) {
	if st.Since.IsZero() || slices.Index(order, state) < slices.Index(order, st.State) {
		st.State, st.Since = state, since
	}
}

func (st *Status) addInstance(i *instance, now time.Time) {
	st.Starts += i.starts
	if i.err != nil {
		if s := i.current; s == nil || s.State() != status.Ready || i.swapFailed {
			st.Err = i.err
		}
		if exit, ok := errors.AsType[*mcp.ExitError](i.err); ok {
			st.Exit = exit
		}
	}
	if i.current == nil && !i.calls {
		st.offer(i.state, i.since)
		st.RetryAfter = max(st.RetryAfter, i.startsAt().Sub(now), 0)
	}
}

func (st *Status) add(s *Conn, c *connection.Status) {
	in := c.Instance
	if u := s.Pool().up; u.poolKey(s.Pool().Caller()) != "" {
		in.Caller = s.Pool().Caller()
	}
	if c.Revision != "" {
		st.Revision, st.Session = c.Revision, c.Session
	}
	st.offer(in.State, c.Since)
	st.Requests += in.Requests
	st.Suspended += in.Suspended
	st.Instances = append(st.Instances, in)
}

// limitsLocked returns the figures of the limits.
func (u *Server) limitsLocked(now time.Time) status.Limits {
	s := u.entry().Settings
	st := status.Limits{Concurrency: s.Concurrency, Queue: s.Queue, Instances: s.Instances,
		Breaker: status.BreakerClosed, Refused: u.limits.Refused()}
	queuesLocked(u, func(q *limits.Queue) {
		running, waiting := q.Len()
		st.Running += running
		st.Queued += waiting
	})
	for _, p := range u.pools {
		for _, i := range p.instances {
			state, wait := i.breaker.State(now)
			if state == limit.Open || state == limit.HalfOpen && st.Breaker == status.BreakerClosed {
				st.Breaker = status.Breaker(state)
			}
			st.RetryAfter = max(st.RetryAfter, wait)
		}
	}
	return st
}
