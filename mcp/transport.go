package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A Conn is a stream of messages between a client and a server. [Stdio], [NewStreamConn] and [Pipe]
// return Conns. A custom stream transport is another implementation of Conn.
//
// Spec: basic/transports#custom-transports.
type Conn interface {
	// Read returns the next message, which the caller owns. The error is io.EOF at the end of the
	// stream. A [*jsonrpc.DecodeError] reports an invalid message, after which reading continues.
	// Read fails when ctx ends or the Conn is closed. It is called by one goroutine at a time.
	Read(ctx context.Context) (*jsonrpc.Message, error)
	// Write sends a message, and blocks while the other side is slow. It fails when ctx ends or the
	// Conn is closed; a message that was written in part by then ends the stream. Write must not
	// retain the message, and must be safe for concurrent use.
	Write(ctx context.Context, m *jsonrpc.Message) error
	// Close ends both directions, and pending calls of Read and Write as far as the underlying
	// streams allow.
	Close() error
}

// A Transport sends the requests of a client to a server, as an http.RoundTripper does for HTTP.
// [Command], [InMemory], [NewConnTransport] and mcphttp.NewTransport return Transports. [Connect]
// returns a [Client] that uses a Transport.
//
// Spec: basic/transports (2026-07-28).
type Transport interface {
	// RoundTrip sends a request, whose params contain the `_meta`, and returns its result: a
	// [RawResult], unless the transport stays within the process. It must pass the notifications of
	// the request to req.Notify, if that is set, in order, and all of them before it returns; a
	// Notify that blocks may block the whole transport. The transport chooses the id.
	//
	// The error is a remote [*Error] if the server responded with an error, and a [*TransportError]
	// if there is no response. When ctx ends, RoundTrip must cancel the request at the server and
	// return context.Cause(ctx). It must be safe for concurrent use.
	RoundTrip(ctx context.Context, req *Request) (Result, error)
	// Close ends all requests and connections within limited time. It may be called several times.
	Close() error
}

// A TransportError reports that a request received no valid response: the connection failed, or the
// response violates the protocol. An error response of the server is an [*Error] instead; a refusal
// by HTTP status, such as 401 or 403, is both if its body contains an error.
type TransportError struct {
	Method string // of the request
	// MayHaveRun reports whether the server may have executed the request, or may still do so. If
	// it is false, the server did not execute the request, which can be sent again.
	MayHaveRun bool
	Err        error // the reason
}

// Error returns the reason. For a request with possible effects that received no response, the text
// ends with "; it may have run".
func (e *TransportError) Error() string {
	text := fmt.Sprintf("mcp: %s: %v", e.Method, e.Err)
	hasEffects := e.Method == wire.MethodToolsCall || !coreMethod(e.Method) // the methods of extensions may, too
	if hasEffects && e.MayHaveRun && !errors.Is(e.Err, ErrInvalidResult) {
		text += "; it may have run"
	}
	return text
}

// Unwrap returns the reason.
func (e *TransportError) Unwrap() error { return e.Err }

// A headerParamTransport is a Transport that repeats arguments of tools in headers; see
// [driver.HeaderParam].
type headerParamTransport interface{ UsesHeaderParams() }

// A SessionTransport is a Transport that can also connect to servers of revisions before
// 2026-07-28. [Connect] opens a session with such a server.
//
// Spec: basic/versioning#backward-compatibility-with-initialization-based-versions (2026-07-28).
type SessionTransport interface {
	Transport
	// OpenSession opens the connection of a new session, whose first request is initialize. The
	// server's requests, and its notifications that belong to no request in progress, go to
	// receive, which must not block and may be called concurrently. A nil message reports that
	// messages may be missing. ctx limits the opening, not the session.
	OpenSession(ctx context.Context, receive func(m *jsonrpc.Message)) (driver.SessionConn, error)
}

const (
	// minBackoff is the delay before the third start of a server that exits early. It doubles with
	// each further start.
	minBackoff = time.Second
	// maxBackoff is the longest delay.
	maxBackoff = 30 * time.Second
	// minUptime is how long a server must run for its exit not to count as early.
	minUptime = 10 * time.Second
)

// NewConnTransport returns a Transport over a Conn, such as a socket or an end of a [Pipe]. It ends
// when the Conn does.
func NewConnTransport(conn Conn) Transport {
	t := &connTransport{}
	used := false
	t.init(func(context.Context) (Conn, error) {
		if used {
			return nil, fmt.Errorf("%w: the Conn has ended", ErrDisconnected)
		}
		used = true
		return conn, nil
	})
	t.unused = conn
	return t
}

// A connTransport is a Transport over Conns, one at a time. After the end of a Conn, it dials the
// next.
type connTransport struct {
	dial   func(ctx context.Context) (Conn, error)
	logger *slog.Logger
	once   bool // a Conn that received a response is the last
	unused Conn // closed by Close if no request was sent
	trace  tracer

	lock       chan struct{} // holds a token while the fields below are used
	current    *clientConn   // nil before the first request
	dialed     time.Time     // when current was dialed
	earlyExits int           // number of consecutive early exits
	backoff    time.Time     // when the next dial is allowed
	closed     bool

	routes    routes
	unrouted  func(m *jsonrpc.Message) // receives notifications that belong to no request
	restarted func()                   // called after a Conn other than the first was dialed
}

func (t *connTransport) init(dial func(ctx context.Context) (Conn, error)) {
	t.dial, t.lock = dial, make(chan struct{}, 1)
	t.unrouted, t.restarted = func(*jsonrpc.Message) {}, func() {}
}

func (t *connTransport) log() *slog.Logger { return cmp.Or(t.logger, slog.Default()) }

// RoundTrip sends a request of revision 2026-07-28. If the connection ended since the last request,
// it opens another connection, even if only the write of this request shows the end.
func (t *connTransport) RoundTrip(ctx context.Context, req *Request) (Result, error) {
	c, fresh, err := t.live(ctx, req.Method)
	if err != nil {
		return nil, err
	}
	if err := req.open(); err != nil {
		return nil, err
	}
	res, err := c.roundTripModern(ctx, req, &t.routes)
	if end := connectionEnd(err); fresh || end == nil || end.MayHaveRun {
		return res, err
	}
	again, _, err2 := t.live(ctx, req.Method)
	if err2 != nil {
		return nil, err
	}
	return again.roundTripModern(ctx, req, &t.routes)
}

// open parses the envelope of a request, unless it is parsed already.
func (r *Request) open() error {
	if r.env.Meta != nil {
		return nil
	}
	env, err := wire.Open(r.Params)
	if err != nil {
		return err
	}
	r.env.Envelope = env
	return nil
}

// live returns the current clientConn, or dials if there is none. fresh reports whether it dialed.
func (t *connTransport) live(ctx context.Context, method string) (c *clientConn, fresh bool, err error) {
	if t.dial == nil {
		err := errors.New("the transport was not made by Command or NewConnTransport")
		return nil, false, &TransportError{Method: method, Err: err}
	}
	select {
	case t.lock <- struct{}{}:
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	defer func() { <-t.lock }()
	if t.closed {
		return nil, false, &TransportError{Method: method, Err: ErrClosed}
	}
	if t.current != nil && !t.current.isOver() {
		return t.current, false, nil
	}
	if t.once && t.current != nil && t.current.answered.Load() {
		return nil, false, &TransportError{Method: method, Err: t.current.end()}
	}
	t.closeDead()
	if err := sleep(ctx, time.Until(t.backoff)); err != nil {
		return nil, false, err
	}
	conn, err := t.dial(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		return nil, false, &TransportError{Method: method, Err: err}
	}
	if !t.dialed.IsZero() {
		t.restarted()
	}
	t.unused, t.dialed = nil, time.Now()
	t.current = newClientConn(conn, t.log(), t.trace, t.receive)
	return t.current, true, nil
}

// closeDead discards the Conn after its end. After several early exits, the next dial is delayed.
func (t *connTransport) closeDead() {
	if t.current == nil {
		return
	}
	_ = t.current.Close()
	if time.Since(t.dialed) > minUptime {
		t.earlyExits = 0
	}
	t.current = nil
	if t.earlyExits++; t.earlyExits >= 2 {
		t.backoff = time.Now().Add(min(minBackoff<<min(t.earlyExits-2, 10), maxBackoff))
	}
}

// sleep waits for d, or until ctx ends, and returns the cause of that.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// receive handles messages other than responses on c. Modern servers must not send requests, and
// modern clients must not send responses. A server that violates this waits for a response, and
// some servers end the connection without it, so the client responds on a stream. A ping succeeds,
// because a server may send it before initialize, while its revision is unknown. Over HTTP no
// message could carry the response.
//
// Spec: basic/transports/stdio (2026-07-28); basic/utilities/ping (2025-11-25).
func (t *connTransport) receive(c *clientConn, m *jsonrpc.Message) {
	switch {
	case m.Kind() != jsonrpc.Request:
		if !t.routes.notify(context.Background(), m) {
			t.unrouted(m)
		}
	case m.Method == wire.MethodPing:
		c.respond(&jsonrpc.Message{ID: m.ID, Result: json.RawMessage(`{}`)})
	default:
		t.log().Debug("mcp: refusing a request of the server, which modern revisions forbid", "method", m.Method)
		c.respond(&jsonrpc.Message{ID: m.ID, Error: Errorf(CodeMethodNotFound, "method not found: %.128q", m.Method)})
	}
}

// OpenSession opens a session on the current connection.
func (t *connTransport) OpenSession(ctx context.Context, receive func(m *jsonrpc.Message)) (driver.SessionConn, error) {
	c, _, err := t.live(ctx, wire.MethodInitialize)
	if err != nil {
		return nil, err
	}
	c.receive.Store(&receive)
	return c, nil
}

func (t *connTransport) streams() *connTransport { return t }

// Done implements [driver.Lifetime].
func (t *connTransport) Done() <-chan struct{} {
	if c := t.connection(); c != nil {
		return c.done
	}
	return nil
}

// Err implements [driver.Lifetime].
func (t *connTransport) Err() error {
	if c := t.connection(); c != nil && peer.IsClosed(c.done) {
		return c.err
	}
	return nil
}

// connection returns the current connection, or nil.
func (t *connTransport) connection() *clientConn {
	if t.lock == nil { // not made by Command or NewConnTransport
		return nil
	}
	t.lock <- struct{}{}
	defer func() { <-t.lock }()
	return t.current
}

// Close ends the connection.
func (t *connTransport) Close() error {
	if t.dial == nil {
		return nil
	}
	t.lock <- struct{}{}
	defer func() { <-t.lock }()
	t.closed = true
	switch {
	case t.current != nil:
		return t.current.Close()
	case t.unused != nil:
		conn := t.unused
		t.unused = nil
		return conn.Close()
	}
	return nil
}

// connectionEnd returns the error of a request whose connection ended, or nil.
func connectionEnd(err error) *TransportError {
	if failed, ok := errors.AsType[*TransportError](err); ok && errors.Is(err, ErrClosed) {
		return failed
	}
	return nil
}
