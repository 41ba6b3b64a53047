package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/linestream"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/readerpool"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// defaultDrain is how long requests may run after the end of the stream. Hosts kill a server
	// that is still running 4 seconds after they closed its input, so the sum of defaultDrain and
	// cancelGrace is less.
	defaultDrain = 3 * time.Second
	// cancelGrace is how long handlers may take to return once they are cancelled.
	cancelGrace = 500 * time.Millisecond
	// maxUncalled limits the queued responses that belong to no call, such as refusals. At the
	// limit, reading stops until the client reads.
	maxUncalled = 256
	// maxInitializing limits the initialize requests of a stream that are served concurrently. Each
	// replaces the request before, so a client needs more than one only if a handler does not
	// return.
	maxInitializing = 16
)

// ServeOptions configures [Serve]. The zero value is right for most uses.
type ServeOptions struct {
	// Logger logs problems of the stream. Default: slog.Default().
	Logger *slog.Logger
	// Drain is how long requests in progress may run after the end of the stream. Handlers may then
	// take another half second to return. Default: 3 seconds, because most hosts kill a server that
	// is still running after 4.
	Drain time.Duration
	// MaxInFlight limits the requests of the stream that are served concurrently. Default: 256.
	MaxInFlight int
	// PingInterval is the time between two pings to the client of a session. The stream ends if
	// three pings in sequence receive no response. Since 2026-07-28 there are no sessions and no
	// pings. Default: no pings, because the stream ends when a client exits.
	// [ClientOptions.KeepAlive] is for clients.
	PingInterval time.Duration
}

// Run serves the client on a stream until it ends; see [Serve].
func (s *Server) Run(ctx context.Context, conn Conn) error {
	return Serve(ctx, s, conn, &ServeOptions{Logger: s.log})
}

// Serve serves the client at the other end of a stream with h, in every revision that the client
// speaks; a client may speak several at once. A second initialize request ends the session before
// it and its requests. When the client ends the stream or ctx ends, Serve answers the requests in
// progress, closes conn and returns nil. If the stream breaks, it returns an error that is
// [ErrDisconnected]. The principal of ctx, if any, becomes the principal of every request.
//
// At the end of the stream, subscriptions end with their result at once. The contexts of other
// requests end with [ErrShutdown] after [ServeOptions.Drain]. Serve does not wait for handlers that
// ignore the end of their context. Requests beyond [ServeOptions.MaxInFlight] are refused with
// [CodeBusy].
//
// Spec: basic/transports/stdio (2026-07-28); basic/versioning (2026-07-28).
func Serve(ctx context.Context, h Handler, conn Conn, opts *ServeOptions) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	if c, ok := conn.(*stdioConn); ok {
		var release func()
		var err error
		if reading, release, err = c.beginServing(reading); err != nil {
			return err
		}
		defer release()
	}
	s := newStream(ctx, h, conn, opts)
	defer context.AfterFunc(s.ctx, stop)()
	err := s.read(reading)
	s.drain(err)
	return err
}

// A stream is the server side of a Conn.
type stream struct {
	handler      Handler
	conn         Conn
	lines        lineConn // conn if it implements lineConn, otherwise nil
	log          *slog.Logger
	drainTimeout time.Duration
	pingInterval time.Duration

	ctx       context.Context // ends when no message can be written any more
	end       context.CancelCauseFunc
	listening context.Context // of subscriptions: ends when reading ends
	unlisten  context.CancelCauseFunc

	calls   peer.Table
	config  legacy.Config
	session atomic.Pointer[streamSession] // nil before initialize
	// initializing is the number of initialize requests in progress.
	initializing atomic.Int32
	readers      readerpool.Pool
	work         sync.WaitGroup // the readers and all other goroutines
	queue        linestream.Queue
	written      []byte        // buffer for the lines of a batch, guarded by the write lock
	writing      chan struct{} // the write lock: holds a token while messages are written
	out          legacy.Stream // write
}

// A streamSession is the session of a stream, from an initialize request to the end of the stream
// or the next initialize request.
type streamSession struct {
	*legacy.Session
	ctx context.Context // of its requests
	end context.CancelCauseFunc
}

// A lineConn is a Conn of lines of text. Several encoded lines can be written at once.
type lineConn interface {
	WriteLines(ctx context.Context, lines []byte) error
	// HasLine reports whether Read returns at once. It is not called during a Read.
	HasLine() bool
}

func newStream(ctx context.Context, h Handler, conn Conn, opts *ServeOptions) *stream {
	if opts == nil {
		opts = &ServeOptions{}
	}
	s := &stream{
		handler: h, conn: conn, log: cmp.Or(opts.Logger, slog.Default()),
		drainTimeout: cmp.Or(opts.Drain, defaultDrain), pingInterval: opts.PingInterval,
		writing: make(chan struct{}, 1),
	}
	s.lines, _ = conn.(lineConn)
	s.out = s.write
	s.calls.MaxCalls = int32(min(opts.MaxInFlight, math.MaxInt32))
	s.ctx, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	s.listening, s.unlisten = context.WithCancelCause(s.ctx)
	s.config = legacy.Config{Core: core{s}, Logger: s.log, Calls: &s.calls, Cancelled: cancelledBecause}
	configure(&s.config, h)
	return s
}

// read reads and serves messages until the stream or ctx ends. The error is nil at a regular end.
func (s *stream) read(ctx context.Context) error {
	ended := make(chan error, 1)
	s.readers.Open(func() { s.work.Go(func() { s.serveLoop(ctx, ended) }) })
	if err := <-ended; !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// A job is the part of serving a message that does not need the read lock. The zero job is empty.
type job struct {
	request  *streamRequest
	exchange *legacy.Exchange // a request of a session
	work     legacy.Work      // any other message of a session
}

func (j job) isEmpty() bool { return j.request == nil && j.exchange == nil && j.work == nil }

// serveLoop runs in each goroutine of the readers. With the read lock held, it reads; without it,
// it serves the job that it read, and writes. A goroutine that acquires the lock checks for queued
// responses that no goroutine is about to write.
func (s *stream) serveLoop(ctx context.Context, ended chan<- error) {
	for locked := s.readers.Join(); locked; locked = s.readers.Acquire() {
		for locked {
			j, err := s.next(ctx)
			if err != nil {
				s.readers.Close()
				ended <- err
				break
			}
			s.readers.Release(s.readsAtOnce())
			if j.isEmpty() {
				break
			}
			s.serve(j)
			locked = s.readers.TryAcquire()
		}
		s.flush()
	}
}

// next reads messages until a message is a job, or until queued responses must be written: then it
// returns an empty job. It blocks only on reads, so that cancellations are always seen, unless the
// client leaves too many responses unread. The error is io.EOF at the end of the stream or of ctx.
func (s *stream) next(ctx context.Context) (job, error) {
	for {
		if waits, overdue := s.queue.Unclaimed(); overdue || waits && !s.readsAtOnce() {
			return job{}, nil
		}
		if s.queue.Uncalled() >= maxUncalled {
			s.writeQueued(ctx) // blocks until the client reads
		}
		m, err := readMessage(ctx, s.log, s.conn)
		if err == nil {
			if j := s.begin(m); !j.isEmpty() {
				return j, nil
			}
		} else if err := s.readError(ctx, err); err != nil {
			return job{}, err
		}
	}
}

// readError handles an error of Conn.Read. It responds to a message that was refused and returns
// nil, or returns the reason for the end of the stream.
func (s *stream) readError(ctx context.Context, err error) error {
	refused, ok := errors.AsType[*jsonrpc.DecodeError](err)
	switch {
	case ok:
		s.log.DebugContext(ctx, "mcp: message refused", "error", err)
		s.enqueue(nil, refused.Response())
		return nil
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case errors.Is(err, io.EOF), ctx.Err() != nil:
		return io.EOF
	}
	return disconnected(err)
}

// readsAtOnce reports whether the next message can be read without waiting.
func (s *stream) readsAtOnce() bool { return s.lines != nil && s.lines.HasLine() }

// begin decides which era a message belongs to, and begins to serve it. No other function decides
// that. Spec: basic/versioning#backward-compatibility-with-initialization-based-versions
// (2026-07-28).
func (s *stream) begin(m *jsonrpc.Message) job {
	session := s.session.Load()
	switch m.Kind() {
	case jsonrpc.Request:
		return s.beginRequest(m, session)
	case jsonrpc.Notification:
		if m.Method == wire.NotificationCancelled {
			s.cancel(m)
		} else if session != nil {
			return s.accept(session, m)
		}
	case jsonrpc.Batch:
		if session == nil {
			return s.refuse(jsonrpc.ID{}, Errorf(CodeInvalidRequest, "batches require an initialized session"))
		}
		return s.accept(session, m)
	case jsonrpc.Response:
		if session != nil {
			return s.accept(session, m)
		}
	}
	return job{}
}

func (s *stream) beginRequest(m *jsonrpc.Message, session *streamSession) job {
	env, err := wire.Open(m.Params)
	switch {
	case err != nil:
		return s.refuse(m.ID, err)
	case env.HasVersion:
		return s.beginModern(m, env)
	case m.Method == wire.MethodInitialize:
		return s.initialize(m, session)
	case session != nil:
		return s.acceptRequest(session, m)
	case m.Method == wire.MethodPing:
		s.enqueue(nil, &jsonrpc.Message{ID: m.ID, Result: json.RawMessage("{}")})
		return job{}
	}
	return s.refuse(m.ID, Errorf(CodeInvalidParams,
		"missing required field params._meta[%q]: send it with every request, or send initialize first",
		wire.MetaProtocolVersion))
}

// beginModern begins a request that carries its envelope.
func (s *stream) beginModern(m *jsonrpc.Message, env wire.Envelope) job {
	if err := env.Complete(); err != nil {
		return s.refuse(m.ID, err)
	}
	if !env.Revision.Modern() {
		return s.refuse(m.ID, wire.UnsupportedVersion(env.VersionText, s.config.Revisions))
	}
	base := s.ctx
	if wire.Lasts(m.Method) {
		base = s.listening
	}
	r := &streamRequest{stream: s}
	r.call.Lasts = m.Method == wire.MethodEventsStream
	if err := s.calls.Enter(base, &r.call, m.ID); err != nil {
		return s.refuse(m.ID, err)
	}
	r.Request = Request{
		Method: m.Method, ID: m.ID, Params: m.Params, Principal: PrincipalFrom(s.ctx), Notify: r.notify,
	}
	r.env.Envelope = env
	return job{request: r}
}

// A streamRequest is a modern request of a stream. No notification follows its cancellation or its
// response, even if a goroutine of the handler still sends notifications.
type streamRequest struct {
	Request
	stream *stream
	call   peer.Call
}

func (r *streamRequest) notify(ctx context.Context, method string, params json.RawMessage) error {
	s := r.stream
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if r.call.Over() {
		return context.Cause(r.call.Context())
	}
	return s.send(&jsonrpc.Message{Method: method, Params: params})
}

// serve does a job and queues its response. If the handler ends the goroutine, another goroutine
// goes on to read.
func (s *stream) serve(j job) {
	returned := false
	defer func() {
		if !returned {
			s.exited(j)
		}
	}()
	s.do(j)
	returned = true
}

// exited responds to a request whose handler ended the goroutine with runtime.Goexit.
func (s *stream) exited(j job) {
	switch {
	case j.request != nil:
		s.log.Error("mcp: the handler has ended its goroutine", "method", j.request.Method)
		s.enqueue(&j.request.call, &jsonrpc.Message{ID: j.request.ID, Error: errInternal})
	case j.exchange != nil:
		s.enqueue(nil, j.exchange.Exited())
	}
	s.flush()
}

func (s *stream) do(j job) {
	switch {
	case j.request != nil:
		s.serveRequest(j.request)
	case j.work != nil:
		j.work(func(reply *jsonrpc.Message) { s.enqueue(nil, reply) })
	case s.lines == nil:
		s.enqueue(nil, j.exchange.Response())
	default:
		line, _ := j.exchange.AppendResponse(s.queue.NewLine()) // the line holds the error, if any
		if len(line) > 0 {                                      // it was not cancelled
			s.enqueueLine(nil, line)
		}
	}
}

func (s *stream) serveRequest(r *streamRequest) {
	ctx := r.call.Context()
	switch {
	case r.Method == wire.MethodSubscriptionsListen:
		response := respond(ctx, s.handler, &r.Request)
		if response.Error == nil {
			s.endSubscription(&r.call, response)
			return
		}
		s.enqueue(&r.call, response)
	case s.lines == nil:
		s.enqueue(&r.call, respond(ctx, s.handler, &r.Request))
	default:
		// The line holds the error, if any.
		line, _ := (&serverDriver{s.handler}).AppendResponse(s.queue.NewLine(), ctx, &r.Request)
		s.enqueueLine(&r.call, line)
	}
}

// endSubscription writes the result that ends a subscription, unless it was cancelled. On streams,
// a cancellation follows the result. Spec: basic/patterns/cancellation (2026-07-28).
func (s *stream) endSubscription(call *peer.Call, result *jsonrpc.Message) {
	err := s.lock(s.ctx)
	wanted := call.End()
	if err != nil {
		return
	}
	defer s.unlock()
	if wanted {
		params := append([]byte(`{"requestId":`+result.ID.String()), '}')
		_ = s.send(result, &jsonrpc.Message{Method: wire.NotificationCancelled, Params: params})
	}
}

// cancel ends the call that a notification names. A notification that names no call is ignored.
func (s *stream) cancel(m *jsonrpc.Message) {
	if id, reason, ok := peer.ParseCancelled(m.Params); ok && s.calls.Cancel(id, cancelledBecause(reason)) {
		s.log.DebugContext(s.ctx, "mcp: request cancelled", "id", id, "reason", reason)
	}
}

func cancelledBecause(reason string) error {
	if reason == "" {
		return ErrCancelled
	}
	return fmt.Errorf("%w: %s", ErrCancelled, reason)
}

// errSessionReplaced is the cause of the end of a session that another session replaces.
var errSessionReplaced = fmt.Errorf("%w: the client has initialized another session", ErrClosed)

// initialize opens the session of the stream. Messages that the client sends before it reads the
// response belong to the session already.
//
// A bridge that shares one server among clients initializes again for each of them, so the new
// session replaces the session before.
func (s *stream) initialize(m *jsonrpc.Message, before *streamSession) job {
	if s.initializing.Load() >= maxInitializing { // it grows only here, with the read lock held
		return s.refuse(m.ID, wire.Busy("too many initialize requests in progress"))
	}
	opened, err := legacy.Open(s.ctx, &s.config, m)
	if err != nil {
		return s.refuse(m.ID, err)
	}
	if before != nil {
		s.endSession(before, m.ID)
	}
	session := &streamSession{Session: opened}
	session.ctx, session.end = context.WithCancelCause(s.ctx)
	_ = session.Attach(s.out) // opens no subscription: the session is not initialized
	s.session.Store(session)
	s.initializing.Add(1)
	return job{work: func(respond func(*jsonrpc.Message)) {
		response := &jsonrpc.Message{ID: m.ID, Error: errInternal} // if a handler ends the goroutine
		defer func() {
			s.initializing.Add(-1)
			s.initialized(session, response.Error == nil)
			respond(response)
		}()
		if before != nil {
			before.Close(errSessionReplaced)
		}
		response = session.InitializeResponse(session.ctx, m.ID)
	}}
}

// initialized completes an initialize request. If the request failed, its session is over, and the
// client may try again.
func (s *stream) initialized(session *streamSession, ok bool) {
	switch {
	case !ok:
		s.session.CompareAndSwap(session, nil)
		session.end(ErrClosed)
		session.Close(ErrClosed)
		return
	case s.pingInterval > 0:
		s.work.Go(func() { s.keepAlive(session.Session) })
	}
	s.observeSession(session)
}

// endSession ends the requests of a session and responds to them before the response to the next
// initialize request, whose client may use the same ids. If next, the id of that request, is in
// use, its request in the ended session gets no response.
func (s *stream) endSession(session *streamSession, next jsonrpc.ID) {
	for _, id := range s.calls.CancelAll(session.ctx, errSessionReplaced) {
		if id != next {
			s.refuse(id, Errorf(CodeInvalidRequest, "the session has ended: the client has initialized another one"))
		}
	}
	session.end(errSessionReplaced)
}

// keepAlive pings the client of a session until the session or the stream ends. It ends the stream if
// the client does not respond.
func (s *stream) keepAlive(session *legacy.Session) {
	if err := session.KeepAlive(s.listening, s.out, s.pingInterval, s.work.Go); err != nil {
		s.log.WarnContext(s.ctx, "mcp: the client does not respond to pings", "error", err)
		_ = s.fail(err)
	}
}

// acceptRequest passes a request to the session.
func (s *stream) acceptRequest(session *streamSession, m *jsonrpc.Message) job {
	x := new(legacy.Exchange)
	if refusal := session.Begin(session.ctx, x, m, s.out); refusal != nil {
		s.enqueue(nil, refusal)
		return job{}
	}
	return job{exchange: x}
}

// accept passes a message to the session.
func (s *stream) accept(session *streamSession, m *jsonrpc.Message) job {
	response, work := session.Accept(session.ctx, m, s.out)
	s.enqueue(nil, response)
	return job{work: work}
}

// refuse responds to a request with an error.
func (s *stream) refuse(id jsonrpc.ID, err *Error) job {
	s.enqueue(nil, &jsonrpc.Message{ID: id, Error: err})
	return job{}
}

// write sends a message, unless ctx was cancelled by the client.
func (s *stream) write(ctx context.Context, m *jsonrpc.Message) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if cause := context.Cause(ctx); errors.Is(cause, ErrCancelled) {
		return cause
	}
	return s.send(m)
}

// lock acquires the write lock. If the lock is free, it succeeds even after the end of ctx, so that
// a handler can send notifications after the end of its context.
func (s *stream) lock(ctx context.Context) error {
	select {
	case s.writing <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

func (s *stream) unlock() { <-s.writing }

// send writes messages, with the lock held.
func (s *stream) send(messages ...*jsonrpc.Message) error {
	for _, m := range messages {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if err := s.conn.Write(s.ctx, m); err != nil {
			return s.fail(err)
		}
	}
	return nil
}

// fail ends the stream, because a message could not be written.
func (s *stream) fail(err error) error {
	err = disconnected(err)
	s.end(err)
	return err
}

// disconnected makes an error of a Conn an ErrDisconnected, unless it reports the end of the
// connection already.
func disconnected(err error) error {
	if errors.Is(err, ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDisconnected, err)
}

// drain ends the stream: first the subscriptions, which would not end by themselves, then the
// requests in progress, and finally the requests that exceed the time to drain. Spec:
// basic/transports/stdio#shutdown (2026-07-28).
func (s *stream) drain(broken error) {
	s.calls.Hangup(ErrDisconnected) // responses of the client are not read any more
	if broken != nil {
		s.end(broken) // no message can be written
	}
	s.unlisten(ErrShutdown)
	idle := make(chan struct{})
	go func() {
		s.work.Wait()
		close(idle)
	}()
	if broken != nil || !peer.ClosedWithin(idle, s.drainTimeout) {
		s.calls.Close(ErrShutdown)
		if !peer.ClosedWithin(idle, cancelGrace) {
			s.log.WarnContext(s.ctx, "mcp: some handlers have not returned although their contexts have ended")
		}
	}
	s.end(ErrClosed)
	if err := s.conn.Close(); err != nil {
		s.log.DebugContext(s.ctx, "mcp: close", "error", err)
	}
}

// A core serves the requests of a session in the modern form.
type core struct{ s *stream }

func (c core) Serve(
	ctx context.Context, dst []byte, r wire.Request, notify legacy.Notify,
) (_ []byte, isProjected bool, _ *Error) {
	req := newOpenedRequest(r)
	req.Notify, req.Principal = notify, PrincipalFrom(c.s.ctx)
	dst, err := appendResult(dst, ctx, c.s.handler, req)
	return dst, req.env.Projected, err
}

// newOpenedRequest returns a request whose envelope is open already.
func newOpenedRequest(r wire.Request) *Request {
	req := &Request{ID: r.ID, Method: r.Method, Params: r.Params}
	req.env.Envelope = r.Envelope
	return req
}

// Listen serves a subscription on a goroutine, which may block until the client reads. Changes that
// a slow client has not received yet collect in the handler, which merges them.
func (c core) Listen(ctx context.Context, r wire.Request, notify legacy.Notify) (stop func(), err error) {
	req := newOpenedRequest(r)
	req.Principal, req.env.Carrier = PrincipalFrom(c.s.ctx), ownRequest{}
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(c.s.listening, func() { cancel(ErrShutdown) })
	serve := func(ctx context.Context, notify legacy.Notify) *jsonrpc.Message {
		req.Notify = notify
		return respond(ctx, c.s.handler, req)
	}
	_, err = legacy.Subscribe(ctx, notify, c.s.work.Go, serve)
	stop = func() {
		release()
		cancel(ErrClosed)
	}
	if err != nil {
		stop()
	}
	return stop, err
}

// observeSession reports a session of the stream.
func (s *stream) observeSession(session *streamSession) {
	if o, ok := observerOf(s.handler).(driver.SessionObserver); ok {
		ended := o.SessionBegan(session.ctx, driver.Via{Network: "pipe"})
		context.AfterFunc(session.ctx, func() { ended(context.Cause(session.ctx)) })
	}
}
