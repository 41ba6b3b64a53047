package mcphttp

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A waitCounter counts requests in progress, and lets a goroutine wait until the count is zero.
type waitCounter struct {
	n atomic.Int64

	mu   sync.Mutex    // guards the field below
	zero chan struct{} // closed when n becomes zero; nil if no goroutine waits
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

func (t *waitCounter) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.zero == nil {
		t.zero = make(chan struct{})
	}
	zero := t.zero
	t.mu.Unlock()
	if t.n.Load() == 0 { // checked after zero is set, so that a later done closes it
		return nil
	}
	select {
	case <-zero:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A lifecycle is the stage of a handler: open, draining (new requests are refused, subscriptions
// end, calls may finish), or over (calls are canceled).
type lifecycle struct {
	stage atomic.Int32 // changes under the lock

	mu       sync.Mutex             // guards the field below
	contexts map[*lazyContext]stage // with the stage at which they are canceled
}

type stage int32

const (
	open stage = iota
	draining
	over
)

// advance moves to a later stage and cancels the calls that end at it.
func (l *lifecycle) advance(to stage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stage.Store(max(l.stage.Load(), int32(to)))
	for a, endsAt := range l.contexts {
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
	if l.contexts == nil {
		l.contexts = make(map[*lazyContext]stage)
	}
	l.contexts[a] = endsAt
}

func (l *lifecycle) remove(a *lazyContext) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.contexts, a)
}

// A callContext is the context of a modern call. It is the context of the HTTP request, except
// that its cause is an error of package mcp and that the handler can cancel it. It allocates
// no memory until its Done channel is needed, which most calls never need.
type callContext struct {
	context.Context // of the HTTP request
	handler         *Handler
	lazy            atomic.Pointer[lazyContext] // nil until it is needed; changes under the lock
	endsAt          stage                       // the stage of the handler at which the call has to end
	challenged      *challenge                  // of the error response; nil for none
	isKnown         bool                        // the error belongs to a handler of a known method

	mu    sync.Mutex // guards the field below
	ended bool
}

type callContextKey struct{}

// A lazyContext is the cancelable context of a callContext.
type lazyContext struct {
	context.Context
	cancel  context.CancelCauseFunc
	release func() bool
	values  detached // the parent
}

// A detached is a context that returns the values of another context and does not end, as the
// context of context.WithoutCancel, but within another allocation.
type detached struct{ context.Context }

func (detached) Deadline() (deadline time.Time, ok bool) { return }
func (detached) Done() <-chan struct{}                   { return nil }
func (detached) Err() error                              { return nil }

// cancelable returns the cancelable context, which it creates if necessary.
func (c *callContext) cancelable() *lazyContext {
	if a := c.lazy.Load(); a != nil {
		return a
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.lazy.Load(); a != nil {
		return a
	}
	a := &lazyContext{values: detached{c.Context}}
	a.Context, a.cancel = context.WithCancelCause(&a.values)
	switch {
	case c.ended:
		a.cancel(nil) // a goroutine uses the context after the call
	case c.Context.Err() != nil:
		a.cancel(causeOf(c.Context)) // at once, since the caller checks it next
	}
	if !c.ended {
		a.release = context.AfterFunc(c.Context, func() { a.cancel(causeOf(c.Context)) })
		c.handler.life.add(a, c.endsAt)
	}
	c.lazy.Store(a)
	return a
}

// causeOf returns the cause of the end of an HTTP request's context. net/http cancels it without a
// cause when the client disconnects.
func causeOf(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return mcp.ErrDisconnected
}

// current returns the cancelable context if it exists or the request ended, and the context of
// the request otherwise.
func (c *callContext) current() context.Context {
	if a := c.lazy.Load(); a != nil {
		return a
	}
	if c.Context.Err() != nil {
		return c.cancelable()
	}
	return c.Context
}

// Done returns a channel that is closed when the HTTP request ends, fail is called, or the handler
// shuts down.
func (c *callContext) Done() <-chan struct{} { return c.cancelable().Done() }

// Err returns the error of the context.
func (c *callContext) Err() error { return c.current().Err() }

// Value returns the values of the HTTP request's context.
func (c *callContext) Value(key any) any {
	if key == (callContextKey{}) {
		return c
	}
	return c.current().Value(key)
}

func (c *callContext) fail(cause error) { c.cancelable().cancel(cause) }

// end releases the context when the call is over.
func (c *callContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	a := c.lazy.Load()
	if a == nil {
		return
	}
	a.release()
	a.cancel(nil)
	c.handler.life.remove(a)
}
