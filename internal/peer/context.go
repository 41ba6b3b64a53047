package peer

import (
	"context"
	"sync"
)

// A LazyContext is a child of a context that ends with its parent or by End. It allocates no memory
// until its Done channel is needed. Most requests end before that.
type LazyContext struct {
	context.Context // the parent

	mu     sync.Mutex // guards the fields below
	child  context.Context
	cancel context.CancelCauseFunc // of child
	ended  bool
	cause  error
}

// cancellable returns the child context with a Done channel.
func (c *LazyContext) cancellable() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.child == nil {
		c.child, c.cancel = context.WithCancelCause(c.Context)
		if c.ended {
			c.cancel(c.cause)
		}
	}
	return c.child
}

// current returns the parent for as long as the child would not differ from it.
func (c *LazyContext) current() context.Context {
	c.mu.Lock()
	child, ended := c.child, c.ended
	c.mu.Unlock()
	switch {
	case child != nil:
		return child
	case !ended && c.Context.Err() == nil:
		return c.Context
	}
	return c.cancellable()
}

// End ends the context, unless it ended. A nil cause is [context.Canceled].
func (c *LazyContext) End(cause error) {
	c.mu.Lock()
	if !c.ended {
		c.ended, c.cause = true, cause
	}
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// Done returns a channel that is closed when the context ends.
func (c *LazyContext) Done() <-chan struct{} { return c.cancellable().Done() }

// Err returns the error of the context.
func (c *LazyContext) Err() error { return c.current().Err() }

// Value returns the value of the parent.
func (c *LazyContext) Value(key any) any { return c.current().Value(key) }
