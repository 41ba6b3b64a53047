package mcphttp

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A waitCounter counts what is going on, so that one can wait until nothing is.
type waitCounter struct {
	n atomic.Int64

	mu   sync.Mutex    // guards the field below
	zero chan struct{} // closed when n comes to zero; nil while nobody waits
}

func (t *waitCounter) add() { t.n.Add(1) }

func (t *waitCounter) done() {
	if t.n.Add(-1) > 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.zero != nil {
		close(t.zero)
		t.zero = nil
	}
}

// wait returns nil once nothing is going on, or the error of ctx.
func (t *waitCounter) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.zero == nil {
		t.zero = make(chan struct{})
	}
	zero := t.zero
	t.mu.Unlock()
	if t.n.Load() == 0 { // looked at after zero is there, so that who is done later closes it
		return nil
	}
	select {
	case <-zero:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A lifecycle is how far a handler is from its end: open, draining (no new work, subscriptions end, calls may finish),
// or over (calls are told to end).
type lifecycle struct {
	stage atomic.Int32 // changes under the lock

	mu    sync.Mutex             // guards the field below
	awake map[*lazyContext]stage // what can be told to end, and the stage at which it has to
}

type stage int32

const (
	open stage = iota
	draining
	over
)

// advance moves on to a later stage and tells the calls that end with it.
func (l *lifecycle) advance(to stage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stage.Store(max(l.stage.Load(), int32(to)))
	for a, endsAt := range l.awake {
		if l.reached(endsAt) {
			a.cancel(mcp.ErrShutdown)
		}
	}
}

func (l *lifecycle) isOpen() bool { return !l.reached(draining) }

func (l *lifecycle) reached(s stage) bool { return l.stage.Load() >= int32(s) }

func (l *lifecycle) add(a *lazyContext, endsAt stage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reached(endsAt) {
		a.cancel(mcp.ErrShutdown)
		return
	}
	if l.awake == nil {
		l.awake = make(map[*lazyContext]stage)
	}
	l.awake[a] = endsAt
}

func (l *lifecycle) remove(a *lazyContext) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.awake, a)
}

// A callContext is the context of one modern call: that of the HTTP request, except that its cause says in the terms of
// this project why it ended, and that the handler can end it. It costs nothing until someone waits for it, and most
// calls are over before anyone does.
type callContext struct {
	context.Context // of the HTTP request
	handler         *Handler
	awake           atomic.Pointer[lazyContext] // nil until someone waits; changes under the lock
	endsAt          stage                       // the stage of the handler at which the call has to end

	mu    sync.Mutex // guards the field below
	ended bool
}

// An lazyContext is a callContext that can be waited for.
type lazyContext struct {
	context.Context
	cancel  context.CancelCauseFunc
	release func() bool
}

// wake returns the context that can be waited for.
func (c *callContext) wake() *lazyContext {
	if a := c.awake.Load(); a != nil {
		return a
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.awake.Load(); a != nil {
		return a
	}
	a := &lazyContext{}
	a.Context, a.cancel = context.WithCancelCause(context.WithoutCancel(c.Context))
	switch {
	case c.ended:
		a.cancel(nil) // whoever waits now was left behind by the call
	case c.Context.Err() != nil:
		a.cancel(endOf(c.Context)) // at once, for the caller who is about to look
	}
	if !c.ended {
		a.release = context.AfterFunc(c.Context, func() { a.cancel(endOf(c.Context)) })
		c.handler.life.add(a, c.endsAt)
	}
	c.awake.Store(a)
	return a
}

// endOf returns the reason why the context of an HTTP request ended. net/http ends it without one when the client goes.
func endOf(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return mcp.ErrDisconnected
}

// current returns the context to ask: the one that can be waited for as soon as it makes a difference.
func (c *callContext) current() context.Context {
	if a := c.awake.Load(); a != nil {
		return a
	}
	if c.Context.Err() != nil {
		return c.wake()
	}
	return c.Context
}

// Done ends with the HTTP request, by fail, or at the handler's shutdown.
func (c *callContext) Done() <-chan struct{} { return c.wake().Done() }

// Err is the error of the context.
func (c *callContext) Err() error { return c.current().Err() }

// Value returns the values of the HTTP request's context.
func (c *callContext) Value(key any) any { return c.current().Value(key) }

// isDisconnected reports whether the context has ended because there is nobody left to answer.
func (c *callContext) isDisconnected() bool {
	return c.Err() != nil && errors.Is(context.Cause(c), mcp.ErrDisconnected)
}

// fail ends the context for a reason.
func (c *callContext) fail(cause error) { c.wake().cancel(cause) }

// end frees what the context holds. The call is over.
func (c *callContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	a := c.awake.Load()
	if a == nil {
		return
	}
	a.release()
	a.cancel(nil)
	c.handler.life.remove(a)
}
