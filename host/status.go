package host

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// An UpstreamStatus is the condition of a server at one time.
type UpstreamStatus struct {
	// State is that of the instance that is best able to serve, and Since is when it began.
	State State
	Since time.Time
	// Revision is the protocol revision of the connection, empty without one. Session reports whether
	// it is of the session era, before 2026-07-28.
	Revision string
	Session  bool
	// Requests is the number of requests in progress, and Suspended the number of those that wait for
	// an answer of their caller.
	Requests, Suspended int
	// Starts is the number of processes or connections so far.
	Starts int
	// Err is the last failure, nil if there was none or an instance has become ready since. The text
	// may come from the server and must not be trusted.
	Err error
	// Exit is how the last process that has ended by itself did so, nil if there is none.
	Exit *mcp.ExitError
	// RetryAfter is when a delayed start may begin; zero if none is delayed.
	RetryAfter time.Duration
	// Limits are the figures of the limits of requests.
	Limits LimitStatus
	// Instances are the connections and attempts to connect, the oldest first.
	Instances []InstanceStatus
}

// An InstanceStatus is the condition of one instance: a connection, and a process if the server is a
// command.
type InstanceStatus struct {
	// ID identifies the instance. It is random.
	ID    string
	State State
	Since time.Time
	// Caller is the caller that the instance serves, if it does not serve all.
	Caller *policy.Caller
	// PID is the id of the process, zero if it is not known.
	PID                 int
	Revision            string
	Requests, Suspended int
	// Unenforced lists the limits of the process that the system cannot enforce, such as "cpu". It
	// is empty unless the setting bestEffort allows the process to run without them.
	Unenforced []string
}

// order is how able to serve a server is, the best first.
var order = []State{StateReady, StateDegraded, StateStarting, StateDraining, StateAuth, StateBackoff,
	StateCrashLoop, StateConfig, StateStopped, StateOff}

// Status returns the condition of the server.
func (u *Upstream) Status() *UpstreamStatus {
	u.mu.Lock()
	defer u.mu.Unlock()
	st := &UpstreamStatus{State: StateOff}
	if u.stopped {
		st.State = StateStopped
	}
	if u.entry().Invalid != nil {
		st.State, st.Err = StateConfig, u.errorf(hosterr.CodeConfigError, "%w", withoutServer(u.entry().Invalid, u.name))
	}
	now := time.Now()
	st.Limits = u.limitStatus(now)
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
	slices.SortFunc(st.Instances, func(a, b InstanceStatus) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return st
}

// offer makes a state that of the server if it is better than the present one.
func (st *UpstreamStatus) offer(state State, since time.Time) {
	if st.Since.IsZero() || slices.Index(order, state) < slices.Index(order, st.State) {
		st.State, st.Since = state, since
	}
}

func (st *UpstreamStatus) addInstance(i *instance, now time.Time) {
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
		st.RetryAfter = max(st.RetryAfter, i.startsAtLocked().Sub(now), 0)
	}
}

func (st *UpstreamStatus) add(s *conn, c *connection.Status) {
	in := InstanceStatus{ID: s.ID(), State: State(c.State), Since: c.Since, PID: c.PID, Requests: c.Requests,
		Suspended: c.Suspended, Revision: c.Revision, Unenforced: c.Unenforced}
	if u := s.pool().up; u.poolKey(s.pool().Caller()) != "" {
		in.Caller = s.pool().Caller()
	}
	if c.Revision != "" {
		st.Revision, st.Session = c.Revision, c.Session
	}
	st.offer(in.State, c.Since)
	st.Requests += in.Requests
	st.Suspended += in.Suspended
	st.Instances = append(st.Instances, in)
}
