package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// defaultStartTimeout is long because package runners such as npx download a server first.
const defaultStartTimeout = 120 * time.Second

// ErrStopped is the error of requests that wait for a connection that is stopped.
var ErrStopped = errors.New("the instance was stopped")

// A Conn is a connection of an instance.
type Conn struct {
	*connection.Conn
	in *instance

	// The lock of the upstream guards the fields below.
	replaced    bool               // requests that wait for this attempt wait for another
	fingerprint server.Fingerprint // of the entry with which the connection is made; zero before
	pins        *pins.Server       // of that entry; nil for none

	own pins.Connection
}

// newConn returns a connection of an instance, which has not begun. The lock of the upstream is held.
func newConn(i *instance) *Conn {
	u := i.Pool.up
	s := &Conn{in: i}
	o := &connection.Options{StartTimeout: u.startTimeout(), Command: u.isCommand(), Single: i.calls,
		Prepare: s.prepare, Dial: u.servers.Dial, Notify: s.notify, Go: u.servers.Go, Stderr: &u.stderr,
		Logger: u.servers.Logger.With("server", u.name)}
	if i.last != nil {
		o.After = i.last.Conn
	}
	s.Conn = connection.New(u.servers.Context, o)
	return s
}

// prepare implements [connection.Options.Prepare].
func (s *Conn) prepare(ctx context.Context) (context.Context, *connection.Setup, error) {
	u, caller := s.in.Pool.up, s.in.Pool.caller
	e := u.entry()
	s.setEntry(e, u.servers.fingerprint(e))
	server, err := u.expanded(ctx, e, caller)
	if err != nil {
		return ctx, nil, &hosterr.Error{Code: hosterr.CodeConfigError, Server: u.name, Err: withoutServer(err, u.name)}
	}
	ctx = WithCaller(ctx, caller)
	ctx = context.WithValue(ctx, callerUseKey{}, &u.usesCaller)
	ctx = context.WithValue(ctx, clientKey{}, u.logins.Client(e.Server, caller, server.URL, &s.in.Pool.forwarded))
	if e.Settings.InsecureHTTP {
		ctx = context.WithValue(ctx, insecureKey{}, true)
	}
	return ctx, &connection.Setup{Server: server, Client: s.in.options(), Era: e.Settings.Era,
		Limits: e.Settings.Limits}, nil
}

func (u *Server) startTimeout() time.Duration {
	if timeout := u.entry().Settings.StartTimeout; timeout > 0 {
		return time.Duration(timeout)
	}
	return defaultStartTimeout
}

// notify implements [connection.Options.Notify].
func (s *Conn) notify(e connection.Event) {
	switch e.Kind {
	case connection.Connected:
		s.connected(e.Err)
	case connection.SessionLost:
		s.sessionLost()
	case connection.Lost:
		s.lost(e.Err)
	case connection.Unused:
		s.in.Pool.up.servers.Wake()
	case connection.Stopped:
		s.in.Pool.up.event(s, connection.StateStopped, nil)
	case connection.Ended:
		s.ended()
	}
}

// connected makes a connection that was made the current one, or records why it was not made.
func (s *Conn) connected(err error) {
	u, p := s.in.Pool.up, s.in.Pool
	if err == nil && !s.in.calls {
		p.lists.Connected(s.Conn, p.reviewer(s.pins))
	}
	_, watched := p.lists.HasListeners()
	u.mu.Lock()
	var failed *hosterr.Error
	switch {
	case s.IsStopping():
		failed = u.errorf(hosterr.CodeUnavailable, "%w", ErrStopped)
	case err == nil:
		s.in.ready(s)
	default:
		failed = u.startError(err)
		s.Stop()
		s.in.failed(s, failed)
	}
	if failed != nil {
		s.Finish(failed)
	} else {
		s.Finish(nil)
	}
	u.mu.Unlock()
	u.servers.Wake()
	if failed == nil && !s.in.calls {
		p.lists.Resubscribe(watched)
	}
}

// startError returns the Error of an attempt to connect.
func (u *Server) startError(err error) *hosterr.Error {
	if errors.Is(err, connection.ErrNotReady) {
		return &hosterr.Error{Code: hosterr.CodeStarting, Server: u.name, Err: hosterr.Public{Err: err}}
	}
	if limits, ok := errors.AsType[*connection.LimitsError](err); ok {
		return &hosterr.Error{Code: hosterr.CodeConfigError, Server: u.name, Err: limits}
	}
	e := u.failure(u.servers.Context, err)
	e.MayHaveRun = false // the request was not sent
	return e
}

// sessionLost reports that the server no longer has the session. Its lists may have changed.
func (s *Conn) sessionLost() {
	u := s.in.Pool.up
	u.mu.Lock()
	stopping := s.IsStopping()
	if !stopping {
		u.event(s, s.State(), &hosterr.Error{Code: hosterr.CodeUnavailable, Server: u.name, Err: driver.ErrSessionLost})
	}
	u.mu.Unlock()
	if !stopping {
		s.in.Pool.lists.AllChanged()
	}
}

// lost records that the connection has ended by itself.
func (s *Conn) lost(err error) {
	u := s.in.Pool.up
	u.mu.Lock()
	defer u.mu.Unlock()
	before, stopped := s.Stop()
	switch {
	case !stopped:
		if i := s.in; !errors.Is(err, connection.ErrEnded) && i.err != nil &&
			errors.Is(i.err.Err, connection.ErrEnded) {
			e := *i.err // events may contain the error
			e.Err = err // requests that were in progress know the reason
			i.err = &e
		}
	case before == connection.StateDraining:
		u.event(s, connection.StateStopped, nil)
	default:
		s.in.failed(s, u.failure(u.servers.Context, err))
	}
}

// ended forgets a connection that has ended.
func (s *Conn) ended() {
	u := s.in.Pool.up
	u.mu.Lock()
	delete(u.connections, s)
	u.mu.Unlock()
	if u.isCommand() {
		u.servers.addProcess(s.in.Pool.caller.Key(), -1)
	}
	s.own.Clear()
	if s.in.Pool.pinCaller().Key != "" {
		u.dropLists(listing.LargeList)
	}
	u.servers.Wake() // the server may have been removed
}

// drainLocked ends a connection that was replaced after its last request.
func (s *Conn) drainLocked() {
	if s.Drain() {
		s.in.Pool.up.event(s, connection.StateDraining, nil)
	}
	s.in.Pool.up.servers.Wake()
}

// stopLocked ends a connection or an attempt.
func (s *Conn) stopLocked() {
	before, stopped := s.Stop()
	if !stopped {
		return
	}
	if i := s.in; i.next == s {
		i.next = nil
	}
	if before == connection.StateDraining || s.in.calls || s.replaced {
		s.in.Pool.up.event(s, connection.StateStopped, nil)
	} else {
		s.in.disconnected(s, connection.StateStopped, nil)
	}
}

// ReleaseCall ends a call; see [Pool.acquireCall].
func (s *Conn) ReleaseCall(id string) {
	if id != "" {
		s.ReleaseResumed()
	} else {
		s.Release()
	}
}

// startFailedLocked delays the starts of all callers after a start that did not become ready.
func (u *Server) startFailedLocked(s *Conn, e *hosterr.Error, now time.Time) {
	if !u.isCommand() || s.State() != connection.StateStarting ||
		e.Code == hosterr.CodeConfigError || e.Code == hosterr.CodeAuthRequired {
		return
	}
	u.delay.Failed(s.Began(), now)
	u.delayed = e
}

// endDelayLocked ends the delay of starts for all callers.
func (u *Server) endDelayLocked() {
	if !u.delay.IsActive() {
		return
	}
	u.delay, u.delayed = connection.StartDelay{}, nil
	for _, p := range u.pools {
		for _, i := range p.instances {
			i.wake()
		}
	}
}

// startsAtLocked returns when the next start is allowed: a time in the past if it is not delayed.
func (i *instance) startsAtLocked() time.Time {
	if until := i.Pool.up.delay.Until; until.After(i.backoff.Until) {
		return until
	}
	return i.backoff.Until
}

// withoutServer returns an error of the configuration without the name of the server, which an
// [hosterr.Error] contains, too.
func withoutServer(err error, name string) error {
	inner := errors.Unwrap(err)
	if inner != nil && strings.HasPrefix(err.Error(), fmt.Sprintf("server %.64q: ", name)) {
		return inner
	}
	return err
}

// IsSingle reports whether the connection serves one call and ends with it.
func (s *Conn) IsSingle() bool { return s.in.calls }

// Pool returns the pool of the connection.
func (s *Conn) Pool() *Pool { return s.in.Pool }
