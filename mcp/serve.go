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
	reading, stop := context.WithCancel(ctx)
	defer stop()
	s := newStream(ctx, h, conn, opts)
	defer context.AfterFunc(s.ctx, stop)()
	err := s.read(reading)
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
	crew    crew
	work    sync.WaitGroup // of the crew, and of what else runs
	answers answers
	writing chan struct{} // holds a token while messages are written
	out     legacy.Stream // write
	lines   lineConn      // the conn, if it is one
}

// A lineConn is a Conn of lines of text: those that are encoded already can be written together, at the price of one.
type lineConn interface {
	writeLines(ctx context.Context, lines []byte) error
	// hasLine reports whether a line that can be read is here already. It is not called while Read is.
	hasLine() bool
}

func newStream(ctx context.Context, h Handler, conn Conn, opts *ServeOptions) *stream {
	s := &stream{
		handler: h, conn: conn, log: slog.Default(), timeout: defaultDrain,
		writing: make(chan struct{}, 1),
	}
	s.lines, _ = conn.(lineConn)
	s.out = s.write
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

// read serves what comes until the stream or ctx ends.
func (s *stream) read(ctx context.Context) error {
	ended := make(chan error, 1)
	s.crew.start = func() {
		s.work.Go(func() { s.attend(ctx, ended) })
	}
	s.crew.open()
	if err := <-ended; !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// A job is what is left of a message to do without the turn. The zero job is none.
type job struct {
	request  *streamRequest
	exchange *legacy.Exchange        // a request of a session
	work     func() *jsonrpc.Message // of a session, anything else: gives the reply, nil for none
}

func (j job) none() bool { return j.request == nil && j.exchange == nil && j.work == nil }

// attend is what each goroutine of the crew does: with the turn it reads; without, it serves what it has read and writes.
// Answers that nobody is about to write are looked at by each who gets the turn.
func (s *stream) attend(ctx context.Context, ended chan<- error) {
	var room []byte // for the lines of its answers
	for turn := s.crew.join(); turn; turn = s.crew.take() {
		for turn {
			j, err := s.next(ctx)
			if err != nil {
				s.crew.close()
				ended <- err
				break
			}
			s.crew.leave(s.readsAtOnce())
			if j.none() {
				break
			}
			if room = s.serve(j, room); cap(room) > keptBuffer {
				room = nil
			}
			turn = s.crew.takeAgain()
		}
		s.flush()
	}
}

// next reads messages up to one that is a job, or until the answers that wait should not wait for more: then it gives
// none. It waits for nothing else, so that a cancellation is always heard, unless the peer leaves too many replies unread.
// The error is io.EOF when the stream or ctx has ended.
func (s *stream) next(ctx context.Context) (job, error) {
	for {
		if wait, overdue := s.answers.unclaimed(); overdue || wait && !s.readsAtOnce() {
			return job{}, nil
		}
		if s.answers.replies() >= maxReplies {
			s.writeAnswers(ctx) // or wait until the peer reads
		}
		m, err := s.conn.Read(ctx)
		if err == nil {
			if j := s.take(m); !j.none() {
				return j, nil
			}
		} else if err := s.unread(ctx, err); err != nil {
			return job{}, err
		}
	}
}

// unread replies to a message that is refused, or says why there is nothing more to read.
func (s *stream) unread(ctx context.Context, err error) error {
	refused, ok := errors.AsType[*jsonrpc.DecodeError](err)
	switch {
	case ok:
		s.log.DebugContext(ctx, "mcp: message refused", "error", err)
		s.reply(refused.Response())
		return nil
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case errors.Is(err, io.EOF), ctx.Err() != nil:
		return io.EOF
	}
	return disconnected(err)
}

// readsAtOnce reports whether the next message is known to be here already.
func (s *stream) readsAtOnce() bool { return s.lines != nil && s.lines.hasLine() }

// take decides which era a message belongs to. It is the only place that does.
//
// Spec: basic/versioning#backward-compatibility-with-initialization-based-versions (2026-07-28).
func (s *stream) take(m *jsonrpc.Message) job {
	session := s.session.Load()
	switch m.Kind() {
	case jsonrpc.Request:
		return s.takeRequest(m, session)
	case jsonrpc.Notification:
		if m.Method == wire.NotificationCancelled {
			s.cancel(m)
		} else if session != nil {
			return s.accept(session, m)
		}
	case jsonrpc.Batch:
		if session == nil {
			return s.refuse(jsonrpc.ID{}, Errorf(CodeInvalidRequest, "batches need an initialized session"))
		}
		return s.accept(session, m)
	case jsonrpc.Response:
		if session != nil {
			return s.accept(session, m)
		}
	}
	return job{}
}

func (s *stream) takeRequest(m *jsonrpc.Message, session *legacy.Session) job {
	env, err := wire.Open(m.Params)
	switch {
	case err != nil:
		return s.refuse(m.ID, err)
	case env.HasVersion:
		return s.takeModern(m, env)
	case session != nil:
		return s.acceptRequest(session, m)
	case m.Method == wire.MethodInitialize:
		return s.initialize(m)
	case m.Method == wire.MethodPing:
		s.reply(jsonrpc.NewResponse(m.ID, nil))
		return job{}
	}
	return s.refuse(m.ID, Errorf(CodeInvalidParams,
		"missing required field params._meta[%q]: send it with every request, or send initialize first", wire.MetaProtocolVersion))
}

// takeModern begins a request that carries its envelope.
func (s *stream) takeModern(m *jsonrpc.Message, env wire.Envelope) job {
	if err := env.Complete(); err != nil {
		return s.refuse(m.ID, err)
	}
	if !env.Revision.Modern() {
		return s.refuse(m.ID, wire.UnsupportedVersion(env.VersionText))
	}
	base := s.ctx
	if m.Method == wire.MethodSubscriptionsListen {
		base = s.listening
	}
	r := &streamRequest{stream: s}
	if err := s.calls.Enter(base, &r.call, m.ID); err != nil {
		return s.refuse(m.ID, err)
	}
	r.Request = Request{Method: m.Method, ID: m.ID, Params: m.Params, Principal: PrincipalFrom(s.ctx), Notify: r.notify, env: env}
	return job{request: r}
}

// A streamRequest is a modern request that came on a stream. Nothing is said of it once the client has cancelled it, and
// nothing after its answer, whatever a goroutine that the handler has left behind may want to say.
type streamRequest struct {
	Request
	stream *stream
	call   peer.Call
}

func (r *streamRequest) notify(ctx context.Context, method string, params stdjson.RawMessage) error {
	s := r.stream
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if r.call.Over() {
		return context.Cause(r.call.Context())
	}
	return s.send(jsonrpc.NewNotification(method, params))
}

// serve does a job and adds its answer to those that wait. It gives back room, which is for the answer's line.
func (s *stream) serve(j job, room []byte) []byte {
	switch {
	case j.request != nil:
		return s.serveRequest(j.request, room)
	case j.work != nil:
		return s.answer(nil, j.work(), room)
	}
	line, _ := j.exchange.AppendResponse(room[:0]) // an error is in the line
	if len(line) == 0 {
		return line // cancelled
	}
	return s.answers.add(answer{line: append(line, '\n')})
}

func (s *stream) serveRequest(r *streamRequest, room []byte) []byte {
	ctx := r.call.Context()
	switch {
	case r.Method == wire.MethodSubscriptionsListen:
		response := Answer(ctx, s.handler, &r.Request)
		if response.Error == nil {
			s.endSubscription(&r.call, response)
			return room
		}
		return s.answer(&r.call, response, room)
	case s.lines == nil:
		return s.answer(&r.call, Answer(ctx, s.handler, &r.Request), room)
	}
	line, _ := AppendAnswer(room[:0], ctx, s.handler, &r.Request) // an error is in the line
	return s.answers.add(answer{call: &r.call, line: append(line, '\n')})
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
		params := append([]byte(`{"requestId":`+result.ID.String()), '}')
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
func (s *stream) initialize(m *jsonrpc.Message) job {
	session, err := legacy.Open(s.ctx, &s.config, m)
	if err != nil {
		return s.refuse(m.ID, err)
	}
	session.Attach(s.out)
	s.session.Store(session)
	return job{work: func() *jsonrpc.Message {
		welcome := session.InitializeResponse(s.ctx, m.ID)
		if welcome.Error != nil {
			s.session.CompareAndSwap(session, nil) // the client may try again
		}
		return welcome
	}}
}

// acceptRequest hands a request to the session.
func (s *stream) acceptRequest(session *legacy.Session, m *jsonrpc.Message) job {
	if s.lines != nil {
		x := new(legacy.Exchange)
		if reply := session.Begin(s.ctx, x, m, s.out); reply != nil {
			s.reply(reply)
			return job{}
		}
		return job{exchange: x}
	}
	return s.accept(session, m)
}

// accept hands a message to the session.
func (s *stream) accept(session *legacy.Session, m *jsonrpc.Message) job {
	reply, work := session.Accept(s.ctx, m, s.out)
	s.reply(reply)
	return job{work: work}
}

// refuse answers a request with an error, which leaves no job.
func (s *stream) refuse(id jsonrpc.ID, err *Error) job {
	s.reply(jsonrpc.NewErrorResponse(id, err))
	return job{}
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

// sendLines writes whole lines, if there are any, with the lock held.
func (s *stream) sendLines(lines []byte) {
	if len(lines) == 0 || s.ctx.Err() != nil {
		return
	}
	if err := s.lines.writeLines(s.ctx, lines); err != nil {
		_ = s.fail(err)
	}
}

// fail ends the stream for everyone, because a message could not be written.
func (s *stream) fail(err error) error {
	err = disconnected(err)
	s.gone(err)
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

func (c core) Serve(ctx context.Context, dst []byte, msg *jsonrpc.Message, notify legacy.Notify) ([]byte, *Error) {
	req, err := NewRequest(msg)
	if err != nil {
		return nil, asError(err)
	}
	req.Notify, req.Principal = notify, PrincipalFrom(c.s.ctx)
	return AppendResult(dst, ctx, c.s.handler, req)
}

// Listen waits for changes on a goroutine, which may wait for the peer to read: so what a slow client is not told yet
// collects in the handler, which merges it.
func (c core) Listen(ctx context.Context, m *jsonrpc.Message, notify legacy.Notify) (stop func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	opened, ended := make(chan struct{}), make(chan *jsonrpc.Message, 1)
	first := sync.OnceFunc(func() { close(opened) })
	req, err := NewRequest(m)
	if err != nil {
		cancel(err)
		return nil, err
	}
	req.Principal = PrincipalFrom(c.s.ctx)
	req.Notify = func(ctx context.Context, method string, params stdjson.RawMessage) error {
		first() // whatever it is: the acknowledgement, by the rules
		return notify(ctx, method, params)
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
