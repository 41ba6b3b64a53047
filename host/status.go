package host

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// An Upstream is a configured server. It is safe for concurrent use.
type Upstream struct{ server *upstream.Server }

// Name returns the name of the server in the configuration.
func (u *Upstream) Name() string { return u.server.Name() }

// Restart connects to the server again, for every caller with an instance, and waits until the new
// instances are ready. Only then do they replace the old instances, which end with their last
// request: after 30 seconds at the latest, but not before their suspended requests. An instance
// that cannot be replaced stays in use; the error joins the reasons. Restart also ends a delay
// after failures and the effect of [Upstream.Stop]. ctx limits the waiting only.
func (u *Upstream) Restart(ctx context.Context) error { return u.server.Restart(ctx) }

// Stop ends all instances and the requests that they serve. Until [Upstream.Restart] or
// [Host.Start], requests for the server fail. Stop returns when the processes end, within 11
// seconds.
func (u *Upstream) Stop() { u.server.Stop() }

// A StderrLine is a line from the standard error of a process of a server.
type StderrLine struct {
	// Number is the number of the line among all of the server, from 1.
	Number uint64
	Time   time.Time
	// Instance identifies the instance that wrote the line; see [InstanceStatus].
	Instance string
	// Text is the line, with control and other invisible characters in the form of Go strings, such
	// as \x1b: it comes from the server and must not be trusted. Lines of more than 16 KiB are cut.
	Text string
}

// Stderr returns the last lines from the standard error of the server's processes, the oldest
// first: at most 256 KiB. They contain "[secret]" in place of secrets of the configuration.
func (u *Upstream) Stderr() []StderrLine {
	var lines []StderrLine
	for _, l := range u.server.Stderr() {
		lines = append(lines, StderrLine{Number: l.Number, Time: l.Time, Instance: l.ConnID, Text: l.Text})
	}
	return lines
}

// An UpstreamStatus is the condition of a server at a moment.
type UpstreamStatus struct {
	// State is that of the instance that is best able to serve, and Since is when it began.
	State State
	Since time.Time
	// Revision is the protocol revision of the connection, or empty without a connection. Session
	// reports whether the connection belongs to the session era, before 2026-07-28.
	Revision string
	Session  bool
	// Requests counts the requests in progress, and Suspended the requests that wait for an answer
	// of their caller.
	Requests, Suspended int
	// Starts is the number of processes or connections so far.
	Starts int
	// Err is the last failure; nil means that no instance failed since an instance became ready.
	// The text may come from the server and must not be trusted.
	Err error
	// Exit describes the exit of the last process that ended by itself; nil means that none did.
	Exit *mcp.ExitError
	// RetryAfter is the time until a delayed start may begin; zero means no delay.
	RetryAfter time.Duration
	// Limits are the figures of the limits of requests.
	Limits LimitStatus
	// Instances are the connections and attempts to connect, the oldest first.
	Instances []InstanceStatus
}

// An InstanceStatus is the condition of an instance: a connection, and a process if the server is a
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

// Status returns the condition of the server.
func (u *Upstream) Status() *UpstreamStatus {
	s := u.server.Status()
	st := &UpstreamStatus{State: State(s.State), Since: s.Since, Revision: s.Revision, Session: s.Session,
		Requests: s.Requests, Suspended: s.Suspended, Starts: s.Starts, Err: s.Err, Exit: s.Exit,
		RetryAfter: s.RetryAfter, Limits: LimitStatus{Running: s.Limits.Running, Queued: s.Limits.Queued,
			Concurrency: s.Limits.Concurrency, Queue: s.Limits.Queue, Instances: s.Limits.Conns,
			Breaker: BreakerState(s.Limits.Breaker), RetryAfter: s.Limits.RetryAfter, Refused: s.Limits.Refused}}
	for _, c := range s.Conns {
		st.Instances = append(st.Instances, InstanceStatus{ID: c.ID, State: State(c.State), Since: c.Since,
			Caller: c.Caller, PID: c.PID, Revision: c.Revision, Requests: c.Requests, Suspended: c.Suspended,
			Unenforced: c.Unenforced})
	}
	return st
}

// A LimitStatus contains the figures of the limits of a server at a moment. See
// [config.ServerSettings] and [config.CallerLimits].
type LimitStatus struct {
	// Running is the number of requests at the server, and Queued the number of requests that wait for
	// their turn. Requests that wait for an answer of their caller do not count.
	Running, Queued int
	// Concurrency and Queue are the configured limits of Running and Queued: of each process if the server
	// is a command that is not shared.
	Concurrency, Queue int
	// Instances is the limit of processes or connections of the server.
	Instances int
	// Breaker is the state of the breaker that refuses most, and RetryAfter the time until it tries the
	// server again.
	Breaker    BreakerState
	RetryAfter time.Duration
	// Refused counts the requests that each setting refused since the server was configured. A key
	// is a setting, such as "concurrency" or "limits.perCaller".
	Refused map[string]uint64
}

// A BreakerState tells whether requests are sent to a server.
type BreakerState string

// States of a breaker.
const (
	BreakerClosed   BreakerState = "closed"    // all requests are sent
	BreakerOpen     BreakerState = "open"      // requests are refused
	BreakerHalfOpen BreakerState = "half-open" // one request at a time tries the server
)
