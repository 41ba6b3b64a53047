package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/linestream"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// maxAwaited limits the requests that wait for responses on a Conn. Each request blocks a
	// goroutine of the caller, so a larger number is an error of the program.
	maxAwaited = 100_000
	// cancelWriteTimeout is how long a cancellation or a reply may take to be written.
	cancelWriteTimeout = 5 * time.Second
	// endTimeout is how long a connection may take to end after a failed write: slightly longer
	// than the wait for the exit status of a process.
	endTimeout = 2 * time.Second
	// maxReplies limits the replies to the server that wait to be written. Servers of modern
	// revisions must not send requests at all.
	maxReplies = 256
	// cancelTimeout is how long Close waits for the server to read the cancellations of the
	// requests in progress.
	cancelTimeout = 200 * time.Millisecond
	// maxRefusalWarnings is the number of refused messages that are logged as warnings, so that a
	// server cannot fill the log.
	maxRefusalWarnings = 8
)

// A clientConn is the client side of a Conn. It assigns the ids of requests, matches responses to
// them, and passes other messages to receive.
type clientConn struct {
	conn  Conn
	log   *slog.Logger
	trace tracer
	ids   atomic.Int64
	table peer.Table // of the requests in progress

	receive  atomic.Pointer[func(m *jsonrpc.Message)]
	fallback func(m *jsonrpc.Message) // the value of receive without a session

	done     chan struct{} // closed when reading ended
	err      error         // the reason; set before done is closed
	closing  sync.Once
	closeErr error
	ctx      context.Context // of the goroutines of the clientConn
	cancel   context.CancelFunc
	work     sync.WaitGroup
	refused  int         // number of refused messages; used by the reader only
	failed   atomic.Bool // a write failed; reads continue
	answered atomic.Bool // a request received a response

	mu      sync.Mutex         // guards the fields below
	queued  []*jsonrpc.Message // cancellations, at most one for each request, and replies to the server
	replies int                // number of replies in queued
	written chan struct{}      // closed when queued is written; nil if no goroutine writes
	closed  bool               // no further goroutine may start
}

func newClientConn(conn Conn, log *slog.Logger, trace tracer, receive func(*clientConn, *jsonrpc.Message)) *clientConn {
	c := &clientConn{conn: conn, log: log, trace: trace, done: make(chan struct{})}
	c.table.MaxQuestions = maxAwaited
	c.fallback = func(m *jsonrpc.Message) { receive(c, m) }
	c.receive.Store(&c.fallback)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.work.Go(c.read)
	return c
}

// RoundTrip sends a request and waits for its response.
func (c *clientConn) RoundTrip(ctx context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error) {
	req.ID = c.newID()
	return c.roundTrip(ctx, req)
}

func (c *clientConn) newID() jsonrpc.ID { return jsonrpc.IntID(c.ids.Add(1)) }

// roundTrip is RoundTrip for a request with an id.
func (c *clientConn) roundTrip(ctx context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	question, err := c.table.Ask(req.ID)
	if err != nil {
		return nil, &TransportError{Method: req.Method, Err: err}
	}
	if err := c.write(ctx, req); err != nil {
		question.Withdraw()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx) // if it is sent later, write cancels it
		}
		return nil, c.writeError(req.Method, err)
	}
	response, err := question.Wait(ctx)
	switch {
	case err == nil && response.Error != nil && !response.Error.Remote(): // made by refuse
		err = fmt.Errorf("invalid response: %s", response.Error.Message)
	case err == nil:
		return response, nil
	case ctx.Err() != nil:
		c.cancelRequest(req, context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
	return nil, &TransportError{Method: req.Method, MayHaveRun: true, Err: err}
}

// write writes a message, and returns when ctx ends even if the Conn does not support deadlines, so
// that a server that does not read never blocks the caller. At most one goroutine then stays
// behind, until the server reads or the Conn is closed.
func (c *clientConn) write(ctx context.Context, m *jsonrpc.Message) error {
	c.trace.message(true, m)
	if d, ok := c.conn.(interface{ HasWriteDeadline() bool }); !ok || d.HasWriteDeadline() {
		return c.conn.Write(ctx, m)
	}
	copied := *m // the caller may change the original
	written := make(chan error, 1)
	var over atomic.Bool // set by the write or the wait, whichever ends first
	go func() {
		err := c.conn.Write(ctx, &copied)
		written <- err
		if waited := over.CompareAndSwap(false, true); !waited && err == nil && copied.Kind() == jsonrpc.Request {
			c.cancelRequest(&copied, context.Cause(ctx))
		}
	}()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		if over.CompareAndSwap(false, true) {
			return context.Cause(ctx)
		}
		return <-written
	}
}

// writeError converts an error of a write, or returns the reason for the end of the stream.
func (c *clientConn) writeError(method string, err error) error {
	_, unsent := errors.AsType[*linestream.UnsentError](err)
	if errors.Is(err, ErrDisconnected) {
		c.failed.Store(true)
	} else if errors.Is(err, ErrClosed) {
		unsent = true
	}
	if peer.IsClosed(c.done) {
		err = c.err
	}
	return &TransportError{Method: method, MayHaveRun: !unsent, Err: err}
}

// cancelRequest sends a cancellation without blocking: the server may not be reading. Spec:
// basic/patterns/cancellation (2026-07-28), basic/utilities/cancellation (2025-11-25).
func (c *clientConn) cancelRequest(req *jsonrpc.Message, cause error) {
	if req.Method == wire.MethodInitialize || req.Method == wire.MethodDiscover {
		return // they open the connection, and must not be cancelled
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enqueue(cancelNotification(req.ID, cause))
}

// respond sends a response to a request of the server. It does not block, and drops the response if
// too many wait to be written because the server does not read.
func (c *clientConn) respond(m *jsonrpc.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replies < maxReplies {
		c.replies++
		c.enqueue(m)
	}
}

// enqueue queues a message for writeQueued. c.mu is held.
func (c *clientConn) enqueue(m *jsonrpc.Message) {
	if c.closed {
		return
	}
	c.queued = append(c.queued, m)
	if c.written == nil {
		c.written = make(chan struct{})
		c.work.Go(c.writeQueued)
	}
}

// writeQueued writes the queued messages. An error drops the messages queued with the failed
// message.
func (c *clientConn) writeQueued() {
	for {
		c.mu.Lock()
		queued := c.queued
		c.queued, c.replies = nil, 0
		if len(queued) == 0 {
			close(c.written)
			c.written = nil
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		for _, m := range queued {
			ctx, cancel := context.WithTimeout(c.ctx, cancelWriteTimeout)
			err := c.write(ctx, m)
			cancel()
			if err != nil {
				break
			}
		}
	}
}

// cancelNotification returns the notification that cancels a request. It gives the kind of the
// cause, not its text, which is not meant for the server.
func cancelNotification(id jsonrpc.ID, cause error) *jsonrpc.Message {
	reason := `,"reason":"cancelled"}`
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		reason = `,"reason":"timeout"}`
	case errors.Is(cause, ErrClosed):
		reason = `,"reason":"disconnecting"}`
	}
	params := append([]byte(`{"requestId":`+id.String()), reason...)
	return &jsonrpc.Message{Method: wire.NotificationCancelled, Params: params}
}

func (c *clientConn) Send(ctx context.Context, m *jsonrpc.Message) error {
	if err := c.write(ctx, m); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return c.writeError(m.Method, err)
	}
	return nil
}

// isOver reports whether no request can receive a response any more. It is true as soon as a
// request failed for that reason; done is closed a moment later.
func (c *clientConn) isOver() bool { return c.failed.Load() || c.table.HungUp() != nil }

// end closes a connection that is over, and returns the reason, which reading shows soon.
func (c *clientConn) end() error {
	peer.ClosedWithin(c.done, endTimeout)
	_ = c.Close() // the processes of an ended server
	return c.err
}

func (c *clientConn) Done() <-chan struct{} { return c.done }

func (c *clientConn) Close() error {
	c.closing.Do(func() {
		c.mu.Lock()
		c.closed = true
		written := c.written
		c.mu.Unlock()
		c.cancelAll(written)
		c.closeErr = c.conn.Close() // reading continues meanwhile, so that the server is not blocked in a write
		c.cancel()
		c.work.Wait()
	})
	return c.closeErr
}

// cancelAll fails all requests in progress and cancels them at the server, so that it does not
// finish them before it exits. It waits for the cancellations that are being written.
func (c *clientConn) cancelAll(written <-chan struct{}) {
	waiting := c.table.Waiting()
	c.table.Hangup(ErrClosed)
	ctx, cancel := context.WithTimeout(c.ctx, cancelTimeout)
	defer cancel()
	if written != nil {
		select {
		case <-written:
		case <-ctx.Done():
			return
		}
	}
	for _, id := range waiting {
		if c.write(ctx, cancelNotification(id, ErrClosed)) != nil {
			return
		}
	}
}

// read reads until the Conn ends. It does not call functions that block, so it reads every
// response.
func (c *clientConn) read() {
	defer close(c.done)
	for {
		m, err := readMessage(c.ctx, c.log, c.conn)
		refused, invalid := errors.AsType[*jsonrpc.DecodeError](err)
		switch {
		case err == nil:
			c.dispatch(m)
			continue
		case invalid:
			c.refuse(refused, errors.Is(err, linestream.ErrLineTooLong))
			continue
		case c.ctx.Err() != nil:
			c.err = ErrClosed
		case errors.Is(err, io.EOF):
			c.err = fmt.Errorf("%w: the server has closed the stream", ErrDisconnected)
		default:
			c.err = disconnected(err)
		}
		c.table.Hangup(c.err)
		return
	}
}

func (c *clientConn) dispatch(m *jsonrpc.Message) {
	c.trace.message(false, m)
	switch m.Kind() {
	case jsonrpc.Response:
		if m.Repaired {
			c.log.Warn("mcp: the response contains a lone surrogate, replaced with U+FFFD", "id", m.ID)
		}
		if c.table.Answer(m) {
			c.answered.Store(true)
		} else {
			c.log.Debug("mcp: response to an unknown request", "id", m.ID)
		}
	case jsonrpc.Batch:
		for _, m := range m.Batch {
			c.dispatch(m)
		}
	case jsonrpc.Invalid:
		c.refuse(m.Refused, false)
	default:
		(*c.receive.Load())(m)
	}
}

// refuse fails the request whose response is invalid. Invalid input without an id, such as text
// that a server prints as it starts, belongs to no request. A message that is too long hides its
// id: refuse takes it for the response to the request in progress if there is exactly one, and
// otherwise lets the requests wait.
func (c *clientConn) refuse(refused *jsonrpc.DecodeError, tooLong bool) {
	level := slog.LevelWarn
	if c.refused++; c.refused > maxRefusalWarnings {
		level = slog.LevelDebug
	}
	c.log.Log(c.ctx, level, "mcp: invalid message from the server", "error", refused)
	err := &jsonrpc.Error{Code: refused.Err.Code, Message: refused.Err.Message}
	response := &jsonrpc.Message{ID: refused.ID, Error: err}
	switch {
	case refused.Kind == jsonrpc.Request, refused.Kind == jsonrpc.Notification:
		return
	case tooLong:
		if ids := c.table.Waiting(); len(ids) == 1 {
			response.ID = ids[0]
		}
	}
	if !response.ID.IsZero() {
		c.table.Answer(response)
	}
}

// routes maps the notifications of a clientConn to the requests that they belong to.
type routes struct {
	mu       sync.Mutex          // guards requests
	requests map[string]*Request // by progressRoute or subscriptionRoute
}

func (r *routes) add(key string, req *Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	put(&r.requests, key, req)
}

func (r *routes) remove(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.requests, key)
}

// find returns the request with that key, or all open subscriptions for an empty key.
func (r *routes) find(key string) (found []*Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if req := r.requests[key]; req != nil {
		return []*Request{req}
	}
	if key == "" {
		for _, req := range r.requests {
			if req.Method == wire.MethodSubscriptionsListen {
				found = append(found, req)
			}
		}
	}
	return found
}

// The keys of progress tokens and subscription ids have different prefixes: values may be equal.
func progressRoute(token []byte) string  { return "p" + string(token) }
func subscriptionRoute(id []byte) string { return "s" + string(id) }

// notify delivers a notification to the request that it names, or returns false if it names no
// request. Spec: basic/transports/stdio (2026-07-28); basic/patterns/subscriptions (2026-07-28).
func (r *routes) notify(ctx context.Context, m *jsonrpc.Message) bool {
	meta, _ := jsonscan.Get(m.Params, "_meta")
	id, hasID := jsonscan.Get(meta, wire.MetaSubscriptionID)
	var key string
	switch m.Method {
	case wire.NotificationMessage:
		return false
	case wire.NotificationProgress:
		token, _ := jsonscan.Get(m.Params, "progressToken")
		key = progressRoute(token)
	case wire.NotificationToolsListChanged, wire.NotificationPromptsListChanged, wire.NotificationResourcesListChanged,
		wire.NotificationResourcesUpdated, wire.NotificationSubscriptionsAcknowledged:
		if hasID { // some servers omit the id: then all subscriptions are notified
			key = subscriptionRoute(id)
		}
	default: // perhaps of an extension's topic
		if !hasID {
			return false
		}
		key = subscriptionRoute(id)
	}
	for _, req := range r.find(key) {
		_ = req.Notify(ctx, m.Method, m.Params) // does not fail at a client
	}
	return true // also for a late notification, whose request ended before
}

func (c *clientConn) roundTripModern(ctx context.Context, req *Request, r *routes) (Result, error) {
	m := &jsonrpc.Message{ID: c.newID(), Method: req.Method, Params: req.Params}
	if token := req.env.ProgressToken; token != nil && req.Notify != nil {
		r.add(progressRoute(token), req)
		defer r.remove(progressRoute(token))
	}
	if wire.Lasts(req.Method) && req.Notify != nil {
		key := subscriptionRoute([]byte(m.ID.String()))
		r.add(key, req)
		defer r.remove(key)
	}
	response, err := c.roundTrip(ctx, m)
	switch {
	case err != nil:
		return nil, err
	case response.Error != nil:
		return nil, response.Error
	}
	return RawResult(response.Result), nil
}

// paramsOf returns the params of a notification, or an empty object if they are missing.
func paramsOf(m *jsonrpc.Message) json.RawMessage {
	if jsonscan.Kind(m.Params) != '{' {
		return json.RawMessage(`{}`)
	}
	return m.Params
}
