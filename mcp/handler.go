package mcp

import "context"

// A Handler serves requests. [*Server] is a Handler; so is a proxy in front of other servers.
//
// ServeMCP serves one request. Notifications of the request are sent with [Request.Notify] before
// ServeMCP returns. A returned [*Error] is sent to the client; any other error is logged, and the
// client receives "internal error". ServeMCP must be safe for concurrent use. The context ends when
// the client cancels or disconnects, with the reason as its cause. [RequestFrom], [Progress] and
// [Logger] work with it on every transport; [Ask] and similar functions fail, because only a
// [*Server] calls its handlers again with the answers: return an [*InputRequiredResult] instead.
//
// A Handler in front of a Server, other than its [Middleware], must implement the method Unwrap()
// Handler, which returns the next Handler: otherwise transports ignore [ServerOptions].Revisions
// and RootsChanged. A Handler without a Server serves subscriptions/listen with a [Broadcaster].
type Handler interface {
	ServeMCP(ctx context.Context, req *Request) (Result, error)
}

// A HandlerFunc is a function as a [Handler].
type HandlerFunc func(ctx context.Context, req *Request) (Result, error)

// ServeMCP calls f.
func (f HandlerFunc) ServeMCP(ctx context.Context, req *Request) (Result, error) { return f(ctx, req) }

// A Middleware wraps a [Handler], to observe, change or refuse requests and results. The first
// middleware of a list is the outermost. It must not call the wrapped handler concurrently for a
// request.
type Middleware func(Handler) Handler

// chain wraps h in the middlewares, the first outermost.
func chain(h Handler, middleware []Middleware) Handler {
	for i := len(middleware) - 1; i >= 0; i-- {
		h = middleware[i](h)
	}
	return h
}
