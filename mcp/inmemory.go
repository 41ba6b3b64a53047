package mcp

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// pipeQueue limits the messages that one direction of a pipe buffers. The buffer lets both sides
// work concurrently, and is small enough to notice soon that a side does not read.
const pipeQueue = 64

// Pipe returns the two ends of a connection within the process. Messages are encoded and decoded,
// so that the sides share no memory. After one end is closed, the other end reads the messages in
// the pipe, then io.EOF. The owner of each end must close it.
func Pipe() (client, server Conn) {
	toServer, toClient := make(chan []byte, pipeQueue), make(chan []byte, pipeQueue)
	c := &pipeConn{in: toClient, out: toServer, closed: make(chan struct{})}
	s := &pipeConn{in: toServer, out: toClient, closed: make(chan struct{})}
	c.peerClosed, s.peerClosed = s.closed, c.closed
	return c, s
}

type pipeConn struct {
	in         <-chan []byte
	out        chan<- []byte
	once       sync.Once
	closed     chan struct{}
	peerClosed <-chan struct{}
}

func (c *pipeConn) Read(ctx context.Context) (*jsonrpc.Message, error) {
	select {
	case data := <-c.in:
		return jsonrpc.Decode(data)
	case <-c.closed:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.peerClosed:
	}
	select {
	case data := <-c.in:
		return jsonrpc.Decode(data)
	default:
		return nil, io.EOF
	}
}

func (c *pipeConn) Write(ctx context.Context, m *jsonrpc.Message) error {
	switch {
	case peer.IsClosed(c.closed):
		return ErrClosed
	case peer.IsClosed(c.peerClosed):
		return ErrDisconnected
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	select {
	case c.out <- jsonrpc.Append(nil, m):
		return nil
	case <-c.closed:
		return ErrClosed
	case <-c.peerClosed:
		return ErrDisconnected
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *pipeConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// InMemory returns a Transport to a handler within the process, such as a [*Server]. Requests and
// results are encoded, so that the sides share no memory. The handler runs on the goroutine of its
// caller, with a context derived from the caller's context. The principal of that context (see
// [WithPrincipal]) becomes the principal of the request. When the caller's context ends, its cause,
// and not [ErrCancelled], becomes the cause of the handler's context. A handler that ignores its
// context blocks the caller.
func InMemory(h Handler) Transport {
	t := &memoryTransport{handler: h}
	t.ctx, t.close = context.WithCancelCause(context.Background())
	return t
}

type memoryTransport struct {
	handler Handler
	ctx     context.Context // ends with the transport
	close   context.CancelCauseFunc
	serving sync.WaitGroup // of sessions
	trace   tracer
	ids     atomic.Int64 // of traced requests
}

// RoundTrip calls the handler.
func (t *memoryTransport) RoundTrip(ctx context.Context, req *Request) (Result, error) {
	if t.trace != nil {
		return t.traced(ctx, req)
	}
	if t.ctx.Err() != nil {
		return nil, &TransportError{Method: req.Method, Err: ErrClosed}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := jsonscan.Valid(req.Params, jsonscan.Limits{}); err != nil {
		return nil, remoteError(Errorf(CodeInvalidParams, "params: %v", err))
	}
	served := &Request{
		Method: req.Method, ID: memoryID, Params: req.Params, Principal: PrincipalFrom(ctx), Notify: req.Notify,
	}
	if err := cmp.Or(served.env.Open(req.Params), served.env.Complete()); err != nil {
		return nil, remoteError(err)
	}
	body, err := appendResult(make([]byte, 0, typicalSize), ctx, t.handler, served)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, remoteError(err)
	}
	req.env.Valid = body
	return RawResult(body), nil
}

// memoryID is the id of all requests in memory: responses need no matching.
var memoryID = jsonrpc.IntID(1)

// remoteError returns an error as a client reads it from a stream.
func remoteError(err *Error) error {
	m, refused := jsonrpc.Decode(jsonrpc.Append(nil, &jsonrpc.Message{ID: memoryID, Error: err}))
	if refused != nil {
		return refused
	}
	return m.Error
}

// memoryDrain is how long requests may run after their client closed the session, because it no
// longer reads results.
const memoryDrain = time.Millisecond

// OpenSession serves the handler on a pipe.
func (t *memoryTransport) OpenSession(_ context.Context, receive func(m *jsonrpc.Message)) (driver.SessionConn, error) {
	client, server := Pipe()
	t.serving.Go(func() { _ = Serve(t.ctx, t.handler, server, &ServeOptions{Drain: memoryDrain}) })
	direct := func(_ *clientConn, m *jsonrpc.Message) { receive(m) }
	return newClientConn(client, slog.Default(), t.trace, direct), nil
}

// Close refuses further requests. Requests in progress end with their own contexts.
func (t *memoryTransport) Close() error {
	t.close(ErrClosed)
	t.serving.Wait()
	return nil
}
