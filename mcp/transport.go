package mcp

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A Conn is a stream of messages between one client and one server. [Stdio], [NewStream] and [Pipe] give Conns; a further
// transport on streams needs nothing more than another one.
//
// Spec: basic/transports#custom-transports.
type Conn interface {
	// Read returns the next message of the peer. The error is io.EOF at the end of the stream, and a [*jsonrpc.DecodeError]
	// for one message that is refused, after which reading goes on. It fails when ctx ends or the Conn is closed. The
	// message is the caller's. One goroutine reads at a time.
	Read(ctx context.Context) (*jsonrpc.Message, error)
	// Write sends one message, and blocks while the peer is slow. It fails when ctx ends or the Conn is closed; a message
	// of which a part has left by then ends the stream. It does not keep the message. It is safe for concurrent use.
	Write(ctx context.Context, m *jsonrpc.Message) error
	// Close ends both directions, and with them every Read and Write that waits, as far as what is below allows.
	Close() error
}

// A Transport carries a client's requests to one server, as an http.RoundTripper does for HTTP. [Command], [InMemory],
// [OverConn] and mcphttp.NewTransport give Transports. [Connect] makes a [Client] of one.
//
// Spec: basic/transports (2026-07-28).
type Transport interface {
	// RoundTrip sends a request, which carries its envelope in the params, and gives its result: a [RawResult], unless the
	// transport stays within the process. Notifications that belong to the request go to req.Notify, if that is set,
	// one after the other and all of them before RoundTrip returns; a Notify that blocks may hold up all that the transport
	// carries. The id is the transport's to choose.
	//
	// The error is an [*Error] that is remote if the server answered with one, and a [*TransportError] if there is no
	// answer. When ctx ends, the transport cancels the request at the server, in the way that its kind of transport has,
	// and returns context.Cause(ctx). RoundTrip is called from many goroutines.
	RoundTrip(ctx context.Context, req *Request) (Result, error)
	// Close ends everything, and returns within bounded time. It may be called several times.
	Close() error
}

// A TransportError says that a request has no answer: the connection failed, or what came back is no message of the
// protocol. What a server says itself is an [*Error].
type TransportError struct {
	// Method is the request's.
	Method string
	// MayHaveRun says that the server may have carried the request out, or may still do so. When it is false the
	// server certainly has not, and sending the request again repeats nothing.
	MayHaveRun bool
	// Err is what happened.
	Err error
}

// Error says what happened, and whether the request may have run.
func (e *TransportError) Error() string {
	if e.MayHaveRun {
		return fmt.Sprintf("mcp: %s: no answer, it may have run: %v", e.Method, e.Err)
	}
	return fmt.Sprintf("mcp: %s: did not run: %v", e.Method, e.Err)
}

// Unwrap returns what happened.
func (e *TransportError) Unwrap() error { return e.Err }

// A KeyedTransport is a Transport that can name its server. [Connect] then remembers, for as long as the process lives,
// what it found out about the server.
type KeyedTransport interface {
	Transport
	// ServerKey is the same for all transports to one server: a command line, the origin of a URL.
	ServerKey() string
}

// A headerParamTransport is a Transport that repeats arguments of tools in headers; see [HeaderParam].
type headerParamTransport interface{ UsesHeaderParams() }

// A SessionTransport is a Transport that can also reach servers which speak no revision since 2026-07-28. [Connect] asks
// it for a session when it finds that a server is one of these.
//
// Spec: basic/versioning#backward-compatibility-with-initialization-based-versions (2026-07-28).
type SessionTransport interface {
	Transport
	// OpenSession returns what carries the messages of one new session; initialize is the first request that is sent on it.
	// What the server sends and nobody awaits, its requests and notifications, goes to receive, which does not block and
	// may be called from several goroutines. A nil message says that some may have been missed. ctx bounds the opening,
	// not the session.
	OpenSession(ctx context.Context, receive func(m *jsonrpc.Message)) (SessionLink, error)
}

// A SessionLink carries the messages of one session. It is safe for concurrent use.
type SessionLink interface {
	// RoundTrip sends a request, under an id that the link chooses and sets, and gives the response, which may be an error.
	// Its errors are those of [Transport.RoundTrip]; [ErrSessionLost] is within one that says that the server no longer
	// knows the session. When ctx ends, it sends notifications/cancelled, unless the request is initialize.
	RoundTrip(ctx context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error)
	// Send sends a notification or a response.
	Send(ctx context.Context, m *jsonrpc.Message) error
	// Done is closed when the link can carry nothing any more, because the server or the transport has ended it.
	Done() <-chan struct{}
	// Close ends the session, at the server too if that is possible. It may be called several times.
	Close() error
}

// ErrSessionLost is within the error of a request whose session the server has ended or forgotten.
//
// Spec: basic/transports#session-management (2025-11-25).
var ErrSessionLost = errors.New("mcp: the server no longer knows the session")
