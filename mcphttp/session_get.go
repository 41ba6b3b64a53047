package mcphttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"

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
		return h.serveStandalone(r, s, conn, "", 0)
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
	if stream == nil { // the call is over, or runs at another process
		return h.follow(r, s, conn, name, n)
	}
	if no := h.afterReplay(conn, stream.attach(r.Context(), conn, n)); no != nil {
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
func (h *Handler) afterReplay(conn *eventStream, err error) *refusal {
	opened := conn.over() != nil
	switch {
	case err == nil:
		return nil
	case opened:
		conn.close()
		return nil
	case errors.Is(err, ErrEventGap):
		return errEventUnknown
	}
	h.sessions.events.log.error(context.Background(), "mcphttp: events not read", err)
	return refuseBusy(http.StatusServiceUnavailable, "the store of events failed")
}

// serveStandalone opens the standalone stream. With a name, it continues the stream of that name at
// another process after event n.
func (h *Handler) serveStandalone(r *http.Request, s *session, conn *eventStream, name string, n int64) *refusal {
	conn.notify = make(chan struct{}, 1)
	rev, former := s.conversation().Revision(), s.listener()
	a := &standalone{connected: 1}
	a.stream = s.newStream(cmp.Or(name, newStreamName(standaloneStream)), rev, h.sessions.events)
	a.queue.init(a.stream, h.unread, s.caller)
	// Before the client sees the stream, so that it is notified of later subscriptions.
	if no := h.sessions.attach(s, a); no != nil {
		s.detach(a)
		return h.afterShutdown(no)
	}
	if name == "" {
		a.stream.start(r.Context(), conn)
		_ = conn.flush() // if it fails the stream ends at once
	} else if err := h.adopt(r, s, a.stream, conn, former, n); err != nil {
		s.detach(a)
		if no := h.afterReplay(conn, err); no != errEventUnknown {
			return no
		}
		return h.serveStandalone(r, s, conn, "", 0) // status 404 would end the session of some clients
	}
	h.runStandalone(r, s, a, conn)
	return nil
}

// adopt replays the events of a stream of another process, the former listener, until that process has
// stored its last event. The stream continues here with the next number.
func (h *Handler) adopt(
	r *http.Request, s *session, st *sessionStream, conn *eventStream, former string, n int64,
) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.store == nil {
		return ErrEventGap
	}
	f := h.newFollower(s, conn, st.name(), n)
	if err := f.read(r.Context()); err != nil {
		return err
	}
	if former != "" && former != h.sessions.shared.process && h.sessions.shared.bus != nil {
		f.follow(r.Context(), former)
	}
	st.last = f.n
	st.conn.Store(conn)
	return nil
}

// attach makes a stream the standalone stream of a session, in place of a stream without a client or
// at another process.
func (t *sessions) attach(s *session, a *standalone) *refusal {
	s.attaching.Lock()
	defer s.attaching.Unlock()
	if no := t.listen(s, func() *refusal { return s.setStandalone(a) }); no != nil {
		return no
	}
	return subscriptionRefused(s.conversation().Attach(t.changesTo(&a.queue)))
}

func (s *session) setStandalone(a *standalone) *refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.standalone
	switch {
	case s.ended:
		return errNoSession
	case before != nil && before.connected > 0 && !before.queue.isClosed():
		return refuse(http.StatusConflict, "the session has a stream already")
	case before != nil:
		before.queue.close()
	}
	s.standalone = a
	return nil
}

// detach ends a stream, and its subscription unless another stream replaced it.
func (s *session) detach(a *standalone) {
	a.stream.close()
	s.attaching.Lock()
	defer s.attaching.Unlock()
	s.mu.Lock()
	a.queue.close()
	current := s.standalone == a
	if current {
		s.standalone = nil
	}
	s.mu.Unlock()
	if current {
		_ = s.conversation().Attach(nil)
	}
}

// yield ends the standalone stream because another process opened one. It does not wait.
func (s *session) yield() {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.standalone
	if a == nil {
		return
	}
	a.queue.close() // its goroutine writes the queued messages, and detaches the stream
	if a.connected == 0 {
		go s.pass(a)
	}
}

// pass ends a stream without a client.
func (s *session) pass(a *standalone) {
	a.store()
	s.detach(a)
}

// store stores the queued messages of a stream without a client, which receives them at another process.
func (a *standalone) store() {
	messages, _ := a.queue.drain(nil)
	a.stream.sendAll(context.Background(), messages)
	a.queue.written()
}

// resumeStandalone moves the standalone stream to a new connection. The server may not have noticed
// yet that the connection before is gone.
func (h *Handler) resumeStandalone(r *http.Request, s *session, conn *eventStream, name string, n int64) *refusal {
	s.mu.Lock()
	a := s.standalone
	known := a != nil && !s.ended && a.stream.name() == name && !a.queue.isClosed()
	if known {
		a.connected++
	}
	s.mu.Unlock()
	switch {
	case !known && s.shared != nil: // another process sent the events so far
		return h.serveStandalone(r, s, conn, name, n)
	case !known:
		return errEventUnknown
	}
	conn.notify = make(chan struct{}, 1)
	a.queue.setLimit(maxQueued)
	if no := h.afterReplay(conn, a.stream.attach(r.Context(), conn, n)); no != nil {
		h.leaveStandalone(s, a, conn)
		return no
	}
	h.runStandalone(r, s, a, conn)
	return nil
}

// runStandalone writes messages until the connection or the session ends.
func (h *Handler) runStandalone(r *http.Request, s *session, a *standalone, conn *eventStream) {
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
	s.detach(a)
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
	if a.connected--; a.connected > 0 {
		return
	}
	a.queue.setLimit(maxQueuedOffline)
	if s.standalone == a && a.queue.isClosed() { // another process opened a stream when the client left
		go s.pass(a)
	}
}
