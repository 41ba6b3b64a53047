package upstream

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/limit"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Status is the condition of a server at one time. Package host documents the fields.
type Status struct {
	State               connection.State // of the connection that is best able to serve
	Since               time.Time
	Revision            string
	Session             bool
	Requests, Suspended int
	Starts              int
	Err                 error
	Exit                *mcp.ExitError
	RetryAfter          time.Duration
	Limits              LimitStatus
	Conns               []ConnStatus // the oldest first
	// Restarts, Errors and Quarantined count from the time when the server was configured. Held is the
	// number of requests that wait for the operator.
	Restarts, Quarantined uint64
	Held                  int
	Errors                map[hosterr.Code]uint64
}

// A LimitStatus contains the figures of the limits of a server.
type LimitStatus struct {
	Running, Queued, Concurrency, Queue, Conns int
	Breaker                                    limit.BreakerState
	RetryAfter                                 time.Duration
	Refused                                    map[string]uint64
}

// A ConnStatus is the condition of one connection.
type ConnStatus struct {
	connection.Status
	ID     string
	Caller *policy.Caller // nil if the connection serves all callers
}

// order contains the states by how able to serve a server is, the best first.
var order = []connection.State{connection.StateReady, connection.StateDegraded, connection.StateStarting,
	connection.StateDraining, connection.StateAuth, connection.StateBackoff,
	connection.StateCrashLoop, connection.StateConfig, connection.StateStopped, connection.StateOff}

// Status returns the condition of the server.
func (u *Server) Status() *Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	st := &Status{State: connection.StateOff, Restarts: u.counts.restarts.Load(), Errors: u.counts.errors.All(),
		Quarantined: u.counts.quarantined.Load(), Held: int(u.counts.held.Load())}
	if u.stopped {
		st.State = connection.StateStopped
	}
	if u.entry().Invalid != nil {
		st.State = connection.StateConfig
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
	slices.SortFunc(st.Conns, func(a, b ConnStatus) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return st
}

// offer makes a state the state of the server if it is better than the present state.
func (st *Status) offer(state connection.State, since time.Time) {
	if st.Since.IsZero() || slices.Index(order, state) < slices.Index(order, st.State) {
		st.State, st.Since = state, since
	}
}

func (st *Status) addInstance(i *instance, now time.Time) {
	st.Starts += i.starts
	if i.err != nil {
		if s := i.current; s == nil || s.State() != connection.StateReady || i.swapFailed {
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
	in := ConnStatus{Status: *c, ID: s.ID()}
	if u := s.Pool().up; u.poolKey(s.Pool().Caller()) != "" {
		in.Caller = s.Pool().Caller()
	}
	if c.Revision != "" {
		st.Revision, st.Session = c.Revision, c.Session
	}
	st.offer(in.State, c.Since)
	st.Requests += in.Requests
	st.Suspended += in.Suspended
	st.Conns = append(st.Conns, in)
}

// limitsLocked returns the figures of the limits.
func (u *Server) limitsLocked(now time.Time) LimitStatus {
	s := u.entry().Settings
	st := LimitStatus{Concurrency: s.Concurrency, Queue: s.Queue, Conns: s.Instances, Breaker: limit.Closed,
		Refused: u.limits.Refused()}
	queuesLocked(u, func(q *limits.Queue) {
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
