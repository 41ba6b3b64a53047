package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/mcpint"
	"github.com/patchbay-mcp/patchbay/internal/proclimit"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// defaultStartTimeout is long because package runners such as npx download a server first.
	defaultStartTimeout = 120 * time.Second
	// drainTimeout is how long the requests of a replaced connection may continue.
	drainTimeout = 30 * time.Second
)

var (
	// errNotReady is within the error of a start that took too long.
	errNotReady = errors.New("the server did not become ready")
	errStopped  = errors.New("the instance was stopped")
	errEnded    = fmt.Errorf("%w: the server has ended the connection", mcp.ErrDisconnected)
)

// internals are functions of package mcp that are not part of its API.
var internals = mcpint.Get[*mcp.Request, mcp.Handler]()

// A forwarder forwards requests to the server of a connection.
type forwarder = mcpint.Forwarder[*mcp.Request, mcp.Result]

// A start is an attempt to connect, and the connection that it makes. For a command that is one
// process.
type start struct {
	id     string // random, identifies the connection in states
	in     *instance
	ctx    context.Context
	cancel context.CancelCauseFunc
	last   *start // ends before this one begins; nil for none

	// Set before done is closed.
	done    chan struct{}
	client  *mcp.Client // nil if there is an error
	forward forwarder
	session bool // of the session era
	err     *Error

	ended chan struct{} // closed when the connection and the process have ended

	// The lock of the upstream guards the fields below.
	state    State
	since    time.Time // of state
	began    time.Time
	users    int       // requests in progress
	resumed  int       // of them those whose caller has answered a question
	used     time.Time // when the last one ended
	asked    time.Time // until when a caller may answer a question of a modern server
	cut      time.Time // when requests of a replaced connection are ended
	tasks    tasks
	replaced bool // requests that wait for this attempt wait for another
	stopping bool
	checking bool // a check of its health is in progress
	pid      int  // of the process; zero if it is unknown
	// fingerprint is that of the entry with which the connection is made; zero until that is known.
	fingerprint fingerprint
	pins        *serverPins // of that entry; nil for none
	// A session that the server has lost, until a request has opened another.
	lostSession <-chan struct{}
	renewed     chan (<-chan struct{}) // gets the Done channel of the other
	idle        chan struct{}          // closed with the end of the last request; may be nil
	limiter     *proclimit.Limiter     // of the process; may be nil. Used by run only
	unenforced  []string               // limits of the process that the system cannot enforce

	own connectionPins
}

// isConnected reports whether requests can use the connection. The lock of the upstream is held.
func (s *start) isConnected() bool { return s.state != StateStarting && !s.stopping }

// run makes one attempt to connect, and then waits for the end of the connection.
func (s *start) run() {
	u := s.in.pool.up
	s.waitForLast()
	t, err := s.connect()
	if err == nil && !s.in.calls {
		s.in.pool.connected(s)
	}
	watched := s.in.pool.hasSubscriptions()
	u.mu.Lock()
	switch {
	case s.stopping:
		err = u.errorf(CodeUnavailable, "%w", errStopped)
	case err == nil:
		s.in.ready(s)
	default:
		s.stopping = true
		s.in.failed(s, err)
	}
	s.err, s.used = err, time.Now()
	close(s.done)
	u.mu.Unlock()
	u.host.poke()
	if err == nil {
		if !s.in.calls {
			s.in.pool.resubscribe(watched)
		}
		s.waitForEnd(t)
	}
	s.end(t)
}

// waitForLast waits until the process of the last connection has ended: two processes of a server
// might use the same files.
func (s *start) waitForLast() {
	if s.last == nil {
		return
	}
	select {
	case <-s.last.ended:
	case <-s.ctx.Done():
	}
	s.last = nil
}

// connect makes one attempt to connect. It sets the client only if there is no error.
func (s *start) connect() (mcp.Transport, *Error) {
	u := s.in.pool.up
	ctx, cancel := context.WithTimeoutCause(s.ctx, u.startTimeout(),
		statement{fmt.Errorf("%w within startTimeout of %v", errNotReady, u.startTimeout())})
	defer cancel()
	e := u.entry()
	s.setEntry(e, u.host.fingerprint(e))
	server, err := u.expanded(ctx, e, s.in.pool.caller)
	if err != nil {
		return nil, &Error{Code: CodeConfigError, Server: u.name, Err: withoutServer(err, u.name)}
	}
	ctx = context.WithValue(ctx, callerKey{}, s.in.pool.caller)
	ctx = context.WithValue(ctx, callerUseKey{}, &u.usesCaller)
	ctx = context.WithValue(ctx, clientKey{}, s.in.pool.client(e, server.URL))
	if e.settings.InsecureHTTP {
		ctx = context.WithValue(ctx, insecureHTTPKey{}, true)
	}
	t, client, err := u.dial(ctx, server, s)
	if err != nil {
		e := u.failure(ctx, err)
		if cause := context.Cause(ctx); errors.Is(cause, errNotReady) {
			e.Code, e.Err = CodeStarting, cause
		}
		e.MayHaveRun = false // the request was not sent
		return t, e
	}
	s.forward = mcp.Forward(client).(forwarder)
	revision, _ := wire.ParseRevision(client.Revision())
	s.session = !revision.Modern()
	s.client = client
	return t, nil
}

func (u *Upstream) startTimeout() time.Duration {
	if u.entry().settings.StartTimeout > 0 {
		return u.entry().settings.StartTimeout
	}
	return defaultStartTimeout
}

// waitForEnd waits until the connection has ended or is stopped. The client connects to a server over
// HTTP again itself, when the next request needs it.
func (s *start) waitForEnd(t mcp.Transport) {
	u := s.in.pool.up
	for done := s.forward.Done(); ; {
		select {
		case <-done:
		case <-s.ctx.Done():
			return
		}
		if u.isCommand() {
			s.lost(cmp.Or(internals.ConnErr(t), errEnded))
			s.waitForRequests()
			return
		}
		renewed := make(chan (<-chan struct{}), 1)
		u.mu.Lock()
		s.lostSession, s.renewed = done, renewed
		s.checkRenewed() // the request that has noticed the loss may have ended
		u.mu.Unlock()
		s.sessionLost()
		select {
		case done = <-renewed:
		case <-s.ctx.Done():
			return
		}
	}
}

// requestsTimeout is how long the requests of a connection that has ended may take to notice that.
const requestsTimeout = time.Second

// waitForRequests waits until the requests of a connection that has ended have returned. If it were closed
// first, they would not return the reason.
func (s *start) waitForRequests() {
	u := s.in.pool.up
	idle := make(chan struct{})
	u.mu.Lock()
	if s.users == 0 {
		close(idle)
	} else {
		s.idle = idle
	}
	u.mu.Unlock()
	timer := time.NewTimer(requestsTimeout)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// sessionLost reports that the server no longer has the session. Its lists may have changed.
func (s *start) sessionLost() {
	u := s.in.pool.up
	u.mu.Lock()
	stopping := s.stopping
	if !stopping {
		u.event(s, s.state, &Error{Code: CodeUnavailable, Server: u.name, Err: mcp.ErrSessionLost})
	}
	u.mu.Unlock()
	if !stopping {
		s.in.pool.changed(catalogue.Tools, catalogue.Prompts, catalogue.Resources, catalogue.Templates)
	}
}

// lost records that the connection has ended by itself.
func (s *start) lost(err error) {
	u := s.in.pool.up
	u.mu.Lock()
	defer u.mu.Unlock()
	known := !errors.Is(err, errEnded)
	if s.stopping {
		if i := s.in; known && i.err != nil && errors.Is(i.err.Err, errEnded) {
			e := *i.err // events may have it
			e.Err = err // requests that were in progress know the reason
			i.err = &e
		}
		return
	}
	draining := s.state == StateDraining
	s.stopping = true
	s.cancel(mcp.ErrClosed)
	if draining {
		u.event(s, StateStopped, nil)
		return
	}
	s.in.failed(s, u.failure(s.ctx, err))
}

// set changes the state of a connection. The lock of the upstream is held.
func (s *start) set(state State, err *Error) {
	if s.state == state {
		return
	}
	s.state, s.since = state, time.Now()
	s.in.pool.up.event(s, state, err)
}

// drain ends a connection that was replaced after its last request. The lock of the upstream is held.
func (s *start) drain() {
	s.cut = time.Now().Add(drainTimeout)
	s.set(StateDraining, nil)
	s.in.pool.up.host.poke()
}

// stop ends a connection or an attempt. The lock of the upstream is held.
func (s *start) stop() {
	if s.stopping {
		return
	}
	s.stopping = true
	if i := s.in; i.next == s {
		i.next = nil
	}
	if s.state == StateDraining || s.in.calls || s.replaced {
		s.in.pool.up.event(s, StateStopped, nil)
	} else {
		s.in.disconnected(s, StateStopped, nil)
	}
	s.cancel(mcp.ErrClosed)
}

// end closes the connection, and waits until the process has ended.
func (s *start) end(t mcp.Transport) {
	if s.client != nil {
		_ = s.client.Close()
	}
	s.close(t)
	u := s.in.pool.up
	u.mu.Lock()
	delete(u.connections, s)
	u.mu.Unlock()
	if u.isCommand() {
		u.host.processes.add(s.in.pool.caller.Key(), -1)
	}
	s.own.clear()
	close(s.ended)
	if s.in.pool.pinCaller().key != "" {
		u.dropLists(largeList)
	}
	u.host.poke() // the server may have been removed
}

// close closes a transport, which waits until the process has ended, and ends its limits.
func (s *start) close(t mcp.Transport) {
	if t != nil {
		_ = t.Close()
	}
	if s.limiter != nil {
		_ = s.limiter.Close() // nothing can be done about processes that cannot be killed
		s.limiter = nil
	}
}

// releaseCall ends a call; see acquireCall.
func (s *start) releaseCall(id string) {
	u := s.in.pool.up
	u.mu.Lock()
	defer u.mu.Unlock()
	if id != "" {
		s.resumed--
	}
	s.releaseLocked()
}

// release ends a request.
func (s *start) release() {
	u := s.in.pool.up
	u.mu.Lock()
	defer u.mu.Unlock()
	s.releaseLocked()
}

func (s *start) releaseLocked() {
	u := s.in.pool.up
	s.users--
	s.used = time.Now()
	if s.users == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
	s.checkRenewed()
	if s.users == 0 && !s.stopping && s.ends() {
		if s.isBusy() {
			u.host.poke()
			return
		}
		s.stop()
	}
}

// checkRenewed passes on the session that a request has opened in place of a lost one. The lock of the
// upstream is held.
func (s *start) checkRenewed() {
	if s.lostSession == nil {
		return
	}
	if done := s.forward.Done(); done != s.lostSession {
		s.lostSession = nil
		s.renewed <- done // has room
	}
}

// ends reports whether a connection ends with its requests. The lock of the upstream is held.
func (s *start) ends() bool { return s.state == StateDraining || s.in.calls }

// isBusy reports whether requests, suspended ones included, or tasks need the connection. The lock of
// the upstream is held.
func (s *start) isBusy() bool {
	if s.state == StateStarting || s.users > 0 || s.tasks.running(time.Now()) {
		return true
	}
	if s.in.calls && time.Now().Before(s.asked) {
		return true
	}
	usage := s.forward.Usage()
	return usage.InProgress > 0 || usage.Suspended > 0
}

// withoutServer returns an error of the configuration without the name of the server, which an
// [Error] has too.
func withoutServer(err error, name string) error {
	inner := errors.Unwrap(err)
	if inner != nil && strings.HasPrefix(err.Error(), fmt.Sprintf("server %.64q: ", name)) {
		return inner
	}
	return err
}
