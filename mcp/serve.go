package mcp

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// defaultDrain is how long requests may take to end when the stream does: what runs longer is not waited for by
	// whoever stops a process either.
	defaultDrain = 10 * time.Second
	// grace is how long handlers have to return once they are cancelled.
	grace = 2 * time.Second
	// maxReplies is the number of replies without a handler, such as refusals, that wait for the peer to read. Past
	// it nothing more is read.
	maxReplies = 256
	// maxParked is the number of goroutines that wait for the next request instead of ending: their stacks have grown
	// already, which costs a quarter of a small request.
	maxParked = 16
)

// ServeOptions configures [Serve]. The zero value is right for most uses.
type ServeOptions struct {
	// Logger takes what goes wrong on the stream. Default: slog.Default().
	Logger *slog.Logger
	// Drain is how long requests in progress may take to end once the stream does. Default: 10 seconds.
	Drain time.Duration
	// MaxInFlight is how many requests of the stream are worked on at once. Default: 256.
	MaxInFlight int
}

// Run serves one client on a stream until it ends; see [Serve].
func (s *Server) Run(ctx context.Context, conn Conn) error {
	return Serve(ctx, s, conn, &ServeOptions{Logger: s.log})
}

// Serve has h answer the client at the other end of a stream, in whichever revision the client speaks; a client may
// speak several at once. It returns nil when the client ends the stream or ctx ends, after what is in progress has been
// answered, and closes conn. A stream that breaks gives an error that is [ErrDisconnected]. The principal of ctx, if it
// has one, is that of every request.
//
// When the stream ends, subscriptions end with their result at once. Other requests have the time that the options give,
// then their contexts end with [ErrShutdown]. Handlers that still do not return are left behind. Requests beyond
// [ServeOptions.MaxInFlight] are refused with [CodeBusy].
//
// Spec: basic/transports/stdio (2026-07-28); basic/versioning (2026-07-28).
func Serve(ctx context.Context, h Handler, conn Conn, opts *ServeOptions) error {
	s := newStream(ctx, h, conn, opts)
	s.work.Go(s.reply)
	err := s.read(ctx)
	s.drain(err)
	return err
}

// A stream is the server's end of a Conn.
type stream struct {
	handler Handler
	conn    Conn
	log     *slog.Logger
	timeout time.Duration

	ctx       context.Context // of everything on the stream: ends when nothing can be written any more
	gone      context.CancelCauseFunc
	listening context.Context // of subscriptions: ends when reading ends
	unlisten  context.CancelCauseFunc

	calls   peer.Table
	config  legacy.Config
	session atomic.Pointer[legacy.Session] // of the client that opened with initialize; nil for none
	replies chan *jsonrpc.Message          // to what had no handler
	answers answers
	writing chan struct{} // holds a token while messages are written
	work    sync.WaitGroup
	jobs    chan func()   // to goroutines that are parked
	parked  chan struct{} // holds a token for each of them
}

func newStream(ctx context.Context, h Handler, conn Conn, opts *ServeOptions) *stream {
	s := &stream{
		handler: h, conn: conn, log: slog.Default(), timeout: defaultDrain,
		replies: make(chan *jsonrpc.Message, maxReplies), writing: make(chan struct{}, 1),
		jobs: make(chan func()), parked: make(chan struct{}, maxParked),
	}
	if opts != nil && opts.Logger != nil {
		s.log = opts.Logger
	}
	if opts != nil && opts.Drain != 0 {
		s.timeout = opts.Drain
	}
	if opts != nil {
		s.calls.MaxCalls = opts.MaxInFlight
	}
	s.ctx, s.gone = context.WithCancelCause(context.WithoutCancel(ctx))
	s.listening, s.unlisten = context.WithCancelCause(s.ctx)
	s.config = legacy.Config{Core: core{s}, Logger: s.log, Calls: &s.calls, Cancelled: cancelledBecause}
	return s
}

// read takes messages until the stream or ctx ends. It waits for nothing else, so that a cancellation is always heard,
// unless the peer leaves too many replies unread.
func (s *stream) read(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	for {
		m, err := s.conn.Read(ctx)
		var refused *jsonrpc.DecodeError
		switch {
		case err == nil:
			s.take(ctx, m)
		case errors.As(err, &refused):
			s.log.DebugContext(ctx, "mcp: message refused", "error", err)
			s.post(ctx, refused.Response())
		case s.ctx.Err() != nil:
			return context.Cause(s.ctx)
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		default:
			return disconnected(err)
		}
	}
}

// take decides which era a message belongs to. It is the only place that does.
//
// Spec: basic/versioning#backward-compatibility-with-initialization-based-versions (2026-07-28).
func (s *stream) take(ctx context.Context, m *jsonrpc.Message) {
	session := s.session.Load()
	switch m.Kind() {
	case jsonrpc.Request:
		s.takeRequest(ctx, m, session)
	case jsonrpc.Notification:
		if m.Method == wire.NotificationCancelled {
			s.cancel(m)
		} else if session != nil {
			s.accept(ctx, session, m)
		}
	case jsonrpc.Batch:
		if session == nil {
			s.refuse(ctx, jsonrpc.ID{}, Errorf(CodeInvalidRequest, "batches need an initialized session"))
			return
		}
		s.accept(ctx, session, m)
	case jsonrpc.Response:
		if session != nil {
			s.accept(ctx, session, m)
		}
	}
}

func (s *stream) takeRequest(ctx context.Context, m *jsonrpc.Message, session *legacy.Session) {
	env, err := wire.Open(m.Params)
	switch {
	case err != nil:
		s.refuse(ctx, m.ID, err)
	case env.HasVersion:
		s.takeModern(ctx, m, env)
	case session != nil:
		s.accept(ctx, session, m)
	case m.Method == wire.MethodInitialize:
		s.initialize(ctx, m)
	case m.Method == wire.MethodPing:
		s.post(ctx, jsonrpc.NewResponse(m.ID, nil))
	default:
		s.refuse(ctx, m.ID, Errorf(CodeInvalidParams,
			"missing required field params._meta[%q]: send it with every request, or send initialize first", wire.MetaProtocolVersion))
	}
}

// takeModern begins a request that carries its envelope.
func (s *stream) takeModern(ctx context.Context, m *jsonrpc.Message, env wire.Envelope) {
	if err := env.Complete(); err != nil {
		s.refuse(ctx, m.ID, err)
		return
	}
	if !env.Revision.Modern() {
		s.refuse(ctx, m.ID, wire.UnsupportedVersion(env.VersionText))
		return
	}
	base := s.ctx
	if m.Method == wire.MethodSubscriptionsListen {
		base = s.listening
	}
	call, err := s.calls.Begin(base, m.ID)
	if err != nil {
		s.refuse(ctx, m.ID, err)
		return
	}
	req := &Request{Method: m.Method, ID: m.ID, Params: m.Params, Principal: PrincipalFrom(s.ctx), env: env}
	s.start(func() { s.serve(call, req) })
}

// serve answers a modern request. Nothing is said of it once the client has cancelled it, and nothing after its answer,
// whatever a goroutine that the handler has left behind may want to say.
func (s *stream) serve(call *peer.Call, req *Request) {
	req.Notify = func(ctx context.Context, method string, params stdjson.RawMessage) error {
		if err := s.lock(ctx); err != nil {
			return err
		}
		defer s.unlock()
		if call.Over() {
			return context.Cause(call.Context())
		}
		return s.send(jsonrpc.NewNotification(method, params))
	}
	response := Answer(call.Context(), s.handler, req)
	if req.Method == wire.MethodSubscriptionsListen && response.Error == nil {
		s.endSubscription(call, response)
		return
	}
	s.answer(answer{response, call})
}

// endSubscription writes the result that ends a subscription, unless it was cancelled. On streams the rules want the end
// said once more.
//
// Spec: basic/patterns/cancellation (2026-07-28).
func (s *stream) endSubscription(call *peer.Call, result *jsonrpc.Message) {
	err := s.lock(s.ctx)
	wanted := call.End()
	if err != nil {
		return
	}
	defer s.unlock()
	if wanted {
		params := append(result.ID.Append([]byte(`{"requestId":`)), '}')
		_ = s.send(result, jsonrpc.NewNotification(wire.NotificationCancelled, params))
	}
}

// cancel ends the call that a notification names. One that names none is ignored.
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

// initialize opens the stream's one session. Messages that do not wait for its answer belong to it already.
func (s *stream) initialize(ctx context.Context, m *jsonrpc.Message) {
	session, err := legacy.Open(s.ctx, &s.config, m)
	if err != nil {
		s.refuse(ctx, m.ID, err)
		return
	}
	session.Attach(s.write)
	s.session.Store(session)
	s.work.Go(func() {
		welcome := session.Welcome(s.ctx, m.ID)
		if welcome.Error != nil {
			s.session.CompareAndSwap(session, nil) // the client may try again
		}
		_ = s.write(s.ctx, welcome)
	})
}

// accept hands a message to the session.
func (s *stream) accept(ctx context.Context, session *legacy.Session, m *jsonrpc.Message) {
	reply, work := session.Accept(s.ctx, m, s.write)
	s.post(ctx, reply)
	if work == nil {
		return
	}
	s.start(func() {
		if reply := work(); reply != nil {
			s.answer(answer{message: reply})
		}
	})
	if s.answers.len() >= maxReplies {
		s.writeAnswers(ctx) // or wait until the peer reads
	}
}

// start runs f on a goroutine. It is the reader's.
func (s *stream) start(f func()) {
	s.answers.starting.Add(1)
	select {
	case s.jobs <- f:
	default:
		s.work.Go(func() { s.run(f) })
	}
}

// run runs f and what comes after it, until reading has ended or enough others are parked.
func (s *stream) run(f func()) {
	for f != nil {
		s.answers.starting.Add(-1)
		f()
		select {
		case s.parked <- struct{}{}:
		default:
			return
		}
		select {
		case f = <-s.jobs:
		case <-s.listening.Done():
			f = nil
		}
		<-s.parked
	}
}

func (s *stream) refuse(ctx context.Context, id jsonrpc.ID, err *Error) {
	s.post(ctx, jsonrpc.NewErrorResponse(id, err))
}

// post leaves a reply to be written, so that the reader does not wait for the peer to read. Nil is none.
func (s *stream) post(ctx context.Context, reply *jsonrpc.Message) {
	if reply == nil {
		return
	}
	select {
	case s.replies <- reply:
	case <-ctx.Done():
	}
}

// reply writes what was posted, until reading has ended.
func (s *stream) reply() {
	for m := range s.replies {
		_ = s.write(s.ctx, m)
	}
}

// write sends one message that nobody can cancel, or only through ctx.
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

// lock waits for its turn to write. A turn that is free is taken even if ctx has ended: what a handler says last when its
// context ends is still said.
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

// A batchWriter is a Conn that writes several messages at the price of one.
type batchWriter interface {
	writeAll(ctx context.Context, messages []*jsonrpc.Message) error
}

// send writes messages, with the lock held. A failure is the end of the stream for everyone.
func (s *stream) send(messages ...*jsonrpc.Message) (err error) {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if conn, ok := s.conn.(batchWriter); ok {
		err = conn.writeAll(s.ctx, messages)
	} else {
		for i := 0; i < len(messages) && err == nil; i++ {
			err = s.conn.Write(s.ctx, messages[i])
		}
	}
	if err != nil {
		err = disconnected(err)
		s.gone(err)
	}
	return err
}

// disconnected says of an error of the conn what it means.
func disconnected(err error) error {
	if errors.Is(err, ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDisconnected, err)
}

// drain ends the stream in good order: subscriptions first, since they would never end by themselves, then what is in
// progress, then what refuses to.
//
// Spec: basic/transports/stdio#shutdown (2026-07-28).
func (s *stream) drain(broken error) {
	close(s.replies)
	s.calls.Hangup(ErrDisconnected) // answers are not read any more
	if broken != nil {
		s.gone(broken) // there is nobody to answer
	}
	s.unlisten(ErrShutdown)
	idle := make(chan struct{})
	go func() {
		s.work.Wait()
		close(idle)
	}()
	if broken != nil || !within(s.timeout, idle) {
		s.calls.Close(ErrShutdown)
		if !within(grace, idle) {
			s.log.WarnContext(s.ctx, "mcp: handlers do not return though their contexts have ended")
		}
	}
	s.gone(ErrClosed)
	if err := s.conn.Close(); err != nil {
		s.log.DebugContext(s.ctx, "mcp: close", "error", err)
	}
}

// within reports whether done is closed before the time is over.
func within(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// A core is the modern side of a session.
type core struct{ s *stream }

// open makes a request of a message whose envelope is the session's.
func (c core) open(m *jsonrpc.Message, notify legacy.Notify) (*Request, error) {
	req, err := NewRequest(m)
	if err != nil {
		return nil, err
	}
	req.Principal, req.Notify = PrincipalFrom(c.s.ctx), notify
	return req, nil
}

func (c core) Serve(ctx context.Context, dst []byte, m jsonrpc.Message, notify legacy.Notify) ([]byte, *Error) {
	req, err := c.open(&m, notify)
	if err != nil {
		return nil, asError(err)
	}
	return AppendResult(dst, ctx, c.s.handler, req)
}

// Listen waits for changes on a goroutine, which may wait for the peer to read: so what a slow client is not told yet
// collects in the handler, which merges it.
func (c core) Listen(ctx context.Context, m *jsonrpc.Message, out legacy.Stream) (stop func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	opened, ended := make(chan struct{}), make(chan *jsonrpc.Message, 1)
	first := sync.OnceFunc(func() { close(opened) })
	req, err := c.open(m, func(ctx context.Context, method string, params stdjson.RawMessage) error {
		first() // whatever it is: the acknowledgement, by the rules
		return out(ctx, jsonrpc.NewNotification(method, params))
	})
	if err != nil {
		cancel(err)
		return nil, err
	}
	release := context.AfterFunc(c.s.listening, func() { cancel(ErrShutdown) })
	c.s.work.Go(func() {
		defer release()
		ended <- Answer(ctx, c.s.handler, req)
	})
	stop = func() { cancel(ErrClosed) }
	select {
	case <-opened:
		return stop, nil
	case response := <-ended:
		err = errors.New("the subscription ended before it began")
		if response.Error != nil {
			err = response.Error
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if c.s.listening.Err() != nil {
		return stop, nil // the stream ends too, and tells of nothing any more
	}
	stop()
	return nil, err
}
