package mcphttp

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// serveSessionPost serves a POST of the session era. The session keeps a copy of the message.
func (h *Handler) serveSessionPost(w http.ResponseWriter, r *http.Request, head *head, msg *jsonrpc.Message) {
	var no *refusal
	id, isEndpoint := endpointSession(r)
	switch {
	case h.opts.Sessions.Stateless:
		no = h.serveStateless(w, r, head, msg)
	case isEndpoint:
		no = h.serveEndpointPost(w, r, head, id, msg)
	case msg.Kind() == jsonrpc.Request && msg.Method == wire.MethodInitialize:
		no = h.serveInitialize(w, r, head, msg)
	default:
		no = h.serveSessionMessage(w, r, head, msg)
	}
	if no != nil {
		var requestID jsonrpc.ID // the id of a response belongs to a request of the server
		if msg.Kind() == jsonrpc.Request {
			requestID = msg.ID
		}
		h.refuse(w, requestID, no)
	}
}

// serveInitialize opens a session. If the request names a session, that session ends once the new
// session is open: its client begins again. Spec: basic/transports#session-management
func (h *Handler) serveInitialize(w http.ResponseWriter, r *http.Request, head *head, msg *jsonrpc.Message) *refusal {
	if !h.life.isOpen() {
		return errShutdown
	}
	s, no := h.sessions.open(head.body.caller, nil)
	if no != nil && h.endNamed(r, head) { // the named session may occupy the last place of its principal
		s, no = h.sessions.open(head.body.caller, nil)
	}
	if no != nil {
		return no
	}
	defer h.sessions.release(s)
	h.writeInitialize(w, r, s, msg, func() {
		h.endNamed(r, head)
		w.Header()[headerSession] = []string{s.id}
	})
	return nil
}

// writeInitialize initializes a session and writes the response, after it called the functions if
// the session is open.
func (h *Handler) writeInitialize(
	w http.ResponseWriter, r *http.Request, s *session, msg *jsonrpc.Message, opened ...func(),
) {
	ctx := s.newContext(r)
	answer := h.sessions.initialize(ctx, s, msg)
	body := jsonrpc.Append(nil, answer)
	status := http.StatusOK
	if answer.Error != nil {
		h.sessions.end(s, mcp.ErrClosed)
		if answer.Error == errStore.err {
			h.refuse(w, msg.ID, errStore)
			return
		}
		if c := ctx.challenged.Load(); c != nil {
			h.writeChallenge(w, c, body)
			return
		}
		if answer.Error.Code == driver.CodeUnsupportedProtocolVersion { // no revision with sessions is accepted
			status = http.StatusBadRequest
			h.refused.add(http.StatusText(status))
		}
	} else {
		for _, f := range opened {
			f()
		}
	}
	h.writeJSON(w, status, body)
}

// endNamed ends the session that a request names and reports whether its caller opened that
// session.
func (h *Handler) endNamed(r *http.Request, head *head) bool {
	if !head.id.sent {
		return false
	}
	s, no := h.find(r, head, head.principal)
	if no != nil {
		return false
	}
	h.sessions.end(s, mcp.ErrClosed)
	h.sessions.release(s)
	return true
}

// initialize starts the conversation of a session. If it fails the session is useless.
func (t *sessions) initialize(ctx *sessionContext, s *session, msg *jsonrpc.Message) *jsonrpc.Message {
	conv, err := legacy.Open(&conversationContext{ctx.Context, s}, &t.config, msg)
	if err != nil {
		return &jsonrpc.Message{ID: msg.ID, Error: err}
	}
	ended, cancel := context.WithCancelCause(ctx.Context)
	defer cancel(nil)
	if err := s.beginInitialize(cancel); err != nil {
		conv.Close(mcp.ErrClosed)
		return &jsonrpc.Message{ID: msg.ID, Error: err}
	}
	timeout, stop := context.WithTimeoutCause(ended, t.opts.Sessions.InitTimeout, mcp.ErrTimeout)
	defer stop()
	ctx.Context = timeout
	answer := conv.InitializeResponse(ctx, msg.ID)
	if answer.Error == nil {
		if no := t.create(s, conv); no != nil {
			answer = &jsonrpc.Message{ID: msg.ID, Error: no.err}
		} else {
			t.begun(ctx, s)
		}
	}
	s.mu.Lock()
	s.initializing = nil
	isEnded := s.ended // meanwhile
	if answer.Error == nil && !isEnded {
		s.conv.Store(conv)
		s.hasBegun = true
	}
	s.mu.Unlock()
	switch {
	case answer.Error != nil:
		conv.Close(mcp.ErrClosed)
	case isEnded:
		conv.Close(mcp.ErrClosed)
		t.over(s, mcp.ErrClosed)
		return &jsonrpc.Message{ID: msg.ID, Error: errSessionEnded}
	}
	return answer
}

// begun calls [SessionOptions.Begin], and reports the session to the observer of the server.
func (t *sessions) begun(ctx *sessionContext, s *session) {
	if t.observer != nil {
		s.observed = t.observer.SessionBegan(ctx, ctx.Via())
	}
	if t.opts.Sessions.Begin != nil && !t.opts.Sessions.Stateless {
		defer t.recovered("SessionOptions.Begin")
		t.opts.Sessions.Begin(ctx, s.id)
	}
}

// over calls [SessionOptions.End], and reports the end to the observer of the server.
func (t *sessions) over(s *session, cause error) {
	if s.observed != nil {
		s.observed(cause)
	}
	if t.opts.Sessions.End != nil && !t.opts.Sessions.Stateless {
		defer t.recovered("SessionOptions.End")
		t.opts.Sessions.End(s.id, cause)
	}
}

func (t *sessions) recovered(what string) {
	if value := recover(); value != nil {
		t.opts.Logger.Error("mcphttp: panic recovered", "in", what, "value", value, "stack", string(debug.Stack()))
	}
}

// beginInitialize makes close call cancel, so that a handler that hangs does not delay the end of
// the session.
func (s *session) beginInitialize(cancel context.CancelCauseFunc) *mcp.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return errSessionEnded
	case s.initializing != nil || s.conversation() != nil:
		return mcp.Errorf(mcp.CodeInvalidRequest, "the session is initialized already")
	}
	s.initializing = cancel
	return nil
}

var errSessionEnded = mcp.Errorf(mcp.CodeInvalidRequest, "the session has ended")

func (h *Handler) serveSessionMessage(
	w http.ResponseWriter, r *http.Request, head *head, msg *jsonrpc.Message,
) *refusal {
	s, no := h.find(r, head, head.principal)
	if no != nil {
		return no
	}
	defer h.sessions.release(s)
	return h.serveMessage(w, r, s, head, msg)
}

// serveMessage serves a message of a session.
func (h *Handler) serveMessage(
	w http.ResponseWriter, r *http.Request, s *session, head *head, msg *jsonrpc.Message,
) *refusal {
	conv := s.conversation()
	needed, no := needsResponse(conv.Revision(), msg)
	switch {
	case no != nil:
		return no
	case !needed:
		return accept(w, r, s, msg)
	case !h.life.isOpen():
		return errShutdown
	}
	p := &sessionPost{handler: h, session: s, rev: conv.Revision(), isHTTP1: r.ProtoMajor == 1, w: w,
		message: msg, jsonOnly: !accepts(head.accept, typeEventStream)}
	p.ctx.begin(r, s, head.principal)
	p.ctx.post = p
	if p.isLong = isLong(msg); p.isLong {
		defer p.cancelOnAbsence(r)()
	}
	slots := slotsOf(msg)
	if no := h.inFlight.acquire(head.body.caller, slots); no != nil {
		return no
	}
	defer h.inFlight.release(head.body.caller, slots)
	if msg.Kind() == jsonrpc.Batch {
		p.serveBatch(conv, msg)
	} else {
		p.serve(conv, msg)
	}
	return nil
}

// isLong reports whether a request lasts as long as a task.
func isLong(msg *jsonrpc.Message) bool { return msg.Method == wire.MethodTasksResult }

// slotsOf returns how many requests in progress a message counts as.
func slotsOf(msg *jsonrpc.Message) (n int64) {
	for _, m := range msg.Batch {
		n += slotsOf(m)
	}
	if msg.Kind() == jsonrpc.Request && !isLong(msg) {
		n++
	}
	return n
}

func (p *sessionPost) serve(conv *legacy.Session, msg *jsonrpc.Message) {
	var buf *buffer
	if p.isLong {
		buf = new(buffer)
	} else {
		buf = p.handler.sizes.newBuffer()
	}
	defer buf.free()
	if reply := conv.Begin(&p.ctx, &p.call, msg, p); reply != nil {
		buf.bytes = jsonrpc.Append(buf.bytes, reply)
		p.finish(response{body: buf.bytes, err: reply.Error, busy: http.StatusTooManyRequests})
		return
	}
	returned := false
	defer func() {
		if !returned {
			p.exited()
		}
	}()
	p.response = buf
	var err *mcp.Error
	buf.bytes, err = p.call.AppendResponse(buf.bytes)
	returned = true
	p.handler.sizes.learn(len(buf.bytes))
	// A busy error comes from the server here, not from the limit of the session.
	p.finish(response{body: buf.bytes, err: err, busy: http.StatusServiceUnavailable})
}

// exited responds to a request whose handler ended the goroutine, as exchange.exited does.
func (p *sessionPost) exited() {
	var last response
	if reply := p.call.Exited(); reply != nil {
		last = response{body: jsonrpc.Append(nil, reply), err: reply.Error, busy: http.StatusServiceUnavailable}
		lastResponse(p.w, p.isHTTP1, len(last.body))
	}
	p.finish(last)
	_ = http.NewResponseController(p.w).Flush() // fails only without a connection
}

func (p *sessionPost) serveBatch(conv *legacy.Session, msg *jsonrpc.Message) {
	kept := *msg
	respond := func(reply *jsonrpc.Message) {
		var a response
		if reply != nil {
			// The status is 200 even if a request of the batch is refused, so that the client does
			// not send the others again.
			a.body = jsonrpc.Append(nil, reply)
		}
		p.finish(a)
	}
	if reply, work := conv.Accept(&p.ctx, &kept, p.Send); work != nil {
		work(respond)
	} else {
		respond(reply)
	}
}

// accept handles a message without a response.
func accept(w http.ResponseWriter, r *http.Request, s *session, msg *jsonrpc.Message) *refusal {
	kept, ctx := *msg, s.newContext(r)
	s.conversation().Handle(ctx, &kept, func(context.Context, *jsonrpc.Message) error { return nil })
	if ctx.unsaved.Load() {
		return errStore
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// needsResponse reports whether a message requires a response, or returns a refusal if the revision
// does not define such messages.
func needsResponse(rev wire.Revision, msg *jsonrpc.Message) (bool, *refusal) {
	switch msg.Kind() {
	case jsonrpc.Request:
		return true, nil
	case jsonrpc.Notification, jsonrpc.Response:
		return false, nil
	case jsonrpc.Batch:
		if rev.Has(wire.Batches) {
			return batchNeedsResponse(msg.Batch)
		}
	}
	return false, refuse(http.StatusBadRequest, "this protocol version has no batches")
}

// Spec: basic/lifecycle#initialization (2025-03-26)
func batchNeedsResponse(batch []*jsonrpc.Message) (needed bool, no *refusal) {
	for _, m := range batch {
		switch {
		case m.Method == wire.MethodInitialize:
			return false, refuse(http.StatusBadRequest, "initialize cannot be part of a batch")
		case m.Kind() == jsonrpc.Request, m.Refused != nil && m.Refused.Response() != nil:
			needed = true
		}
	}
	return needed, nil
}

// A sessionPost is a POST with a response. The response is JSON, unless something is sent
// before it: then it is the last event of a stream, which the client can resume when its connection
// breaks.
type sessionPost struct {
	handler  *Handler
	session  *session
	rev      wire.Revision
	message  *jsonrpc.Message
	isLong   bool // it lasts as long as a task
	isHTTP1  bool
	jsonOnly bool // the client does not accept an event stream
	w        http.ResponseWriter
	ctx      sessionContext
	call     legacy.Exchange
	response *buffer // nil for a batch

	mu           sync.Mutex // guards the fields below
	stream       *sessionStream
	first        *eventStream // the stream's first connection, that of the POST
	disconnected bool         // first is gone
	finished     bool
}

// A response is the last message of a POST.
type response struct {
	body []byte     // empty for no response
	err  *mcp.Error // in the body; nil for a result or a batch
	busy int        // the status if the error asks the client to retry
}

// Send sends a message before the response.
func (p *sessionPost) Send(ctx context.Context, m *jsonrpc.Message) error {
	if p.jsonOnly {
		return errors.New("mcphttp: the client does not accept an event stream for this request")
	}
	buf := newBuffer()
	defer buf.free()
	buf.bytes = jsonrpc.Append(buf.bytes, m)
	return p.send(ctx, buf.bytes)
}

// Notify sends a notification before the response.
func (p *sessionPost) Notify(ctx context.Context, method string, params stdjson.RawMessage) error {
	if p.jsonOnly {
		return nil // the client does not accept the stream that would carry the notification
	}
	buf := encodeNotification(method, params)
	defer buf.free()
	return p.send(ctx, buf.bytes)
}

func (p *sessionPost) send(ctx context.Context, data []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return mcp.ErrClosed
	}
	return p.open(ctx).send(ctx, data)
}

// open returns the stream of the response, which it creates if necessary. The caller holds p.mu.
func (p *sessionPost) open(ctx context.Context) *sessionStream {
	if p.stream == nil {
		p.stream = p.session.newStream(newStreamName(callStream)+p.handler.sessions.callSuffix(p.message), p.rev,
			p.handler.sessions.eventLog())
		p.first = newEventStream(p.w, p.handler, p.session.caller)
		p.stream.start(ctx, p.first)
		if p.disconnected {
			p.closeFirst()
		}
	}
	return p.stream
}

func (p *sessionPost) finish(a response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = true
	switch {
	case p.stream == nil:
		p.respond(a)
		return
	case len(a.body) > 0:
		p.stream.finish(&p.ctx, p.response.joined(a.body))
	default:
		p.stream.close()
	}
	p.session.remove(p.stream)
}

// respond responds to a POST without a stream.
func (p *sessionPost) respond(a response) {
	if len(a.body) == 0 {
		// A cancelled request receives no response: the stream ends without a message.
		empty := newEventStream(p.w, p.handler, p.session.caller)
		_ = empty.flush()
		empty.close()
		return
	}
	if a.err == nil {
		p.handler.writeResponse(p.w, p.session.caller, http.StatusOK, p.response, a.body)
		return
	}
	if c := p.ctx.challenged.Load(); c != nil {
		p.handler.writeChallenge(p.w, c, a.body)
		return
	}
	status := http.StatusOK
	if after := retryAfter(a.err); after != "" {
		p.w.Header().Set("Retry-After", after)
		status = a.busy
	}
	p.handler.writeResponse(p.w, p.session.caller, status, nil, a.body)
}

// CloseStream closes the connection on which the client waits for the response to the call of ctx.
// The call continues, and the client reconnects after the retry time, so that long calls need no
// open connection. Until then the messages of the call, the response included, are kept in
// [SessionOptions.Events]. The error is [errors.ErrUnsupported] if the client's revision or
// connection does not support this; the call is then unaffected.
//
// Spec: basic/transports#sending-messages-to-the-server (2025-11-25)
func CloseStream(ctx context.Context, retry time.Duration) error {
	c := sessionContextFrom(ctx)
	if c == nil || c.post == nil || !c.post.rev.Has(wire.SSEPriming) || !c.post.handler.opts.Sessions.resumes() {
		return errors.ErrUnsupported
	}
	p := c.post
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return mcp.ErrClosed
	}
	return p.open(ctx).hangUp(retry)
}

// A request for the result of a task may last for hours, and the task does not need it. So unlike
// any other request it is canceled when its client disconnected and does not resume. Otherwise
// every client that crashed while it waited would keep its session for as long as the task lasts.

const (
	// presenceInterval is the interval at which the server checks whether the client resumed.
	presenceInterval = time.Minute
	// maxAbsences is the number of failed checks in a row after which the request is canceled. The
	// events of its stream are not stored for longer.
	maxAbsences = 10
)

// cancelOnAbsence cancels the call when its client stays disconnected. The caller calls stop when
// the call is over. Spec: basic/utilities/tasks#retrieving-task-results (2025-11-25): the client
// may drop the stream at any time.
func (p *sessionPost) cancelOnAbsence(r *http.Request) (stop func()) {
	ctx, cancel := context.WithCancelCause(p.ctx.Context)
	p.ctx.Context = ctx
	over, checked := make(chan struct{}), make(chan struct{})
	unregister := context.AfterFunc(r.Context(), func() {
		defer close(checked)
		p.disconnect()
		if p.staysAbsent(over) {
			cancel(mcp.ErrDisconnected)
		}
	})
	return func() {
		close(over)
		if !unregister() {
			<-checked
		}
		cancel(nil)
	}
}

// staysAbsent waits until the client has been disconnected for too long, or the call is over.
func (p *sessionPost) staysAbsent(over <-chan struct{}) bool {
	check := time.NewTicker(presenceInterval)
	defer check.Stop()
	for absences := 0; absences < maxAbsences; {
		select {
		case <-check.C:
		case <-over:
			return false
		}
		if absences++; p.isResumed() {
			absences = 0
		}
	}
	return true
}

// disconnect records that the connection of the POST is gone.
func (p *sessionPost) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnected = true
	if p.stream != nil {
		p.closeFirst()
	}
}

// closeFirst detaches the stream from the connection of the POST. The caller holds p.mu.
func (p *sessionPost) closeFirst() {
	p.stream.detach(p.first)
	p.first.interrupt()
	p.first.close()
}

// isResumed reports whether the client reads the stream of the call on another connection, perhaps
// at another process.
func (p *sessionPost) isResumed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stream != nil && (p.stream.conn.Load() != nil || len(p.stream.followers.Load().current()) > 0)
}
