package peer

import (
	"context"
	"sync"
	"sync/atomic"
)

// A LazyContext is a child of a context that ends with its parent or by End. It allocates no memory
// until its Done channel is needed. Most requests end before that.
type LazyContext struct {
	context.Context // the parent
	child           atomic.Pointer[cancellable]
	ended           atomic.Bool

	mu    sync.Mutex // held while child or ended changes; guards cause
	cause error
}

// A cancellable is a context with a Done channel.
type cancellable struct {
	context.Context
	cancel context.CancelCauseFunc
}

// cancellable returns the child context, which it creates if necessary.
func (c *LazyContext) cancellable() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	child := c.child.Load()
	if child == nil {
		child = new(cancellable)
		child.Context, child.cancel = context.WithCancelCause(c.Context)
		if c.ended.Load() {
			child.cancel(c.cause)
		}
		c.child.Store(child)
	}
	return child.Context
}

// current returns the parent for as long as the child would not differ from it.
func (c *LazyContext) current() context.Context {
	if child := c.child.Load(); child != nil {
		return child.Context
	}
	if !c.ended.Load() && c.Context.Err() == nil {
		return c.Context
	}
	return c.cancellable()
}

// End ends the context, unless it ended. A nil cause is [context.Canceled].
func (c *LazyContext) End(cause error) {
	c.mu.Lock()
	if !c.ended.Load() {
		c.cause = cause
		c.ended.Store(true)
	}
	child := c.child.Load()
	c.mu.Unlock()
	if child != nil {
		child.cancel(cause)
	}
}

// Done returns a channel that is closed when the context ends.
func (c *LazyContext) Done() <-chan struct{} { return c.cancellable().Done() }

// Err returns the error of the context.
func (c *LazyContext) Err() error { return c.current().Err() }

// Value returns the value of the parent.
func (c *LazyContext) Value(key any) any { return c.current().Value(key) }
