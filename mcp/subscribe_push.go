package mcp

import (
	"context"
	"errors"
	"reflect"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A pushSubscription is a subscription whose notifications are sent by the goroutine of its
// request.
//
// A server may serve thousands of subscriptions, which wait for hours. To save memory, serve runs
// near the bottom of the goroutine's stack: where possible after the handler that opened the
// subscription returned, see listenThenServe.
type pushSubscription struct {
	*subscription
	changes *subscriptions
	ctx     context.Context // of the call
	req     *Request
	wakeup  chan struct{} // buffered (1)
}

// listenPush opens a subscription and serves it, unless the caller of the handler does that.
func (b *subscriptions) listenPush(
	ctx context.Context, req *Request, sub *subscription, f SubscriptionFilter, topics topicOpener,
) (Result, error) {
	p := &pushSubscription{subscription: sub, changes: b, ctx: ctx, req: req, wakeup: make(chan struct{}, 1)}
	sub.wake = func() { peer.Wake(p.wakeup) }
	opened := false
	defer b.closeUnless(&opened, sub)
	sender := topicSender{func(*topicSubscriptions) { peer.Wake(p.wakeup) }, req.Notify}
	if err := b.register(ctx, req, sub, f, topics, sender); err != nil {
		return nil, err
	}
	opened = true
	if req.listen != nil {
		req.listen.push = p
		return EmptyResult{}, nil
	}
	return p.serve()
}

func (p *pushSubscription) close() {
	p.changes.close(p.subscription)
	if p.req.outlivesHandler() {
		c := callFrom(p.ctx)
		c.progress.finish(c)
		if p.req.listen.ended != nil {
			p.req.listen.ended()
		}
	}
}

// serve sends notifications until the client or the server ends the subscription. Its stack frame
// is small; the functions that it calls use large frames.
func (p *pushSubscription) serve() (Result, error) {
	defer p.close()
	done := p.ctx.Done()
	for {
		select {
		case <-p.wakeup:
			if err := p.sendAll(p.ctx); err != nil && p.ctx.Err() == nil {
				return nil, err
			}
		case <-done:
			return p.end()
		}
	}
}

// sendAll sends the recorded changes. It recovers from panics, because the handler that would do so
// may be gone.
func (p *pushSubscription) sendAll(ctx context.Context) (err error) {
	defer recovered(ctx, p.req.logger(), p.req.Method, &err)
	if err := p.send(ctx, p.req); err != nil {
		return err
	}
	return p.topics.send(ctx)
}

func (p *pushSubscription) end() (Result, error) {
	// Changes before the end are still sent. Notify fails if no message can be sent any more.
	_ = p.sendAll(context.WithoutCancel(p.ctx))
	return p.result(p.ctx)
}

// result returns the result of a subscription after the end of its context.
func (s *subscription) result(ctx context.Context) (Result, error) {
	if cause := context.Cause(ctx); !errors.Is(cause, ErrClosed) || errors.Is(cause, ErrDisconnected) {
		return nil, cause
	}
	return EmptyResult{Meta: Meta{wire.MetaSubscriptionID: s.id}}, nil
}

// A listenCall holds a subscription that outlives the handler which opened it.
type listenCall struct {
	detached bool              // notifications are sent by the goroutines that make the changes
	stop     func()            // ends a detached subscription
	push     *pushSubscription // the subscription if it is not detached
	ended    func()            // reports the end of the subscription to an Observer; may be nil
}

// outlivesHandler reports whether the request is a subscription that is served after its handler
// returned.
func (r *Request) outlivesHandler() bool { return r.listen != nil && r.listen.push != nil }

// listenThenServe calls h, which opens a subscription, and serves the subscription after h
// returned. No handler between h and the server may inspect the result.
func listenThenServe(ctx context.Context, req *Request, h Handler) (Result, error) {
	var l listenCall
	req.listen = &l
	res, err := contain(ctx, req.logger(), req, h)
	switch {
	case l.push == nil:
		return res, err
	case err != nil:
		l.push.close()
		return nil, err
	}
	return l.push.serve()
}

// A wrapper is a transport's handler in front of another handler. It inspects the error of a call
// and not the result, so a subscription can be served after it returned.
type wrapper interface {
	Unwrap(driver.Wrapped) Handler
}

// serverOf returns the server that h is or that h wraps in handlers of a transport; nil for other
// handlers.
func serverOf(h Handler) *Server {
	for w, ok := h.(wrapper); ok; w, ok = h.(wrapper) {
		h = w.Unwrap(driver.Wrapped{})
	}
	s, _ := h.(*Server)
	return s
}

// passesListen reports whether h answers subscriptions/listen with a [Broadcaster] and does not
// inspect the result, so that a subscription can be served after h returned.
func passesListen(h Handler) bool {
	for w, ok := h.(wrapper); ok; w, ok = h.(wrapper) {
		h = w.Unwrap(driver.Wrapped{})
	}
	if _, ok := h.(*Broadcaster); ok {
		return true
	}
	b, ok := h.(interface{ UsesBroadcaster() Handler })
	return ok && reflect.TypeOf(b.UsesBroadcaster()) == reflect.TypeOf(h)
}

// plainServer returns the server of h if it is without middleware; otherwise nil.
func plainServer(h Handler) *Server {
	if s := serverOf(h); s != nil && s.handler.Load().isPlain {
		return s
	}
	return nil
}
