package mcphttp

import (
	"context"
	"errors"
	"sync"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A tally counts what is going on, so that one can wait until nothing is.
type tally struct {
	mu   sync.Mutex // guards the fields below
	n    int
	zero chan struct{} // closed when n comes to zero; nil while nobody waits
}

func (t *tally) add() {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
}

func (t *tally) done() {
	t.mu.Lock()
	t.n--
	if t.n == 0 && t.zero != nil {
		close(t.zero)
		t.zero = nil
	}
	t.mu.Unlock()
}

// wait returns nil once nothing is going on, or the error of ctx.
func (t *tally) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.zero == nil {
		t.zero = make(chan struct{})
	}
	zero := t.zero
	t.mu.Unlock()
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
	mu       sync.Mutex // guards the fields below
	stage    stage
	contexts map[*callContext]struct{} // those that can be told to end
}

type stage int

const (
	open stage = iota
	draining
	over
)

// advance moves on to a later stage and tells the calls that end with it.
func (l *lifecycle) advance(to stage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stage = max(l.stage, to)
	for c := range l.contexts {
		if c.endsAt <= l.stage {
			c.cancel(mcp.ErrShutdown)
		}
	}
}

func (l *lifecycle) isOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stage == open
}

func (l *lifecycle) add(c *callContext) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.endsAt <= l.stage {
		c.cancel(mcp.ErrShutdown)
		return
	}
	if l.contexts == nil {
		l.contexts = make(map[*callContext]struct{})
	}
	l.contexts[c] = struct{}{}
}

func (l *lifecycle) remove(c *callContext) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.contexts, c)
}

// A callContext is the context of one modern call: that of the HTTP request, except that its cause says in the terms of
// this project why it ended, and that the handler can end it. It costs nothing until someone waits for it, and most
// calls are over before anyone does.
type callContext struct {
	context.Context // of the HTTP request
	life            *lifecycle
	endsAt          stage // the stage of the handler at which the call has to end

	mu      sync.Mutex // guards the fields below
	awake   context.Context
	cancel  context.CancelCauseFunc
	release func() bool
}

// wake gives the context that can be waited for.
func (c *callContext) wake() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.awake != nil {
		return c.awake
	}
	c.awake, c.cancel = context.WithCancelCause(context.WithoutCancel(c.Context))
	if c.Context.Err() != nil {
		c.cancel(endOf(c.Context)) // at once, for the caller who is about to look
	}
	c.release = context.AfterFunc(c.Context, func() { c.cancel(endOf(c.Context)) })
	c.life.add(c)
	return c.awake
}

// endOf gives the reason why the context of an HTTP request ended. net/http ends it without one when the client goes.
func endOf(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return mcp.ErrDisconnected
}

// current gives the context to ask: the one that can be waited for as soon as it makes a difference.
func (c *callContext) current() context.Context {
	if c.Context.Err() != nil {
		return c.wake()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.awake != nil {
		return c.awake
	}
	return c.Context
}

// Done ends with the HTTP request, by fail, or at the handler's shutdown.
func (c *callContext) Done() <-chan struct{} { return c.wake().Done() }

// Err is the error of the context.
func (c *callContext) Err() error { return c.current().Err() }

// Value gives the values of the HTTP request's context.
func (c *callContext) Value(key any) any { return c.current().Value(key) }

// fail ends the context for a reason.
func (c *callContext) fail(cause error) {
	c.wake()
	c.cancel(cause)
}

// end frees what the context holds. The call is over.
func (c *callContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.awake == nil {
		return
	}
	c.release()
	c.cancel(nil)
	c.life.remove(c)
}
