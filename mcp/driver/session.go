package driver

import (
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A SessionConn carries the messages of one session. Transports of clients implement it; see
// mcp.SessionTransport. It is safe for concurrent use.
type SessionConn interface {
	// RoundTrip sends a request, under an id that it chooses and sets, and returns the response,
	// which may be an error. Its errors equal the errors of an mcp.Transport; an error that wraps
	// [ErrSessionLost] reports that the server no longer knows the session. When ctx ends, RoundTrip
	// sends notifications/cancelled, unless the request is initialize.
	RoundTrip(ctx context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error)
	// Send sends a notification or a response.
	Send(ctx context.Context, m *jsonrpc.Message) error
	// Done returns a channel that is closed when the server or the transport has ended the session.
	Done() <-chan struct{}
	// Close ends the session, at the server too if possible. It may be called several times.
	Close() error
}

// ErrSessionLost is wrapped by the error of a request whose session the server has ended or lost.
//
// Spec: basic/transports#session-management (2025-11-25).
var ErrSessionLost = errors.New("mcp: the server no longer has the session")

// A Lifetime describes the current connection of a transport. The transports of mcp.Command and
// mcp.NewConnTransport implement it.
type Lifetime interface {
	// Done returns a channel that is closed when the connection has ended. It is nil before the first
	// request.
	Done() <-chan struct{}
	// Err returns the reason for the end, such as an *mcp.ExitError, or nil before the end.
	Err() error
}

// An IdentifiedTransport is an mcp.Transport that can identify its server. mcp.Connect caches for an
// hour whether the server supports only revisions before 2026-07-28.
type IdentifiedTransport interface {
	// ServerKey returns a key that is equal for all transports to one server, such as a command line or
	// the origin of a URL.
	ServerKey() string
}

// A SessionKey is the key of a context's value that contains the id of a session: a string. A context
// type with its own method Value may return the id for this key; otherwise use [WithSessionID].
type SessionKey struct{}

// WithSessionID returns a context with the id of the session that a request belongs to. The HTTP
// transport sets it for the revisions before 2026-07-28, also for the initialize request that opens
// the session.
func WithSessionID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, SessionKey{}, id)
}

// SessionID returns the id of the session that the request of ctx belongs to, or "". The id is a
// secret: it must not be logged.
func SessionID(ctx context.Context) string {
	id, _ := ctx.Value(SessionKey{}).(string)
	return id
}

type receiverKey struct{}

// WithReceiver returns a context for opening a session. A transport whose requests have streams of
// their own calls receive in place of the function that OpenSession gets: with the context of the
// request on whose stream the message arrived, or nil for a message on a stream of the session.
func WithReceiver(ctx context.Context, receive func(of context.Context, m *jsonrpc.Message)) context.Context {
	return context.WithValue(ctx, receiverKey{}, receive)
}

// Receiver returns the function of [WithReceiver], or a function that ignores the request and calls
// receive.
func Receiver(ctx context.Context, receive func(m *jsonrpc.Message)) func(of context.Context, m *jsonrpc.Message) {
	if r, ok := ctx.Value(receiverKey{}).(func(of context.Context, m *jsonrpc.Message)); ok {
		return r
	}
	return func(_ context.Context, m *jsonrpc.Message) { receive(m) }
}
