// Package singleflight lets the callers that need the same result at the same time share a call
// of a function.
//
// Unlike golang.org/x/sync/singleflight it uses typed keys and results, each caller waits only as
// long as its own context lasts, and the shared call does not end with the context of the first
// caller.
package singleflight

import (
	"context"
	"errors"
	"sync"
)

// A Group runs at most a single call for each key at a time. The zero Group is ready. All methods
// are safe for concurrent use.
type Group[K comparable, V any] struct {
	mu    sync.Mutex // guards the field below
	calls map[K]*call[V]
}

type call[V any] struct {
	done  chan struct{} // closed when the fields below are set
	value V
	err   error
}

// errPanicked is the error of a call that did not return.
var errPanicked = errors.New("singleflight: the shared call panicked")

// Do returns the result of fn. If a call for the key is in progress, Do waits for that call;
// otherwise it calls fn in a new goroutine. The context of fn contains the values of ctx and
// neither its cancellation nor its deadline, since other callers may wait: fn must bound its own
// time. If ctx ends first, Do returns its cause and the call continues.
func (g *Group[K, V]) Do(ctx context.Context, key K, fn func(ctx context.Context) (V, error)) (V, error) {
	c := g.join(ctx, key, fn)
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		var none V
		return none, context.Cause(ctx)
	}
}

// InProgress reports whether a call for the key began and did not end.
func (g *Group[K, V]) InProgress(key K) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[key] != nil
}

func (g *Group[K, V]) join(ctx context.Context, key K, fn func(ctx context.Context) (V, error)) *call[V] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[key]; c != nil {
		return c
	}
	if g.calls == nil {
		g.calls = map[K]*call[V]{}
	}
	c := &call[V]{done: make(chan struct{}), err: errPanicked}
	g.calls[key] = c
	ctx = context.WithoutCancel(ctx)
	go func() { // ends with fn, which bounds its time
		defer g.finish(key, c)
		c.value, c.err = fn(ctx)
	}()
	return c
}

// finish wakes the callers that wait. It also runs when fn called runtime.Goexit.
func (g *Group[K, V]) finish(key K, c *call[V]) {
	g.mu.Lock()
	delete(g.calls, key)
	g.mu.Unlock()
	close(c.done)
}
