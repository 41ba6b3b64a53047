package mcphttp

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// serveSessionPost serves a POST of the era that has sessions.
func (h *Handler) serveSessionPost(w http.ResponseWriter, r *http.Request, msg *jsonrpc.Message) {
	var no *refusal
	id, isEndpoint := endpointSession(r)
	switch {
	case isEndpoint:
		no = h.serveEndpointPost(w, r, id, msg)
	case msg.Kind() == jsonrpc.Request && msg.Method == wire.MethodInitialize:
		no = h.serveInitialize(w, r, msg)
	default:
		no = h.serveSessionMessage(w, r, msg)
	}
	if no != nil {
		h.refuse(w, requestID(msg), no)
	}
}

// requestID gives the id that an error about msg carries. That of a response is one of ours.
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
	case s.conv != nil:
		conv.Close(mcp.ErrClosed)
		return jsonrpc.NewErrorResponse(msg.ID, mcp.Errorf(mcp.CodeInvalidRequest, "the session is initialized already"))
	default:
		s.conv = conv
	}
	return answer
}

// serveSessionMessage serves any message but the first of a session.
func (h *Handler) serveSessionMessage(w http.ResponseWriter, r *http.Request, msg *jsonrpc.Message) *refusal {
	s, no := h.find(r)
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
		conv.Handle(newSessionContext(r), msg, discard)
		w.WriteHeader(http.StatusAccepted)
		return nil
	case !h.life.isOpen():
		return refuseBusy(http.StatusServiceUnavailable, "server is shutting down")
	}
	p := &sessionPost{
		handler: h, session: s, rev: conv.Revision(), w: w, busy: http.StatusTooManyRequests,
	}
	p.ctx.begin(r)
	p.ctx.post = p
	if msg.Method == wire.MethodTasksResult {
		defer p.leaveWith(r)()
	}
	reply, work := conv.Accept(&p.ctx, msg, p.send)
	if work != nil {
		p.busy = http.StatusServiceUnavailable // the client's share is not what it lacks
		reply = work()
	}
	if reply != nil {
		_ = p.send(&p.ctx, reply) // it is kept, and cannot fail
	}
	p.finish()
	return nil
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
	w       http.ResponseWriter
	ctx     sessionContext
	busy    int // the status of an answer that asks the client to come back

	mu       sync.Mutex // guards the fields below
	stream   *sessionStream
	first    *eventStream // the stream's first connection, that of the POST
	left     bool         // that one is gone
	answer   *buffer      // nil until there is one
	retry    string       // Retry-After
	refused  *challenge
	finished bool
}

// send takes a message of the call. The answer comes last; it is kept until the call is over, for then it is known how
// to send it.
func (p *sessionPost) send(ctx context.Context, m *jsonrpc.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished || p.answer != nil {
		return mcp.ErrClosed
	}
	if kind := m.Kind(); kind == jsonrpc.Response || kind == jsonrpc.Batch {
		p.answer = newBuffer()
		p.answer.bytes = jsonrpc.Append(p.answer.bytes, m)
		p.retry = retryAfter(m.Error)
		if m.Error != nil {
			// In a batch the one that is refused must not have the others sent again.
			p.refused = p.ctx.challenged.Load()
		}
		return nil
	}
	buf := newBuffer()
	defer buf.free()
	buf.bytes = jsonrpc.Append(buf.bytes, m)
	return p.open(ctx).send(ctx, buf.bytes)
}

// open makes the answer a stream, if it is not one yet. The caller holds p.mu.
func (p *sessionPost) open(ctx context.Context) *sessionStream {
	if p.stream == nil {
		p.stream = p.session.newStream(callStream, p.rev, &p.handler.opts)
		p.first = newEventStream(p.w, p.handler)
		p.stream.start(ctx, p.first)
		if p.left {
			p.leaveFirst()
		}
	}
	return p.stream
}

// finish answers the client, now that the call is over.
func (p *sessionPost) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = true
	switch {
	case p.stream != nil && p.answer != nil:
		p.stream.finish(&p.ctx, p.answer.bytes)
	case p.stream != nil:
		p.stream.close()
	case p.answer == nil:
		// A cancelled request has no answer, and a stream is the one way to say nothing.
		empty := newEventStream(p.w, p.handler)
		_ = empty.open()
		empty.close()
	case p.refused != nil:
		p.handler.challenge(p.w, p.refused, p.answer.bytes)
	case p.retry != "":
		p.w.Header().Set("Retry-After", p.retry)
		p.handler.reply(p.w, p.busy, p.answer.bytes)
	default:
		p.handler.reply(p.w, http.StatusOK, p.answer.bytes)
	}
	if p.stream != nil {
		p.session.dropStream(p.stream)
	}
	if p.answer != nil {
		p.answer.free()
	}
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
	if p.finished || p.answer != nil {
		return mcp.ErrClosed
	}
	return p.open(ctx).hangUp(retry)
}
