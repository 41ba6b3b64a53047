package upstream

import (
	"context"
	"errors"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// ErrStopped is the error of requests that wait for a connection that is stopped.
var ErrStopped = errors.New("the instance was stopped")

// newConn returns a connection of an instance, which must be started with Run.
func (i *instance) newConn() *Conn {
	u := i.pool.up
	s := &Conn{in: i}
	o := &connection.Options{StartTimeout: startTimeout(u), Command: u.isCommand(), Single: i.calls,
		Prepare: s.prepare, Dial: s.dial, Notify: s.notify, Go: u.env.Go, Stderr: &u.stderr,
		Logger: u.env.Logger.With("server", u.name)}
	if i.last != nil && i.last.peer == nil {
		o.After = i.last.Conn
	}
	s.Conn = connection.New(u.env.Context, o)
	return s
}

// prepare implements [connection.Options.Prepare].
func (s *Conn) prepare(ctx context.Context) (context.Context, *connection.Setup, error) {
	u, caller := s.in.pool.up, s.in.pool.caller
	e := u.entry()
	s.setEntry(e, u.env.fingerprint(e))
	server, err := s.expanded(ctx, e)
	if err != nil {
		return ctx, nil, &hosterr.Error{Code: hosterr.CodeConfigError, Server: u.name, Err: withoutServer(err, u.name)}
	}
	if err := s.locate(ctx); err != nil {
		return ctx, nil, err
	}
	ctx = WithCaller(ctx, caller)
	ctx = context.WithValue(ctx, callerUseKey{}, &u.usesCaller)
	ctx = context.WithValue(ctx, clientKey{}, u.logins.Client(e.Server, caller, server.URL, &s.in.pool.forwarded))
	if e.Settings.InsecureHTTP {
		ctx = context.WithValue(ctx, insecureKey{}, true)
	}
	setup := &connection.Setup{Server: server, Client: s.in.options(), Era: e.Settings.Era, Limits: e.Settings.Limits,
		Sandbox: e.Settings.Sandbox}
	s.peerOptions(setup)
	return ctx, setup, nil
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
		s.in.pool.up.env.Wake()
	case connection.Stopped:
		s.in.pool.up.event(s, status.Stopped, nil)
	case connection.Ended:
		s.ended()
	}
}

// connected makes a new connection the current connection of its instance, or records its failure.
func (s *Conn) connected(err error) {
	u, p := s.in.pool.up, s.in.pool
	if err == nil && !s.in.calls {
		p.lists.Connected(s.Conn, p.reviewer(s.pins))
	}
	_, watched := p.lists.HasListeners()
	u.mu.Lock()
	var failed *hosterr.Error
	switch {
	case s.IsStopping():
		failed = u.Errorf(hosterr.CodeUnavailable, "%w", ErrStopped)
	case err == nil:
		s.in.ready(s)
	default:
		if failed = u.startError(err); s.peer != nil && failed.Code != hosterr.CodeStarting {
			failed = peerError(u, s.peer, err)
		}
		s.Stop()
		s.in.failed(s, failed)
	}
	if failed != nil {
		s.Finish(failed)
	} else {
		s.Finish(nil)
	}
	u.mu.Unlock()
	u.env.Wake()
	if failed == nil && s.peer != nil {
		u.env.Go(s.followPeer)
	}
	if failed == nil && !s.in.calls {
		p.lists.Resubscribe(watched)
	}
}

// sessionLost reports that the server no longer knows the session. Its lists may be different now.
func (s *Conn) sessionLost() {
	u := s.in.pool.up
	u.mu.Lock()
	stopping := s.IsStopping()
	if !stopping {
		u.event(s, s.State(), &hosterr.Error{Code: hosterr.CodeUnavailable, Server: u.name, Err: driver.ErrSessionLost})
	}
	u.mu.Unlock()
	if !stopping {
		s.in.pool.lists.AllChanged()
	}
}

// lost records that the connection ended by itself.
func (s *Conn) lost(err error) {
	u := s.in.pool.up
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
	case before == status.Draining:
		u.event(s, status.Stopped, nil)
	default:
		s.in.failed(s, u.Failure(u.env.Context, err))
	}
}

// ended forgets a connection that is closed and whose process has exited.
func (s *Conn) ended() {
	u := s.in.pool.up
	u.mu.Lock()
	delete(u.connections, s)
	counted := s.counted
	u.mu.Unlock()
	if counted {
		u.env.addProcess(s.in.pool.caller.Key(), -1)
		u.env.free()
	}
	if s.at().lease != nil {
		u.env.seat(u.name).leave()
	}
	s.own.Clear()
	if s.in.pool.pinCaller().Key != "" {
		dropLists(u, listing.LargeList)
	}
	u.env.Wake() // the server may have been removed
}

// drainLocked ends a connection that was replaced after its last request.
func (s *Conn) drainLocked() {
	if s.Drain() {
		s.in.pool.up.event(s, status.Draining, nil)
	}
	s.in.pool.up.env.Wake()
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
	if before == status.Draining || s.in.calls || s.replaced {
		s.in.pool.up.event(s, status.Stopped, nil)
	} else {
		s.in.disconnected(s, status.Stopped, nil)
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
	if !u.isCommand() || s.isElsewhere() || s.State() != status.Starting ||
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

// startsAt returns when the next start is allowed: a time in the past if it is not delayed.
func (i *instance) startsAt() time.Time {
	if until := i.pool.up.delay.Until; until.After(i.backoff.Until) {
		return until
	}
	return i.backoff.Until
}

// IsSingle reports whether the connection serves one call and ends with it.
func (s *Conn) IsSingle() bool { return s.in.calls }

// Pool returns the pool of the connection.
func (s *Conn) Pool() *Pool { return s.in.pool }

// isOutdatedLocked reports whether the configuration changed after the connection began.
func (s *Conn) isOutdatedLocked() bool {
	wanted := s.in.pool.up.wanted
	return wanted != (server.Fingerprint{}) && s.fingerprint != (server.Fingerprint{}) && s.fingerprint != wanted
}

// setEntry records the entry with which the connection is made.
func (s *Conn) setEntry(e *entry, f server.Fingerprint) {
	u := s.in.pool.up
	u.mu.Lock()
	defer u.mu.Unlock()
	s.fingerprint, s.pins, s.made = f, e.pins, e
}

// digest returns the digest of the configuration with which the connection is made.
func (s *Conn) digest() string {
	s.in.pool.up.mu.Lock()
	defer s.in.pool.up.mu.Unlock()
	return s.made.Digest()
}
