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

// A Conn is a stream of messages between one client and one server. [Stdio], [NewStreamConn] and
// [Pipe] return Conns. A custom stream transport is another implementation of Conn.
//
// Spec: basic/transports#custom-transports.
type Conn interface {
	// Read returns the next message, which the caller owns. The error is io.EOF at the end of the
	// stream. A [*jsonrpc.DecodeError] reports one invalid message, after which reading continues.
	// Read fails when ctx ends or the Conn is closed. It is called by one goroutine at a time.
	Read(ctx context.Context) (*jsonrpc.Message, error)
	// Write sends one message, and blocks while the other side is slow. It fails when ctx ends or
	// the Conn is closed; a message that was written in part by then ends the stream. Write does
	// not retain the message. It is safe for concurrent use.
	Write(ctx context.Context, m *jsonrpc.Message) error
	// Close ends both directions, and pending calls of Read and Write as far as the underlying
	// streams allow.
	Close() error
}

// A Transport sends the requests of a client to one server, as an http.RoundTripper does for HTTP.
// [Command], [InMemory], [NewConnTransport] and mcphttp.NewTransport return Transports. [Connect]
// returns a [Client] that uses one.
//
// Spec: basic/transports (2026-07-28).
type Transport interface {
	// RoundTrip sends a request, whose params have the `_meta`, and returns its result: a
	// [RawResult], unless the transport stays within the process. It passes the notifications of
	// the request to req.Notify, if that is set, in order, and all of them before it returns; a
	// Notify that blocks may block the whole transport. The transport chooses the id.
	//
	// The error is a remote [*Error] if the server responded with an error, and a [*TransportError]
	// if there is no response. When ctx ends, RoundTrip cancels the request at the server and
	// returns context.Cause(ctx). It is safe for concurrent use.
	RoundTrip(ctx context.Context, req *Request) (Result, error)
	// Close ends all requests and connections within bounded time. It may be called several times.
	Close() error
}

// A TransportError reports that a request has no valid response: the connection failed, or the
// response violates the protocol. An error that the server responded with is an [*Error] instead; a
// refusal by HTTP status, such as 401 or 403, is both if its body has an error.
type TransportError struct {
	// Method is the method of the request.
	Method string
	// MayHaveRun reports whether the server may have executed the request, or may still do so. If
	// it is false, the server has not, and the request can be sent again.
	MayHaveRun bool
	// Err is the reason.
	Err error
}

// Error returns the reason. If there was no response to a request that can have effects, the text
// ends with "; it may have run".
func (e *TransportError) Error() string {
	text := fmt.Sprintf("mcp: %s: %v", e.Method, e.Err)
	if e.MayHaveRun && !errors.Is(e.Err, ErrInvalidResult) && canHaveEffects(e.Method) {
		text += "; it may have run"
	}
	return text
}

// canHaveEffects reports whether a request of a method can change something at the server. The
// methods of extensions can.
func canHaveEffects(method string) bool {
	return method == wire.MethodToolsCall || !coreMethod(method)
}

// Unwrap returns the reason.
func (e *TransportError) Unwrap() error { return e.Err }

// A headerParamTransport is a Transport that repeats arguments of tools in headers; see
// [driver.HeaderParam].
type headerParamTransport interface{ UsesHeaderParams() }

// A SessionTransport is a Transport that can also connect to servers of revisions before
// 2026-07-28. [Connect] opens a session if the server is one of these.
//
// Spec: basic/versioning#backward-compatibility-with-initialization-based-versions (2026-07-28).
type SessionTransport interface {
	Transport
	// OpenSession opens the connection of a new session, whose first request is initialize. The
	// server's requests, and its notifications that belong to no request in progress, go to
	// receive, which must not block and may be called concurrently. A nil message reports that
	// messages may have been missed. ctx bounds the opening, not the session.
	OpenSession(ctx context.Context, receive func(m *jsonrpc.Message)) (driver.SessionConn, error)
}

const (
	// minBackoff is the delay before the third start of a server that exits early. It doubles with
	// each further start.
	minBackoff = time.Second
	// maxBackoff is the longest delay.
	maxBackoff = 30 * time.Second
	// minUptime is how long a server must have run for its exit not to count as early.
	minUptime = 10 * time.Second
)

// NewConnTransport returns a Transport over a Conn, such as that of a socket or one end of a
// [Pipe]. It ends when the Conn does.
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

// A connTransport is a Transport over Conns, one at a time. When one has ended, it dials the next.
type connTransport struct {
	dial   func(ctx context.Context) (Conn, error)
	logger *slog.Logger
	once   bool // a Conn that has had a response is the last one
	unused Conn // closed by Close if no request was sent
	trace  tracer

	lock       chan struct{} // holds a token while the fields below are used
	current    *clientConn   // nil before the first request
	dialed     time.Time     // when current was
	earlyExits int           // number of consecutive early exits
	backoff    time.Time     // when the next dial is allowed
	closed     bool

	routes    routes
	unrouted  func(m *jsonrpc.Message) // receives notifications that belong to no request
	restarted func()                   // called after a Conn other than the first has been dialed
}

func (t *connTransport) init(dial func(ctx context.Context) (Conn, error)) {
	t.dial, t.lock = dial, make(chan struct{}, 1)
	t.unrouted, t.restarted = func(*jsonrpc.Message) {}, func() {}
}

func (t *connTransport) log() *slog.Logger { return cmp.Or(t.logger, slog.Default()) }

// RoundTrip sends a request of revision 2026-07-28. If the connection has ended since the last
// request, it opens another one, even if only the write of this request shows the end.
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

// open parses the envelope of a request, unless it has been parsed.
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

// live returns the current clientConn, and dials if there is none. fresh reports whether it has
// dialed.
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

// closeDead discards the Conn that has ended. After several early exits, the next dial is delayed.
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// receive handles messages other than responses on c. Modern servers send no requests, and modern
// clients no responses. A server that violates this waits for a response, and some servers
// end the connection without one, so on a stream it gets one. A ping succeeds, because a server
// whose revision is not known yet may send it before initialize. Over HTTP there is no message that
// could carry the response.
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

// connectionEnd returns the error of a request whose connection has ended, or nil.
func connectionEnd(err error) *TransportError {
	if failed, ok := errors.AsType[*TransportError](err); ok && errors.Is(err, ErrClosed) {
		return failed
	}
	return nil
}
