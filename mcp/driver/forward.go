package driver

import (
	"context"
	"encoding/json"
)

// A Forwarder is the handler that mcp.Forward returns. R is *mcp.Request and T is mcp.Result. It is
// safe for concurrent use.
type Forwarder[R, T any] interface {
	// ServeMCP forwards a request on behalf of its principal.
	ServeMCP(ctx context.Context, req R) (T, error)
	// ForwardAs forwards a request of any method except server/discover and subscriptions/listen. It
	// copies the params once and does not change req. An error of the server is returned unchanged; a
	// request without a valid response fails with an *mcp.TransportError.
	ForwardAs(ctx context.Context, req R, o *ForwardOptions) (T, error)
	// Usage returns the number of requests that occupy the forwarder.
	Usage() ForwardUsage
	// Abandon ends the suspended requests of a caller that will not return: their questions are
	// answered as if the user had dismissed them, and the requests are cancelled.
	Abandon(caller string)
	// Done returns a channel that is closed when the current connection to the server has ended. It is
	// nil for a server without connections. A later request may open another connection.
	Done() <-chan struct{}
}

// ForwardOptions specify for whom a request is forwarded, and which members of it change.
type ForwardOptions struct {
	// Principal identifies on whose behalf the request is made. A message of the server that may
	// belong to requests of several principals is sent to none of them. Default: the principal of the
	// request, or Caller if the request has no principal.
	Principal string
	// Caller identifies the client of the principal: its session or connection. Only the same caller
	// can answer the questions of the request. Default: the session and the name of the client.
	Caller string
	// Subject replaces the name or URI in the params; for completion/complete, the name or URI of the
	// member ref. Default: unchanged.
	Subject string
	// Capabilities replace the capabilities of the request's client, unless they are nil.
	Capabilities json.RawMessage
	// WithoutMeta is a member of `_meta` that must not be forwarded. Default: all members are.
	WithoutMeta string
}

// ForwardUsage contains the number of requests that occupy a [Forwarder].
type ForwardUsage struct {
	InProgress int  // requests, including those that wait for their client or their turn
	Suspended  int  // requests that wait for their client, and outcomes that are kept for it
	Serial     bool // requests that may ask questions run one after the other
}
