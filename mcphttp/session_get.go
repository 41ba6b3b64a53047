package mcphttp

import (
	"context"
	"net/http"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A standalone stream carries what belongs to no request: changed lists and resources. A session has one at most.
//
// Spec: basic/transports#listening-for-messages-from-the-server
type standalone struct {
	stream    sessionStream
	box       outbox
	connected int // GETs that are being served on it; the session's lock guards it
}

// serveSessionGet serves a GET of a session: its standalone stream, or the rest of a stream whose connection broke.
func (h *Handler) serveSessionGet(w http.ResponseWriter, r *http.Request, head *head) *refusal {
	s, no := h.find(head, mcp.PrincipalFrom(r.Context()))
	if no != nil {
		return no
	}
	defer h.sessions.release(s)
	conn := newEventStream(w, h)
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

// errEventUnknown is the same for ids that never were, that belong to someone else, and after which events were lost.
var errEventUnknown = refuse(http.StatusNotFound, "the last event is unknown, or events after it are no longer kept")

// resumeCall sends the rest of a call's stream, and what is still to come on it.
func (h *Handler) resumeCall(r *http.Request, s *session, conn *eventStream, name string, n int64) *refusal {
	s.mu.Lock()
	stream := s.streams[name]
	s.mu.Unlock()
	if stream == nil { // its call is over
		key := StreamKey{Session: s.id, Principal: digest(s.principal), Stream: name}
		return afterReplay(conn, replay(h.opts.Sessions.Events.After(r.Context(), key, n), name, conn, n))
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

// afterReplay returns the refusal for a replay that failed before it began. One that failed later only breaks off.
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

// serveStandalone opens the standalone stream.
func (h *Handler) serveStandalone(r *http.Request, s *session, conn *eventStream) *refusal {
	conn.bell = make(chan struct{}, 1)
	conv := s.conversation()
	a := &standalone{connected: 1}
	s.beginStream(&a.stream, standaloneStream, conv.Revision(), &h.opts)
	a.box = outbox{taker: &a.stream, limit: maxUnsent}
	s.mu.Lock()
	switch {
	case s.ended:
		s.mu.Unlock()
		return errNoSession
	case s.alone != nil && s.alone.connected > 0:
		s.mu.Unlock()
		return refuse(http.StatusConflict, "the session has a stream already")
	}
	s.alone = a
	s.mu.Unlock()
	conv.Attach(h.sessions.toldTo(&a.box)) // before the client sees the stream: what it subscribes to then is told
	a.stream.start(r.Context(), conn)
	_ = conn.open() // if it fails the stream ends at once
	h.runStandalone(r, s, a, conv, conn)
	return nil
}

// resumeStandalone takes the standalone stream up on a new connection, also when the server has not yet noticed that
// the one before is gone.
func (h *Handler) resumeStandalone(r *http.Request, s *session, conn *eventStream, name string, n int64) *refusal {
	s.mu.Lock()
	a := s.alone
	if a == nil || s.ended || a.stream.name() != name || a.box.isClosed() {
		s.mu.Unlock()
		return errEventUnknown
	}
	a.connected++
	s.mu.Unlock()
	conn.bell = make(chan struct{}, 1)
	a.box.bound(maxUnsent)
	if no := afterReplay(conn, a.stream.attach(r.Context(), conn, n)); no != nil {
		h.leaveStandalone(s, a, conn)
		return no
	}
	h.runStandalone(r, s, a, s.conversation(), conn)
	return nil
}

// runStandalone writes what comes, until the connection or the session ends.
func (h *Handler) runStandalone(r *http.Request, s *session, a *standalone, conv *legacy.Session, conn *eventStream) {
	defer h.leaveStandalone(s, a, conn)
	defer context.AfterFunc(r.Context(), conn.ring)()
	ctx := context.WithoutCancel(r.Context())
	var queue [][]byte
	for more := true; more; {
		if conn.isOver() || r.Context().Err() != nil {
			return
		}
		queue, more = a.box.take(queue)
		for _, data := range queue {
			_ = a.stream.send(ctx, data) // kept for the client that comes back
		}
		if more {
			<-conn.bell
		}
	}
	conv.Attach(nil)
}

// leaveStandalone ends the serving of one GET. Without a connection less may wait.
func (h *Handler) leaveStandalone(s *session, a *standalone, conn *eventStream) {
	a.stream.detach(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.connected--; a.connected == 0 {
		a.box.bound(maxParked)
	}
}
