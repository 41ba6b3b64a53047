package peer

import (
	"context"
	"sync"
)

// A CallContext is the context of one call: that of what carries the call, except that the call's end ends it too. It
// costs nothing until someone waits for it, and most calls are over before anyone does.
type CallContext struct {
	context.Context // of what carries the call

	mu    sync.Mutex // guards the fields below
	awake context.Context
	stop  context.CancelCauseFunc // of awake
	ended bool
	cause error
}

// wake returns the context that can be waited for.
func (c *CallContext) wake() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.awake == nil {
		c.awake, c.stop = context.WithCancelCause(c.Context)
		if c.ended {
			c.stop(c.cause)
		}
	}
	return c.awake
}

// current returns the context to ask: the one that can be waited for as soon as it makes a difference.
func (c *CallContext) current() context.Context {
	c.mu.Lock()
	asleep := c.awake == nil && !c.ended
	c.mu.Unlock()
	if asleep && c.Context.Err() == nil {
		return c.Context
	}
	return c.wake()
}

// End ends the context, unless it has ended. A nil cause is [context.Canceled].
func (c *CallContext) End(cause error) {
	c.mu.Lock()
	if !c.ended {
		c.ended, c.cause = true, cause
	}
	stop := c.stop
	c.mu.Unlock()
	if stop != nil {
		stop(cause)
	}
}

// Done ends with what carries the call, or by End.
func (c *CallContext) Done() <-chan struct{} { return c.wake().Done() }

// Err is the error of the context.
func (c *CallContext) Err() error { return c.current().Err() }

// Value returns the values of the context of what carries the call.
func (c *CallContext) Value(key any) any { return c.current().Value(key) }
