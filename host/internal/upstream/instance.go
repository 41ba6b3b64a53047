package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/host/cluster"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// backoffWait limits how long a call waits for a delayed start.
const backoffWait = 5 * time.Second

// instanceLocked returns the instance of a class. AnyClass selects the latest class: lists and
// subscriptions belong to the session that the calls of the same client use.
func (p *Pool) instanceLocked(class string, calls bool) *instance {
	if class == AnyClass && !p.up.isCommand() {
		class = p.latest
	}
	if class == AnyClass && !calls {
		for _, i := range p.instances {
			if i.current != nil && !i.calls {
				return i
			}
		}
	}
	if class == AnyClass && !p.up.isCommand() {
		class = noCapabilities
	}
	key := class
	if calls {
		key = "call " + class
	}
	i := p.instances[key]
	if i == nil {
		i = &instance{pool: p, class: class, calls: calls, breaker: p.up.limits.NewBreaker(),
			state: status.Off, since: time.Now()}
		p.instances[key] = i
	}
	return i
}

// Acquire returns a connection. It waits until the server is connected, but not for a delayed
// start. The caller must release the connection.
func (p *Pool) Acquire(ctx context.Context, class string) (*Conn, error) {
	return p.join(ctx, 0, func(p *Pool, _ time.Time) (*instance, error) { return p.instanceLocked(class, false), nil })
}

// AcquireCall is like Acquire for a call, which waits at most backoffWait for a delayed start. The
// configuration may require a separate connection for each call. id identifies the connection of a
// call that continues. An error means that the request has not run. The caller must call
// ReleaseCall.
func (p *Pool) AcquireCall(ctx context.Context, class, id string) (*Conn, error) {
	calls := p.up.Share() == config.ShareCall
	u := p.up
	if id == "" {
		c, err := p.join(ctx, backoffWait, func(p *Pool, now time.Time) (*instance, error) {
			i := p.instanceLocked(class, calls)
			return i, i.breaker.Check(now)
		})
		if errors.Is(err, errProcesses) {
			u.limits.Count("limits.processes")
		}
		return c, err
	}
	if c := p.connected(id); c != nil {
		return c, nil
	}
	if inCluster(u) {
		return p.resume(ctx, id)
	}
	return nil, p.lostCall()
}

// connected returns the connection with an ID for a request that continues a call, or nil.
func (p *Pool) connected(id string) *Conn {
	p.up.mu.Lock()
	defer p.up.mu.Unlock()
	for s := range p.up.connections {
		if s.ServedID() == id && s.in.pool.key == p.key && s.Resume() {
			return s
		}
	}
	return nil
}

// lostCall returns the error of a request whose connection has ended.
func (p *Pool) lostCall() *hosterr.Error {
	return &hosterr.Error{Code: hosterr.CodeCallLost, Server: p.up.name, MayHaveRun: true, Err: ErrNoInstance}
}

// ErrNoInstance reports that the connection of a suspended call has ended.
var ErrNoInstance = errors.New("the call waited for an answer, and its server has been restarted since")

// join adds a request to the connection of an instance. It waits for a delayed start that begins
// within a time.
func (p *Pool) join(
	ctx context.Context, within time.Duration, find func(p *Pool, now time.Time) (*instance, error),
) (*Conn, error) {
	now := time.Now()
	deadline := now.Add(within)
	u := p.up
	for ; ; now = time.Now() {
		u.mu.Lock()
		i, err := find(u.presentLocked(p, now), now)
		var s *Conn
		var wait time.Duration
		if err == nil {
			s, wait, err = i.join(deadline)
		}
		changed := i.changed
		u.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if s == nil {
			if err := waitFor(ctx, changed, wait); err != nil {
				return nil, err
			}
			continue
		}
		if err := s.Wait(ctx); err != nil {
			s.Release()
			return nil, err
		}
		if s.Err() == nil {
			return s, nil
		}
		s.Release()
		u.mu.Lock()
		again := s.replaced
		u.mu.Unlock()
		if !again {
			return nil, s.Err()
		}
	}
}

func waitFor(ctx context.Context, changed <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// join adds a request to the current connection, or begins a connection. It returns how long a
// delayed start must wait, or an error if that is too long.
func (i *instance) join(deadline time.Time) (s *Conn, wait time.Duration, err error) {
	if s = i.current; s == nil {
		s = i.next
	}
	if s == nil {
		now := time.Now()
		if wait = i.startsAt().Sub(now); wait > 0 {
			if i.state == status.CrashLoop || now.Add(wait).After(deadline) {
				return nil, 0, i.unavailable(wait)
			}
			if i.changed == nil {
				i.changed = make(chan struct{})
			}
			return nil, wait, nil
		}
		if s, err = i.begin(); err != nil {
			return nil, 0, err
		}
		if !i.calls {
			i.current = s
		}
	}
	s.Use()
	return s, 0, nil
}

// unavailable returns the error of requests while a start is delayed.
func (i *instance) unavailable(wait time.Duration) *hosterr.Error {
	last := cmp.Or(i.err, i.pool.up.delayed)
	e := *last
	e.RetryAfter = max(wait, last.RetryAfter-time.Since(i.since)) // another host may wait for longer
	if i.state == status.CrashLoop {
		e.Code, e.Err = hosterr.CodeCrashLoop, CrashError{e.Err}
	}
	return &e
}

// A CrashError says that a server ends soon after each start.
type CrashError struct{ Last error }

// Error returns the last exit.
func (e CrashError) Error() string { return e.Describe(e.Last.Error()) }

// Describe returns the text of the error with a text for the last exit.
func (e CrashError) Describe(last string) string {
	return fmt.Sprintf("the server ended soon after each of its last %d starts or more; "+
		"it is started again every %v, or by a restart; the last time: %s",
		connection.MaxEarlyExits, connection.TrialInterval, last)
}

// Unwrap returns the error of the last start.
func (e CrashError) Unwrap() error { return e.Last }

// begin begins to connect.
func (i *instance) begin() (*Conn, error) {
	u := i.pool.up
	if err := u.refusesLocked(); err != nil {
		return nil, err
	}
	err, counted := i.makeRoom(), false
	if err == nil && !inCluster(u) { // locate counts the process, which may run in another host
		counted, err = i.countProcess()
	}
	if err != nil {
		return nil, err
	}
	u.delay.Try(time.Now())
	s := i.newConn()
	s.counted = counted
	i.last = nil
	i.starts++
	if i.starts > 1 && (i.current != nil || i.state != status.Off && i.state != status.Stopped) {
		u.counts.restarts.Add(1)
	}
	i.wake()
	u.connections[s] = struct{}{}
	u.event(s, status.Starting, nil)
	u.env.Go(s.Run)
	return s, nil
}

// wake wakes the requests that wait for a start.
func (i *instance) wake() {
	if i.changed != nil {
		close(i.changed)
		i.changed = nil
	}
}

// failed records that a connection ended or failed, and delays the next start.
func (i *instance) failed(s *Conn, e *hosterr.Error) {
	u, now := i.pool.up, time.Now()
	i.err = e
	u.startFailedLocked(s, e, now)
	if i.next == s {
		i.next, i.swapFailed = nil, true
		switch c := i.current; {
		case c == nil:
		case errors.Is(e, config.ErrNoSecret), // the connection in use still holds the removed secret
			s.peer != nil && e.Code == hosterr.CodeConfigError: // the other host has another configuration now
			i.current = nil
			c.drainLocked()
		default: // the server in use continues
			u.env.Wake()
			u.event(c, c.State(), e)
			return
		}
	}
	ran := now.Sub(s.Began())
	if s.State() == status.Starting {
		ran = -1
	}
	state := status.Backoff
	switch {
	case e.Code == hosterr.CodeConfigError:
		state = status.Config
		i.backoff.Failed(now)
	case e.Code == hosterr.CodeAuthRequired:
		state = status.Auth
		i.backoff.Failed(now)
	case !u.isCommand(), s.isElsewhere(), errors.Is(e, cluster.ErrLost):
		i.backoff.Failed(now)
	default:
		if i.backoff.Exited(now, ran) {
			state = status.CrashLoop
		}
	}
	e.RetryAfter = max(e.RetryAfter, i.startsAt().Sub(now))
	i.disconnected(s, state, e)
}

// disconnected records that an instance is without a connection.
func (i *instance) disconnected(s *Conn, state status.State, e *hosterr.Error) {
	if i.current == s {
		i.current = nil
	}
	i.last, i.state, i.since = s, state, time.Now()
	i.pool.up.event(s, state, e)
	i.pool.up.env.Wake()
}

// ready makes a connection that is ready the current connection.
func (i *instance) ready(s *Conn) {
	old := i.current
	if i.next == s {
		i.next, i.current = nil, s
		if old != nil {
			old.drainLocked()
		}
	}
	if !i.pool.up.isCommand() || s.peer != nil {
		i.backoff = connection.Backoff{}
	}
	i.pool.up.endDelayLocked()
	i.pool.up.modern = !s.HasSession()
	if s.SetState(status.Ready) {
		i.pool.up.event(s, status.Ready, nil)
	}
}

// restart connects again, and then replaces the current connection.
func (i *instance) restart() (*Conn, error) {
	i.backoff = connection.Backoff{}
	i.breaker.Reset()
	i.pool.up.endDelayLocked()
	if i.next != nil {
		return i.next, nil
	}
	s, err := i.begin()
	if err != nil {
		return nil, err
	}
	if c := i.current; c != nil && !c.IsConnected() { // its requests wait for the new connection
		c.replaced = true
		i.current = nil
		c.stopLocked()
	}
	if i.current != nil {
		i.next = s
	} else {
		i.current = s
	}
	return s, nil
}

// options returns the options of the client of an instance.
func (i *instance) options() *mcp.ClientOptions {
	u := i.pool.up
	o := u.env.Client
	if declared := i.declared(); declared != nil {
		o.ForwardCapabilities = declared
	}
	o.Roots = i.pool.roots().answer(u.env.Client.Roots)
	s := u.entry().Settings
	o.Timeout, o.MaxTimeout = time.Duration(s.Timeout), time.Duration(s.MaxTimeout)
	if u.env.Observer != nil {
		o.Observer = &clientObserver{u.env.Observer, u.name}
	}
	if o.Logger == nil {
		o.Logger = u.env.Logger.With("server", u.name)
	}
	return &o
}

// failedLogin reports whether an instance of the pool could not connect without a login.
func (p *Pool) failedLogin() bool {
	p.up.mu.Lock()
	defer p.up.mu.Unlock()
	for _, i := range p.instances {
		if i.state == status.Auth {
			return true
		}
	}
	return false
}

// retryLogin ends the delays of instances that could not connect without a login.
func (p *Pool) retryLogin() {
	p.up.mu.Lock()
	for _, i := range p.instances {
		if i.state == status.Auth {
			i.backoff = connection.Backoff{}
			i.wake()
		}
	}
	p.up.mu.Unlock()
	p.lists.Retry()
}

// Disconnect stops the connections of the pool.
func (p *Pool) Disconnect() {
	p.up.mu.Lock()
	defer p.up.mu.Unlock()
	for s := range p.up.connections {
		if s.in.pool == p {
			s.stopLocked()
		}
	}
}
