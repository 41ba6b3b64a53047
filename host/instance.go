package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/mcpint"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// defaultStartTimeout is long because package runners such as npx download a server first.
const defaultStartTimeout = 120 * time.Second

// An instance is one connection to a server. It connects when it is needed, and again after it has
// ended.
type instance struct {
	pool  *pool
	class string // the capabilities that are declared to a server of the session era

	mu    sync.Mutex // guards the fields below
	start *start     // in progress or done; nil before the first
	users int        // requests in progress
	used  time.Time  // when the last one ended
}

// A start is one attempt to connect. Its fields are set before done is closed.
type start struct {
	id      string // random, identifies the connection in states
	done    chan struct{}
	client  *mcp.Client
	forward mcpint.Forwarder[*mcp.Request, mcp.Result] // to the server of client
	session bool                                       // the server is of the session era
	err     *Error
	ended   func() bool // reports whether the connection has ended
}

// acquire returns the current connection, and waits for one if there is none. The caller calls
// release when its request has ended.
func (i *instance) acquire(ctx context.Context) (s *start, release func(), err error) {
	i.mu.Lock()
	if i.start == nil || i.start.over() {
		if i.start, err = i.begin(); err != nil {
			i.mu.Unlock()
			return nil, nil, err
		}
	}
	s = i.start
	i.users++
	i.mu.Unlock()
	select {
	case <-s.done:
	case <-ctx.Done():
		i.release()
		return nil, nil, context.Cause(ctx)
	}
	if s.err != nil {
		i.release()
		return nil, nil, s.err
	}
	return s, i.release, nil
}

func (i *instance) release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.users--
	i.used = time.Now()
}

// over reports whether an attempt has failed or its connection has ended.
func (s *start) over() bool {
	select {
	case <-s.done:
		return s.err != nil || s.ended()
	default:
		return false
	}
}

// begin starts to connect. The caller holds i.mu.
func (i *instance) begin() (*start, error) {
	u := i.pool.up
	if u.host.ctx.Err() != nil {
		return nil, &Error{Code: CodeUnavailable, Server: u.name, Err: mcp.ErrClosed}
	}
	s := &start{id: rand.Text(), done: make(chan struct{}), ended: func() bool { return false }}
	u.host.work.Go(func() {
		defer close(s.done)
		ctx, cancel := context.WithTimeoutCause(u.host.ctx, u.startTimeout(),
			fmt.Errorf("the server did not become ready within %v", u.startTimeout()))
		defer cancel()
		s.client, s.err = i.connect(context.WithValue(ctx, callerKey{}, i.pool.caller))
		if s.err == nil {
			s.forward = mcp.Forward(s.client).(mcpint.Forwarder[*mcp.Request, mcp.Result])
			revision, _ := wire.ParseRevision(s.client.Revision())
			s.session = !revision.Modern()
			i.pool.connected(s)
		}
	})
	return s, nil
}

func (u *Upstream) startTimeout() time.Duration {
	if u.settings.StartTimeout > 0 {
		return u.settings.StartTimeout
	}
	return defaultStartTimeout
}

// connect makes one attempt to connect.
func (i *instance) connect(ctx context.Context) (*mcp.Client, *Error) {
	u := i.pool.up
	server, err := u.expanded(ctx)
	if err != nil {
		return nil, &Error{Code: CodeConfigError, Server: u.name, Err: err}
	}
	u.event(StateStarting, nil)
	t, err := u.host.opts.Dial(ctx, server)
	var c *mcp.Client
	if err == nil {
		c, err = mcp.Connect(ctx, t, i.options())
	}
	if err != nil {
		failed := u.failure(ctx, err)
		u.event(StateBackoff, failed)
		return nil, failed
	}
	u.event(StateReady, nil)
	return c, nil
}

func (u *Upstream) event(s State, err error) {
	e := Event{Server: u.name, State: s}
	if err != nil {
		e.Err = err
	}
	u.host.events.send(e)
}

// options returns the options of the client of an instance.
func (i *instance) options() *mcp.ClientOptions {
	u := i.pool.up
	o := u.host.opts.Client
	o.ForwardInput = true
	o.Timeout, o.MaxTimeout = u.settings.Timeout, u.settings.MaxTimeout
	if o.Logger == nil {
		o.Logger = u.host.opts.Logger.With("server", u.name)
	}
	return &o
}

// failure returns the Error of a request or connection that failed.
func (u *Upstream) failure(ctx context.Context, err error) *Error {
	e := &Error{Code: CodeUnavailable, Server: u.name, Err: err}
	if failed, ok := errors.AsType[*mcp.TransportError](err); ok {
		e.MayHaveRun, e.Err = failed.MayHaveRun, failed.Err
	}
	switch status, ok := errors.AsType[interface {
		error
		HTTPStatus() int
	}](err); {
	case ok && (status.HTTPStatus() == 401 || status.HTTPStatus() == 403):
		e.Code = CodeAuthRequired
	case errors.Is(err, mcp.ErrInvalidResult):
		e.Code = CodeInvalidResult
	case errors.Is(err, mcp.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(context.Cause(ctx), mcp.ErrTimeout):
		e.Code = CodeTimeout
	}
	return e
}

// close ends the connection, or the attempt to connect: its context is that of the host.
func (i *instance) close() {
	i.mu.Lock()
	s := i.start
	i.mu.Unlock()
	if s == nil {
		return
	}
	<-s.done
	if s.client != nil {
		_ = s.client.Close()
	}
}
