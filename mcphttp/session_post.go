package mcphttp

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// serveSessionPost serves a POST of the era that has sessions. The index is that of its params. The message is on the
// stack of the caller: what the session may keep is a copy.
func (h *Handler) serveSessionPost(w http.ResponseWriter, r *http.Request, head *head, msg *jsonrpc.Message, index *wire.Index) {
	var no *refusal
	id, isEndpoint := endpointSession(r)
	switch {
	case isEndpoint:
		no = h.serveEndpointPost(w, r, id, msg)
	case msg.Kind() == jsonrpc.Request && msg.Method == wire.MethodInitialize:
		no = h.serveInitialize(w, r, msg)
	default:
		no = h.serveSessionMessage(w, r, head, msg, index)
	}
	if no != nil {
		h.refuse(w, requestID(msg), no)
	}
}

// requestID returns the id that an error about msg carries. That of a response is one of ours.
func requestID(msg *jsonrpc.Message) jsonrpc.ID {
	if msg.Kind() == jsonrpc.Request {
		return msg.ID
	}
	return jsonrpc.ID{}
}

// serveInitialize opens a session.
//
// Spec: basic/transports#session-management
func (h *Handler) serveInitialize(w http.ResponseWriter, r *http.Request, msg *jsonrpc.Message) *refusal {
	if !h.life.isOpen() {
		return refuseBusy(http.StatusServiceUnavailable, "server is shutting down")
	}
	s, no := h.sessions.open(mcp.PrincipalFrom(r.Context()).Key(), nil)
	if no != nil {
		return no
	}
	defer h.sessions.release(s)
	ctx := newSessionContext(r)
	answer := h.sessions.initialize(ctx, s, msg)
	body := jsonrpc.Append(nil, answer)
	if answer.Error != nil {
		h.sessions.end(s, mcp.ErrClosed)
		if c := ctx.challenged.Load(); c != nil {
			h.challenge(w, c, body)
			return nil
		}
	} else {
		w.Header()[headerSession] = []string{s.id}
	}
	h.reply(w, http.StatusOK, body)
	return nil
}

// initialize begins the conversation of a session. A session for which it fails is of no use.
func (t *sessions) initialize(ctx *sessionContext, s *session, msg *jsonrpc.Message) *jsonrpc.Message {
	// The conversation keeps its context for as long as it lasts, so it gets no more than it needs.
	conv, err := legacy.Open(ctx.Context, &t.config, msg)
	if err != nil {
		return jsonrpc.NewErrorResponse(msg.ID, err)
	}
	answer := conv.Welcome(ctx, msg.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case answer.Error != nil:
		conv.Close(mcp.ErrClosed)
	case s.ended: // while the server said what it is
		conv.Close(mcp.ErrClosed)
		return jsonrpc.NewErrorResponse(msg.ID, mcp.Errorf(mcp.CodeInvalidRequest, "the session has ended"))
	case s.conversation() != nil:
		conv.Close(mcp.ErrClosed)
		return jsonrpc.NewErrorResponse(msg.ID, mcp.Errorf(mcp.CodeInvalidRequest, "the session is initialized already"))
	default:
		s.conv.Store(conv)
	}
	return answer
}

// serveSessionMessage serves any message but the first of a session.
func (h *Handler) serveSessionMessage(w http.ResponseWriter, r *http.Request, head *head, msg *jsonrpc.Message, index *wire.Index) *refusal {
	principal := mcp.PrincipalFrom(r.Context())
	s, no := h.find(head, principal)
	if no != nil {
		return no
	}
	defer h.sessions.release(s)
	conv := s.conversation()
	owed, no := owesAnswer(conv.Revision(), msg)
	switch {
	case no != nil:
		return no
	case !owed:
		accept(w, r, conv, msg)
		return nil
	case !h.life.isOpen():
		return refuseBusy(http.StatusServiceUnavailable, "server is shutting down")
	}
	if index.HasMeta() { // nearly always a progress token
		growStack(0)
	}
	p := &sessionPost{handler: h, session: s, rev: conv.Revision(), w: w, msg: *msg}
	p.ctx.begin(r, principal)
	p.ctx.post = p
	p.call.Index = *index
	if msg.Kind() == jsonrpc.Batch {
		p.serveBatch(conv)
		return nil
	}
	if p.lasts = msg.Method == wire.MethodTasksResult; p.lasts {
		defer p.leaveWith(r)()
	}
	p.serve(conv)
	return nil
}

// serve answers one request.
func (p *sessionPost) serve(conv *legacy.Session) {
	var buf *buffer
	if p.lasts {
		buf = new(buffer)
	} else {
		buf = p.handler.sizes.newBuffer()
	}
	defer buf.free()
	if reply := conv.Begin(&p.ctx, &p.call, &p.msg, p); reply != nil {
		buf.bytes = jsonrpc.Append(buf.bytes, reply)
		p.finish(answer{body: buf.bytes, err: reply.Error, busy: http.StatusTooManyRequests})
		return
	}
	var err *mcp.Error
	buf.bytes, err = p.call.AppendAnswer(buf.bytes)
	p.handler.sizes.learn(len(buf.bytes))
	p.finish(answer{body: buf.bytes, err: err, busy: http.StatusServiceUnavailable}) // the client's share is not what it lacks
}

// serveBatch answers the requests of a batch together.
func (p *sessionPost) serveBatch(conv *legacy.Session) {
	reply, work := conv.Accept(&p.ctx, &p.msg, p.Send)
	if work != nil {
		reply = work()
	}
	var a answer
	if reply != nil {
		// In a batch the one that is refused must not have the others sent again.
		a.body = jsonrpc.Append(nil, reply)
	}
	p.finish(a)
}

// accept takes a message that is owed no answer.
func accept(w http.ResponseWriter, r *http.Request, conv *legacy.Session, msg *jsonrpc.Message) {
	kept := *msg
	conv.Handle(newSessionContext(r), &kept, discard)
	w.WriteHeader(http.StatusAccepted)
}

func discard(context.Context, *jsonrpc.Message) error { return nil }

// owesAnswer reports whether a message is owed an answer, or says why it is none for a session of the revision.
func owesAnswer(rev wire.Revision, msg *jsonrpc.Message) (bool, *refusal) {
	switch msg.Kind() {
	case jsonrpc.Request:
		return true, nil
	case jsonrpc.Notification, jsonrpc.Response:
		return false, nil
	case jsonrpc.Batch:
		if rev.Has(wire.Batches) {
			return batchOwesAnswer(msg.Batch)
		}
	}
	return false, refuse(http.StatusBadRequest, "this protocol version has no batches")
}

// Spec: basic/lifecycle#initialization (2025-03-26)
func batchOwesAnswer(batch []*jsonrpc.Message) (owed bool, no *refusal) {
	for _, m := range batch {
		switch {
		case m.Method == wire.MethodInitialize:
			return false, refuse(http.StatusBadRequest, "initialize cannot be part of a batch")
		case m.Kind() == jsonrpc.Request, m.Refused != nil && m.Refused.Response() != nil:
			owed = true
		}
	}
	return owed, nil
}

// A sessionPost is a POST that is owed an answer. The answer is JSON, unless something is sent before it: then it is
// the last event of a stream, which the client can take up again when its connection breaks.
type sessionPost struct {
	handler *Handler
	session *session
	rev     wire.Revision
	lasts   bool // as long as a task, which may wait for a person
	w       http.ResponseWriter
	msg     jsonrpc.Message
	ctx     sessionContext
	call    legacy.Exchange

	mu       sync.Mutex // guards the fields below
	stream   *sessionStream
	first    *eventStream // the stream's first connection, that of the POST
	left     bool         // that one is gone
	finished bool
}

// An answer is what ends a POST.
type answer struct {
	body []byte     // empty for none
	err  *mcp.Error // that it is; nil if it is a result or several answers
	busy int        // the status if it asks the client to come back
}

// Send sends a message of the call ahead of its answer.
func (p *sessionPost) Send(ctx context.Context, m *jsonrpc.Message) error {
	buf := newBuffer()
	defer buf.free()
	buf.bytes = jsonrpc.Append(buf.bytes, m)
	return p.send(ctx, buf.bytes)
}

// Notify sends a notification of the call ahead of its answer.
func (p *sessionPost) Notify(ctx context.Context, method string, params stdjson.RawMessage) error {
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

// open makes the answer a stream, if it is not one yet. The caller holds p.mu.
func (p *sessionPost) open(ctx context.Context) *sessionStream {
	if p.stream == nil {
		p.stream = p.session.newStream(callStream, p.rev, &p.handler.opts)
		if !p.lasts {
			p.stream.log.holdBack()
		}
		p.first = newEventStream(p.w, p.handler)
		p.stream.start(ctx, p.first)
		if p.left {
			p.leaveFirst()
		}
	}
	return p.stream
}

// finish answers the client, now that the call is over.
func (p *sessionPost) finish(a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = true
	switch {
	case p.stream == nil:
		p.reply(a)
		return
	case len(a.body) > 0:
		p.stream.finish(&p.ctx, a.body)
	default:
		p.stream.close()
	}
	p.session.dropStream(p.stream)
}

// reply answers a POST that did not become a stream.
func (p *sessionPost) reply(a answer) {
	if len(a.body) == 0 {
		// A cancelled request has no answer, and a stream is the one way to say nothing.
		empty := newEventStream(p.w, p.handler)
		_ = empty.open()
		empty.close()
		return
	}
	if a.err == nil {
		p.handler.reply(p.w, http.StatusOK, a.body)
		return
	}
	if c := p.ctx.challenged.Load(); c != nil {
		p.handler.challenge(p.w, c, a.body)
		return
	}
	status := http.StatusOK
	if after := retryAfter(a.err); after != "" {
		p.w.Header().Set("Retry-After", after)
		status = a.busy
	}
	p.handler.reply(p.w, status, a.body)
}

// CloseStream closes the connection on which the client waits for the answer of the call that ctx belongs to. The call
// goes on, and the client comes back for the rest after the given time: long calls then hold no connection. The error
// is [errors.ErrUnsupported] where the client's revision or its connection has no such thing; the call is none the
// worse for it. Later messages of the call, its answer included, wait for the client in [SessionOptions.Events].
//
// Spec: basic/transports#sending-messages-to-the-server (2025-11-25)
func CloseStream(ctx context.Context, retry time.Duration) error {
	c := sessionContextFrom(ctx)
	if c == nil || c.post == nil || !c.post.rev.Has(wire.SSEPriming) {
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
