package mcpint

import (
	"context"
	"encoding/json"
)

// A Forwarder is the handler that mcp.Forward returns, as package host uses it. R is *mcp.Request
// and T is mcp.Result. It is safe for concurrent use.
type Forwarder[R, T any] interface {
	// ForwardAs forwards a request of any method, except server/discover and subscriptions/listen. It
	// copies the params once and does not change req. An error of the server is returned as it is; a
	// request without a valid response is an *mcp.TransportError.
	ForwardAs(ctx context.Context, req R, o *ForwardOptions) (T, error)
	// Usage returns what the forwarder is busy with.
	Usage() ForwardUsage
	// Abandon ends the suspended requests of a caller that will not come back: their questions are
	// answered as if the user had dismissed them, and the requests are cancelled.
	Abandon(caller string)
	// Done returns a channel that is closed when the current connection with the server has ended.
	// It is nil for a server without connections. A later request may open another one.
	Done() <-chan struct{}
}

// ForwardOptions say for whom a request is forwarded, and what is changed in it.
type ForwardOptions struct {
	// Principal identifies on whose behalf the request is made. Messages of the server that may
	// belong to requests of several principals go to none. Default: the principal of the request, or
	// the caller if it has none.
	Principal string
	// Caller identifies the client of the principal: its session or connection. Only the same one
	// can answer the questions of the request. Default: the session and the name of the client.
	Caller string
	// Subject replaces the name or URI in the params, for completion/complete that in ref. Default:
	// unchanged.
	Subject string
	// Capabilities replace those of the request's client, unless they are nil.
	Capabilities json.RawMessage
	// WithoutMeta is a member of `_meta` that is not forwarded; "" for none.
	WithoutMeta string
}

// ForwardUsage is what a [Forwarder] is busy with.
type ForwardUsage struct {
	InProgress int  // requests, with those that wait for their client or their turn
	Suspended  int  // requests that wait for their client, and outcomes that are kept for it
	Serial     bool // requests that may be asked run one at a time
}
