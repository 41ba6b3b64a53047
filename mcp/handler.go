package mcp

import "context"

// A Handler answers requests. [*Server] is a Handler; so is a proxy in front of other servers.
//
// ServeMCP answers one request. Notifications that belong to the request leave through [Request.Notify] before
// ServeMCP returns. A returned [*Error] reaches the peer as it is; any other error is logged and reaches the peer as
// "internal error". ServeMCP is called from many goroutines at once; the context ends when the peer cancels or goes
// away, with the reason as its cause.
type Handler interface {
	ServeMCP(ctx context.Context, req *Request) (Result, error)
}

// A HandlerFunc is a function that serves as a [Handler].
type HandlerFunc func(ctx context.Context, req *Request) (Result, error)

// ServeMCP calls f.
func (f HandlerFunc) ServeMCP(ctx context.Context, req *Request) (Result, error) { return f(ctx, req) }

// A Middleware wraps a [Handler] in another one, to observe, change or refuse requests and results. The first
// middleware of a list is the outermost. It calls the handler that it wraps at most once at a time for one request.
type Middleware func(Handler) Handler

// A Listener is a Handler that can deliver change notifications without a goroutine that waits for them. Transports
// use it for peers that are connected but idle. [*Server] is one.
//
// Listen takes a subscriptions/listen request and returns once it is registered. Until stop is called, every
// notification of the subscription goes to req.Notify, the acknowledgement first. Notify is then called from whichever
// goroutine made the change, so it must not block.
type Listener interface {
	Handler
	Listen(ctx context.Context, req *Request) (stop func(), err error)
}

// A HeaderMirror is a Handler that knows which arguments of its tools HTTP clients repeat in Mcp-Param-* headers.
// The HTTP transport asks it before it serves a tools/call, and refuses a call whose headers and body disagree.
// [*Server] is one.
//
// Spec: basic/transports/streamable-http (2026-07-28), Custom Headers from Tool Parameters.
type HeaderMirror interface {
	Handler
	// MirroredParams returns the arguments of the tool that req calls.
	MirroredParams(ctx context.Context, req *Request, tool string) []MirroredParam
}

// A MirroredParam is one tool argument that clients repeat in a header.
type MirroredParam struct {
	Header string   // the part after "Mcp-Param-"
	Path   []string // the property names that lead to the argument, from the root of the arguments
	Type   string   // "string", "integer" or "boolean"
}

// chain wraps h in the middlewares, the first one outermost.
func chain(h Handler, middleware []Middleware) Handler {
	for i := len(middleware) - 1; i >= 0; i-- {
		h = middleware[i](h)
	}
	return h
}
