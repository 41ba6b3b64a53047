package mcphttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxAdoption is how long a resumed stream waits for the former listener, which may not have read the
	// record of the session. A process that does not answer counts as gone after the same time.
	maxAdoption = goneAfter
	// reservedEvents are the numbers of a stream that belong to the former listener if it may store events
	// later. Its queue contains fewer messages, since each takes a byte at least.
	reservedEvents = maxQueued
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
	if stream == nil || stream.done.Load() { // the call is over, or runs at another process
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

// serveStandalone opens a standalone stream with a new name.
func (h *Handler) serveStandalone(r *http.Request, s *session, conn *eventStream) *refusal {
	a, no := h.startStandalone(r, s, conn)
	if no == nil {
		h.runStandalone(r, s, a, conn)
	}
	return no
}

func (h *Handler) startStandalone(r *http.Request, s *session, conn *eventStream) (*standalone, *refusal) {
	a, _, no := h.openStandalone(s, conn, newStreamName(standaloneStream))
	if no != nil {
		return nil, no
	}
	a.stream.start(context.WithoutCancel(r.Context()), conn) // a client that left is no failure of the store
	_ = conn.flush()                                         // if it fails the stream ends at once
	return a, nil
}

// openStandalone attaches a stream before the client sees it, so that the client is notified of later
// subscriptions. It returns the former listener, empty if it is unknown.
func (h *Handler) openStandalone(s *session, conn *eventStream, name string) (
	a *standalone, former string, no *refusal,
) {
	conn.notify = make(chan struct{}, 1)
	a = &standalone{connected: 1}
	a.stream = s.newStream(name, s.conversation().Revision(), h.sessions.events)
	a.queue.init(a.stream, h.unread, s.caller)
	if former, no = h.sessions.attach(s, a); no != nil {
		s.detach(a)
		return nil, "", h.afterShutdown(no)
	}
	return a, former, nil
}

// continueStandalone continues the stream of another process after event n. If messages may have been
// lost, everything counts as changed.
func (h *Handler) continueStandalone(r *http.Request, s *session, conn *eventStream, name string, n int64) *refusal {
	if no := h.follows.acquire(s.caller, 1); no != nil {
		return no
	}
	a, isWhole, no := h.adopt(r, s, conn, name, n)
	h.follows.release(s.caller, 1)
	if no == errEventUnknown {
		a, no = h.startStandalone(r, s, conn) // status 404 would end the session of some clients
	}
	if no != nil || a == nil {
		return no
	}
	if !isWhole {
		s.conversation().ReportAll()
	}
	h.runStandalone(r, s, a, conn)
	return nil
}

// adopt opens a stream under its name at another process, and replays its events until the former
// listener has stored the last event. It reports whether no event is missing. The standalone is nil if
// the connection broke.
func (h *Handler) adopt(r *http.Request, s *session, conn *eventStream, name string, n int64) (
	a *standalone, isWhole bool, no *refusal,
) {
	a, former, no := h.openStandalone(s, conn, name)
	if no != nil {
		return nil, false, no
	}
	st := a.stream
	st.mu.Lock()
	f := h.newFollower(s, conn, name, n)
	err := ErrEventGap
	if st.store != nil {
		err = f.read(r.Context())
	}
	if err != nil {
		st.mu.Unlock()
		s.detach(a)
		return nil, false, h.afterReplay(conn, err)
	}
	defer st.mu.Unlock()
	if x := &h.sessions.shared; x.bus != nil && isProcess(former) && former != x.process {
		ctx, cancel := context.WithTimeout(r.Context(), maxAdoption)
		f.follow(ctx, former)
		cancel()
		known, _ := f.state()
		isWhole = known.ended && known.last > 0 && f.n >= known.last // 0 if the process does not know the stream
	}
	st.last = f.n
	st.stored.Store(f.n)
	if !isWhole {
		st.last += reservedEvents
	}
	st.conn.Store(conn)
	return a, isWhole, nil
}

// attach makes a stream the standalone stream of a session, in place of a stream without a client or
// at another process. It returns the process that was the listener before; see [sessions.listen].
func (t *sessions) attach(s *session, a *standalone) (former string, no *refusal) {
	s.attaching.Lock()
	defer s.attaching.Unlock()
	if former, no = t.listen(s, func() *refusal { return s.setStandalone(a) }); no != nil {
		return "", no
	}
	return former, subscriptionRefused(s.conversation().Attach(t.changesTo(&a.queue)))
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
	a.stream.leave(a.queue.lossy.Load())
	s.attaching.Lock()
	defer s.attaching.Unlock()
	s.mu.Lock()
	a.queue.close()
	current := s.standalone == a
	if current {
		s.standalone, s.left = nil, a.stream
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
	a.store(context.Background())
	s.detach(a)
}

// store stores the queued messages of a stream without a client, which receives them at another process.
// Messages that are not stored before ctx ends are lost.
func (a *standalone) store(ctx context.Context) {
	messages, _ := a.queue.drain(nil)
	a.stream.sendAll(ctx, messages)
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
		return h.continueStandalone(r, s, conn, name, n)
	case !known:
		return errEventUnknown
	}
	conn.notify = make(chan struct{}, 1)
	a.queue.setLimit(maxQueued)
	if no := h.afterReplay(conn, a.stream.attach(r.Context(), conn, n)); no != nil {
		h.leaveStandalone(s, a, conn)
		if no == errEventUnknown && s.shared != nil { // also if this process missed a change of the listener
			return h.continueStandalone(r, s, conn, name, n)
		}
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
	if a.queue.isClosed() && !a.stream.done.Load() { // another stream opened when the client left
		go s.pass(a)
	}
}
