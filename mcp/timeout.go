package mcp

import (
	"context"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/peer"
)

type requestContext struct {
	peer.Timeout
	client *Client

	mu   sync.Mutex // guards the fields below
	done []func()   // called at the end, the last function first
	over bool
}

// Value returns the request for [driver.OnRequestDone], and the client for ClientFrom.
func (r *requestContext) Value(key any) any {
	switch key {
	case peer.RequestKey{}:
		return r
	case clientKey{}:
		return r.client
	}
	return r.Timeout.Value(key)
}

// EndRequest ends the request. A transport calls it when it is closed, if the context implements
// it, and then needs no context of its own.
func (r *requestContext) EndRequest(cause error) { r.End(cause) }

// OnDone implements [driver.OnRequestDone].
func (r *requestContext) OnDone(f func()) {
	r.mu.Lock()
	over := r.over
	if !over {
		r.done = append(r.done, f)
	}
	r.mu.Unlock()
	if over {
		f()
	}
}

func (r *requestContext) stop() {
	for f := r.nextDone(); f != nil; f = r.nextDone() {
		f()
	}
	s := &r.client.requests
	s.mu.Lock()
	delete(s.requests, r)
	s.mu.Unlock()
	r.Stop()
}

// nextDone removes and returns the last registered function, or ends the request if no function
// remains.
func (r *requestContext) nextDone() (f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.done)
	if n == 0 {
		r.over = true
		return nil
	}
	f, r.done = r.done[n-1], r.done[:n-1]
	return f
}

type requestSet struct {
	mu        sync.Mutex // guards the fields below
	requests  map[*requestContext]struct{}
	questions int // requests of the server that are being answered
	closed    bool
}

func (s *requestSet) start(ctx context.Context, c *Client, limits peer.TimeLimits) *requestContext {
	r := &requestContext{client: c}
	r.Start(ctx, limits, ErrTimeout)
	s.mu.Lock()
	defer s.mu.Unlock()
	put(&s.requests, r, struct{}{})
	if s.questions > 0 {
		r.BeginGrace()
	}
	if s.closed {
		r.End(ErrClosed)
	}
	return r
}

// beginQuestion records that the server waits for an answer. It does not say for which request, so
// the timeouts of all of them are in a grace period until endQuestion.
func (s *requestSet) beginQuestion() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.questions++; s.questions == 1 {
		for r := range s.requests {
			r.BeginGrace()
		}
	}
}

func (s *requestSet) endQuestion() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.questions--; s.questions == 0 {
		for r := range s.requests {
			r.EndGrace()
		}
	}
}

// close ends all requests, and every request that starts later.
func (s *requestSet) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for r := range s.requests {
		r.End(ErrClosed)
	}
}
