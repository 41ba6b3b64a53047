package connection

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/proclimit"
	"github.com/patchbay-mcp/patchbay/host/internal/sandbox"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// drainTimeout limits how long the requests of a replaced connection may continue.
const drainTimeout = 30 * time.Second

var (
	// ErrNotReady is wrapped by the error of an attempt that exceeds [Options.StartTimeout].
	ErrNotReady = errors.New("the server did not become ready")
	// ErrEnded reports that a server closed the connection without a reason.
	ErrEnded = fmt.Errorf("%w: the server has ended the connection", mcp.ErrDisconnected)
	// ErrHangs reports that a process was ended because it did not respond.
	ErrHangs = errors.New("the server did not respond to any check")
)

// A Forwarder forwards requests to the server of a connection.
type Forwarder = driver.Forwarder[*mcp.Request, mcp.Result]

// An EventKind identifies a change of a connection.
type EventKind uint8

// Kinds of events, in the order in which they occur.
const (
	// Connected reports the end of the attempt to connect, successful or not: see Event.Err. The
	// receiver must call [Conn.Finish].
	Connected EventKind = iota + 1
	// SessionLost reports that the server no longer knows the session. The next request opens another
	// session.
	SessionLost
	// Lost reports that the connection ended by itself, for the reason Event.Err. The receiver must
	// call [Conn.Stop].
	Lost
	// Unused reports that the last request of a connection that ends with its requests returned,
	// but that something else keeps the connection busy.
	Unused
	// Stopped reports that the connection ends because its last request returned.
	Stopped
	// Ended reports that the connection is closed and its process exited.
	Ended
)

// An Event reports a change of a connection.
type Event struct {
	Kind EventKind
	Err  error
}

// Options configure a connection. All fields but Single, Command and After are required.
type Options struct {
	// StartTimeout limits the attempt to connect.
	StartTimeout time.Duration
	// Command means that the connection owns a process, which must not be started again.
	Command bool
	// Single means that the connection serves a single call, and ends with it.
	Single bool
	// After is an earlier connection whose process must end before this connection begins: two
	// processes of a server might use the same files. It may be nil.
	After *Conn
	// Prepare returns the settings of the attempt, and the context for Dial.
	Prepare func(ctx context.Context) (context.Context, *Setup, error)
	// Dial returns the transport to a server.
	Dial func(ctx context.Context, s *config.Server) (mcp.Transport, error)
	// Notify receives the events of the connection. The connection holds no lock when it calls Notify.
	Notify func(e Event)
	// Go runs a function in a goroutine that the owner waits for.
	Go func(f func())
	// Stderr receives the lines that the process writes to its standard error.
	Stderr *Stderr
	// Logger receives warnings.
	Logger *slog.Logger
}

// A Setup contains the settings of an attempt to connect.
type Setup struct {
	Server  *config.Server // expanded
	Client  *mcp.ClientOptions
	Era     config.Era
	Limits  config.Limits
	Sandbox *config.Sandbox // nil without
}

// A Conn is a connection to a server, from dialing to close. For a stdio server it owns the
// process. It is safe for concurrent use.
type Conn struct {
	attempt
	options *Options
	cancel  context.CancelCauseFunc
	limiter *proclimit.Limiter // of the process; may be nil. Only Run uses it.
	sandbox *sandbox.Sandbox   // of the process; may be nil. Only Run uses it.

	mu             sync.Mutex // guards the fields below
	state          status.State
	since          time.Time // of state
	users          int       // requests in progress
	resumed        int       // requests in progress that continue after a question to their caller
	used           time.Time // the end of the last request
	answerDeadline time.Time // until when a caller may answer a question of a modern server
	cut            time.Time // when the requests of a replaced connection are ended
	tasks          tasks
	stopping       bool
	checking       bool     // a check of its health is in progress
	pid            int      // of the process; 0 if unknown
	unenforced     []string // limits of the process that the system cannot enforce
	// lostSession is the Done channel of a session that the server lost, until a request opens
	// another session, whose Done channel renewed receives.
	lostSession <-chan struct{}
	renewed     chan (<-chan struct{})
	idle        chan struct{} // closed with the end of the last request; may be nil
}

// An attempt is the attempt to connect and its outcome, which does not change after the end of the attempt.
type attempt struct {
	id    string // random
	began time.Time
	ctx   context.Context // ends with the connection
	ended chan struct{}   // closed when the connection and the process have ended

	done    chan struct{} // closed when the fields below are set
	client  *mcp.Client   // nil if the attempt failed
	forward Forwarder
	session bool // the revision has sessions
	err     error
}

// New returns a connection that ends with ctx. The owner must call [Conn.Run] in a goroutine.
func New(ctx context.Context, o *Options) *Conn {
	now := time.Now()
	c := &Conn{options: o, since: now, used: now, state: status.Starting, attempt: attempt{id: rand.Text(), began: now,
		done: make(chan struct{}), ended: make(chan struct{})}}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	return c
}

// ID returns the random identity of the connection.
func (a *attempt) ID() string { return a.id }

// Began returns the time at which the attempt to connect began.
func (a *attempt) Began() time.Time { return a.began }

// Context returns a context that ends with the connection.
func (a *attempt) Context() context.Context { return a.ctx }

// Ended returns a channel that is closed after the end of the connection and the process.
func (a *attempt) Ended() <-chan struct{} { return a.ended }

// Client returns the client of the connection. Like the methods below, it must not be called before
// [Conn.Wait] returned nil or the event Connected reported success.
func (a *attempt) Client() *mcp.Client { return a.client }

// Forwarder returns the forwarder of requests.
func (a *attempt) Forwarder() Forwarder { return a.forward }

// HasSession reports whether the revision of the connection has sessions.
func (a *attempt) HasSession() bool { return a.session }

// Err returns the error of the attempt to connect, which [Conn.Finish] sets.
func (a *attempt) Err() error { return a.err }

// Wait waits for the end of the attempt to connect, and then returns nil. If ctx ends first, it
// returns the cause.
func (a *attempt) Wait(ctx context.Context) error {
	select {
	case <-a.done: // usually: the Done channel of ctx is not needed
		return nil
	default:
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Finish ends the attempt to connect: requests that wait for the connection get err, or use the
// connection. The receiver of the event Connected must call it once.
func (c *Conn) Finish(err error) {
	c.mu.Lock()
	c.err, c.used = err, time.Now()
	c.mu.Unlock()
	close(c.done)
}

// A Status is the condition of a connection at some time, without the caller.
type Status struct {
	status.Instance
	Session  bool // the revision has sessions
	Stopping bool
}

// Status returns the condition of the connection.
func (c *Conn) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Stopping: c.stopping, Instance: status.Instance{ID: c.attempt.id, State: c.state, Since: c.since,
		PID: c.pid, Requests: c.users, Unenforced: c.unenforced}}
	if c.isConnectedLocked() {
		s.Revision, s.Session = c.client.Revision(), c.session
		s.Suspended = c.forward.Usage().Suspended
	}
	return s
}

// State returns the state of the connection.
func (c *Conn) State() status.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// IsConnected reports whether requests can use the connection.
func (c *Conn) IsConnected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isConnectedLocked()
}

func (c *Conn) isConnectedLocked() bool { return c.state != status.Starting && !c.stopping }

// IsStopping reports whether the connection was stopped.
func (c *Conn) IsStopping() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopping
}

// SetState changes the state of a connection, and reports whether the state differed before.
func (c *Conn) SetState(state status.State) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setLocked(state)
}

// SetHealth changes the state of a connection that is in use, and reports whether the state
// differed before.
func (c *Conn) SetHealth(state status.State) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isConnectedLocked() && c.state != status.Draining && c.setLocked(state)
}

func (c *Conn) setLocked(state status.State) (changed bool) {
	if c.state == state {
		return false
	}
	c.state, c.since = state, time.Now()
	return true
}

// Drain makes a connection that was replaced end with its last request, and reports whether it did not
// before. [Conn.Check] ends it.
func (c *Conn) Drain() (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = time.Now().Add(drainTimeout)
	return c.setLocked(status.Draining)
}

// Retire is like Drain, but the requests of the connection end by themselves, however long they take.
func (c *Conn) Retire() (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setLocked(status.Draining)
}

// Stop ends a connection or an attempt to connect. It returns the state before, and whether the
// connection was not stopped already.
func (c *Conn) Stop() (before status.State, stopped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.stopLocked()
}

func (c *Conn) stopLocked() bool {
	if c.stopping {
		return false
	}
	c.stopping = true
	c.cancel(mcp.ErrClosed)
	return true
}

func (c *Conn) notify(kind EventKind, err error) { c.options.Notify(Event{kind, err}) }
