package mcp

import (
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A vigil is a subscription whose changes the goroutine of its request tells of.
type vigil struct {
	*subscription
	server *Server
	ctx    context.Context // of the call
	req    *Request
	topics *subscribedTopics
	woken  chan struct{}
}

// listenAttached tells of changes from the goroutine of the request.
func (s *Server) listenAttached(ctx context.Context, req *Request, sub *subscription, f Filter) (Result, error) {
	v := &vigil{subscription: sub, server: s, ctx: ctx, req: req, woken: make(chan struct{}, 1)}
	sub.wake = v.rouse
	if err := v.open(f); err != nil {
		return nil, err
	}
	if req.apart != nil {
		req.apart.left = v
		return &ListenResult{}, nil
	}
	return v.serve()
}

func (v *vigil) rouse() {
	select {
	case v.woken <- struct{}{}:
	default:
	}
}

func (v *vigil) open(f Filter) (err error) {
	opened := false
	defer func() {
		if !opened { // or something has panicked
			v.close()
		}
	}()
	v.topics, err = v.server.openTopics(v.ctx, v.req, v.subscription, &f, topicWay{func(*subscribedTopics) { v.rouse() }, v.req.Notify})
	if err != nil {
		return err
	}
	v.server.hub.add(v.subscription) // before the acknowledgement: a change right after it must not be missed
	err = v.acknowledge(v.ctx, v.req, f)
	opened = err == nil
	return err
}

func (v *vigil) close() {
	v.server.hub.remove(v.subscription)
	v.topics.close()
	if v.req.goesOn() {
		c := callFrom(v.ctx)
		c.progress.finish(c)
	}
}

// serve tells of changes until the client or the server ends the subscription. It waits for as long as a client is there,
// so its frame is small: what it calls has large ones.
func (v *vigil) serve() (Result, error) {
	defer v.close()
	ended := v.ctx.Done()
	for {
		select {
		case <-v.woken:
			if err := v.tell(v.ctx); err != nil && v.ctx.Err() == nil {
				return nil, err
			}
		case <-ended:
			return v.end()
		}
	}
}

// tell writes what has changed. A panic is contained here, since nothing else may be left of the call.
func (v *vigil) tell(ctx context.Context) (err error) {
	defer recovered(ctx, v.server.log, v.req.Method, &err)
	if err := v.send(ctx, v.req); err != nil {
		return err
	}
	return v.topics.send(ctx)
}

func (v *vigil) end() (Result, error) {
	// What changed before the end is still told. Where nothing may be said any more, Notify refuses it.
	_ = v.tell(context.WithoutCancel(v.ctx))
	if cause := context.Cause(v.ctx); !errors.Is(cause, ErrClosed) || errors.Is(cause, ErrDisconnected) {
		return nil, cause
	}
	return &ListenResult{Meta: Meta{wire.MetaSubscriptionID: v.id}}, nil
}

// An apart is where a subscription goes on that leaves the call that has opened it.
type apart struct {
	detached bool   // it is told of changes by those who make them
	stop     func() // ends a detached one
	left     *vigil // any other one; nil for none
}

// goesOn reports whether the request is a subscription that goes on when its call has returned.
func (r *Request) goesOn() bool { return r.apart != nil && r.apart.left != nil }

// listenApart has h open a subscription, and serves it when h has returned: while nothing changes a call would be nothing
// but a deep stack, for each client. Nobody on the way to the server may look when the call ends.
func listenApart(ctx context.Context, req *Request, h Handler) (Result, error) {
	var a apart
	req.apart = &a
	res, err := contain(ctx, req.logger(), req, h)
	switch {
	case a.left == nil:
		return res, err
	case err != nil:
		a.left.close()
		return nil, err
	}
	return a.left.serve()
}

// A wrapper is a handler of a transport in front of another handler. It looks at the error of a call and not at the
// result, so a subscription may be served after it has returned.
type wrapper interface {
	Unwrap(wire.ForTransports) Handler
}

// passesOn reports whether h is a server without middleware, or a transport's wrapper of one.
func passesOn(h Handler) bool {
	if w, ok := h.(wrapper); ok {
		h = w.Unwrap(wire.ForTransports{})
	}
	s, ok := h.(*Server)
	return ok && s.handler.Load().isPlain
}
