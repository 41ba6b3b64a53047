package driver

import (
	"context"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A Server serves requests with one handler, for transports and for handlers that report to an
// observer. Function mcp.Driver returns a Server: R is *mcp.Request, T is mcp.Result and O
// is mcp.Observer. It is safe for concurrent use.
type Server[R, T, O any] interface {
	// Respond serves a request and returns the response message. A panic of the handler, and an error
	// other than a *jsonrpc.Error, is logged in full and answered with "internal error".
	Respond(ctx context.Context, req R) *jsonrpc.Message
	// AppendResponse serves a request and appends the response message to dst. The error is the error
	// that the message contains, or nil.
	AppendResponse(dst []byte, ctx context.Context, req R) ([]byte, *jsonrpc.Error)
	// AppendResult serves a request and appends the result to dst. If the error is not nil, the caller
	// must respond with the error.
	AppendResult(dst []byte, ctx context.Context, req R) ([]byte, *jsonrpc.Error)
	// Observe serves a request between the two calls of the handler's observer, as a server does.
	// target returns the Target of the outcome. Without an observer, it only serves the request.
	Observe(ctx context.Context, req R, target func(req R, err error) string) (T, error)
	// Observer returns the observer of the handler, or nil.
	Observer() O
	// Revisions returns the revisions that the handler accepts, the oldest first.
	Revisions() []string
	// RootsChanged returns the function that the transport must call when the client of a session
	// announces that its roots have changed; nil means that the handler ignores the announcement.
	RootsChanged() func(ctx context.Context)
	// Relay calls send with each change that the program announces, until stop is called, so that a
	// transport can pass the change on to other processes: the method of the notification, such as
	// "notifications/tools/list_changed", and the URI of an updated resource. send must not wait.
	// announce notifies the subscriptions of a change in another process, which is not passed to send;
	// an empty method stands for all changes. origin is a random text that identifies the server. All are
	// zero if the handler is not a *mcp.Server.
	Relay(send func(method, uri string)) (announce func(method, uri string), origin string, stop func())
}

// Wrapped is the parameter of the method Unwrap of a handler that a transport puts in front of
// another handler and returns. A handler with this method must return the result of the other handler
// unchanged. It may read the error. A subscription can then continue after ServeMCP returned, without a
// goroutine.
type Wrapped struct{}

// A Listener is an mcp.Handler that can send the notifications of a subscription without a waiting
// goroutine. Transports use it for clients that are connected but idle. *mcp.Server and
// *mcp.Broadcaster implement it. R is *mcp.Request.
type Listener[R any] interface {
	// Listen registers a subscriptions/listen request and returns. Until stop is called, req.Notify
	// sends the notifications of the subscription, the acknowledgement first. The goroutine that made
	// the change calls Notify, so Notify must not block.
	Listen(ctx context.Context, req R) (stop func(), err error)
}
