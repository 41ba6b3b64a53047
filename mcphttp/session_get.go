package mcphttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A standalone stream carries the messages that belong to no request: notifications of changed
// lists and resources. A session opens at most one. Spec:
// basic/transports#listening-for-messages-from-the-server
type standalone struct {
	stream    *sessionStream
	queue     messageQueue
	connected int // GET requests that are being served on it; guarded by the session's lock
}

// serveSessionGet serves a GET of a session: its standalone stream, or the resumption of a stream
// whose connection broke.
func (h *Handler) serveSessionGet(w http.ResponseWriter, r *http.Request, head *head) *refusal {
	s, no := h.find(r, head, mcp.PrincipalFrom(r.Context()))
	if no != nil {
		return no
	}
	defer h.sessions.release(s)
	conn := newEventStream(w, h, s.caller)
	defer conn.close()
	lastEvent, resumes := first(r.Header, headerLastEvent)
	if !resumes {
		return h.serveStandalone(r, s, conn)
	}
	name, n, ok := parseEventID(lastEvent)
	if !ok {
		return errEventUnknown
	}
	if name[0] == standaloneStream {
		return h.resumeStandalone(r, s, conn, name, n)
	}
	return h.resumeCall(r, s, conn, name, n)
}

// errEventUnknown does not distinguish ids that never existed, ids of other principals, and ids
// after which events were lost.
var errEventUnknown = refuse(http.StatusNotFound, "unknown last event, or events after it were discarded")

// resumeCall replays the stream of a call, and stays connected until the call is over.
func (h *Handler) resumeCall(r *http.Request, s *session, conn *eventStream, name string, n int64) *refusal {
	s.mu.Lock()
	stream := s.streams[name]
	s.mu.Unlock()
	if stream == nil { // the call is over
		key := StreamKey{Session: s.id, Principal: s.digest, Stream: name}
		return afterReplay(conn, replay(h.sessions.events.After(r.Context(), key, n), name, conn, n))
	}
	if no := afterReplay(conn, stream.attach(r.Context(), conn, n)); no != nil {
		return no
	}
	defer stream.detach(conn)
	select {
	case <-conn.over():
	case <-r.Context().Done():
	}
	return nil
}

// afterReplay returns the refusal for a replay that failed before its first write. After that the
// response can only be cut off.
func afterReplay(conn *eventStream, err error) *refusal {
	switch {
	case err == nil:
		return nil
	case conn.over() == nil:
		return errEventUnknown
	}
	conn.close()
	return nil
}

func (h *Handler) serveStandalone(r *http.Request, s *session, conn *eventStream) *refusal {
	conn.notify = make(chan struct{}, 1)
	conv := s.conversation()
	a := &standalone{stream: s.newStream(standaloneStream, conv.Revision(), h.sessions.events), connected: 1}
	a.queue.init(a.stream, h.unread, s.caller)
	s.mu.Lock()
	switch {
	case s.ended:
		s.mu.Unlock()
		return errNoSession
	case s.standalone != nil && s.standalone.connected > 0:
		s.mu.Unlock()
		return refuse(http.StatusConflict, "the session has a stream already")
	}
	before := s.standalone
	s.standalone = a
	s.mu.Unlock()
	if before != nil {
		before.queue.close()
	}
	// Before the client sees the stream, so that it is notified of later subscriptions.
	if no := subscriptionRefused(conv.Attach(h.sessions.changesTo(&a.queue))); no != nil {
		_ = conv.Attach(nil)
		a.queue.close()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.standalone == a {
			s.standalone = nil
		}
		return no
	}
	a.stream.start(r.Context(), conn)
	_ = conn.flush() // if it fails the stream ends at once
	h.runStandalone(r, s, a, conv, conn)
	return nil
}

// resumeStandalone moves the standalone stream to a new connection. The server may not have noticed
// yet that the connection before is gone.
func (h *Handler) resumeStandalone(r *http.Request, s *session, conn *eventStream, name string, n int64) *refusal {
	s.mu.Lock()
	a := s.standalone
	if a == nil && s.shared != nil { // another process sent the events so far
		s.mu.Unlock()
		return h.serveStandalone(r, s, conn)
	}
	if a == nil || s.ended || a.stream.name() != name || a.queue.isClosed() {
		s.mu.Unlock()
		return errEventUnknown
	}
	a.connected++
	s.mu.Unlock()
	conn.notify = make(chan struct{}, 1)
	a.queue.setLimit(maxQueued)
	if no := afterReplay(conn, a.stream.attach(r.Context(), conn, n)); no != nil {
		h.leaveStandalone(s, a, conn)
		return no
	}
	h.runStandalone(r, s, a, s.conversation(), conn)
	return nil
}

// runStandalone writes messages until the connection or the session ends.
func (h *Handler) runStandalone(r *http.Request, s *session, a *standalone, conv *legacy.Session, conn *eventStream) {
	defer h.leaveStandalone(s, a, conn)
	defer h.keepAlive(s, &a.queue)()
	ctx := context.WithoutCancel(r.Context())
	var messages [][]byte
	for more := true; more; {
		if conn.isOver() || r.Context().Err() != nil {
			return
		}
		if messages, more = a.queue.drain(messages); len(messages) > 0 {
			a.stream.sendAll(ctx, messages)
			a.queue.written()
		}
		if more {
			select {
			case <-conn.notify:
			case <-r.Context().Done():
			}
		}
	}
	_ = conv.Attach(nil)
}

// subscriptionRefused returns the refusal of a stream whose subscription a handler refuses, such as
// for its rate. A handler without subscriptions, or a handler that fails, does not refuse the
// stream.
func subscriptionRefused(err error) *refusal {
	e, ok := errors.AsType[*mcp.Error](err)
	if !ok || e.Code == mcp.CodeMethodNotFound || e.Code == mcp.CodeInternalError {
		return nil
	}
	return refuseBusy(http.StatusTooManyRequests, e.Message)
}

// leaveStandalone ends the serving of a GET, and reduces the limit of the queue after the last
// GET.
func (h *Handler) leaveStandalone(s *session, a *standalone, conn *eventStream) {
	a.stream.detach(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.connected--; a.connected == 0 {
		a.queue.setLimit(maxQueuedOffline)
	}
}
