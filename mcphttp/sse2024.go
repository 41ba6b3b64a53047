package mcphttp

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// The transport of revision 2024-11-05 uses two endpoints: an event stream, which is the session,
// and an address for POST requests, whose address is the first event of the stream. Both are the
// path of the handler, the second with a query parameter.

// endpointParam is the query parameter that names the session in the address for POST requests.
const endpointParam = "sessionId"

// endpointSession returns the session in the address of a POST, and whether there is a session.
// Clients of Streamable HTTP name their session in a header.
func endpointSession(r *http.Request) (id string, ok bool) {
	if r.URL.RawQuery == "" || !strings.Contains(r.URL.RawQuery, endpointParam+"=") {
		return "", false
	}
	if _, named := first(r.Header, headerSession); named {
		return "", false
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(values[endpointParam]) != 1 {
		return "", false
	}
	return values[endpointParam][0], true
}

// namedInitTimeout is the InitTimeout of a GET that names a later revision. Clients of HTTP+SSE
// send initialize as soon as they know the endpoint. The GET may also come from a client of
// Streamable HTTP without a session yet: it waits for the end of this stream before it opens that
// of its session.
const namedInitTimeout = 5 * time.Second

// serveEndpoint serves the event stream. The session ends with it. Some clients name a later
// revision in their GET. Spec: basic/transports#http-with-sse (2024-11-05)
func (h *Handler) serveEndpoint(w http.ResponseWriter, r *http.Request, head *head) *refusal {
	if no := checkSessionVersion(head.version, nil); no != nil {
		return no
	}
	caller := h.caller(r, mcp.PrincipalFrom(r.Context()))
	conn := newEventStream(w, h, caller)
	defer conn.close()
	conn.notify = make(chan struct{}, 1)
	queue := &messageQueue{}
	queue.init(conn, h.unread, caller)
	if no := h.sessions.subscribe(); no != nil {
		return no
	}
	s, no := h.sessions.open(caller, queue)
	if no != nil {
		return no
	}
	defer h.sessions.addEndpoint(s, r)()
	defer h.sessions.end(s, mcp.ErrDisconnected)
	endpoint := "?" + endpointParam + "=" + url.QueryEscape(s.id)
	if conn.send(sse.Event{Type: "endpoint", Data: []byte(endpoint)}) != nil {
		return nil
	}
	timeout := h.opts.Sessions.InitTimeout
	if head.version.sent {
		timeout = min(timeout, namedInitTimeout)
	}
	initTimer := time.NewTimer(timeout)
	defer initTimer.Stop()
	isPinged := false
	for {
		select {
		case <-conn.over():
			return nil
		case <-r.Context().Done():
			return nil
		case <-initTimer.C:
			if s.conversation() == nil {
				if head.version.sent {
					conn.abort() // a client of Streamable HTTP reconnects only after an error
				}
				return nil
			}
		case <-conn.notify:
			if !sendQueued(conn, queue) {
				return nil
			}
			if !isPinged && s.conversation() != nil {
				isPinged = true
				defer h.keepAlive(s, queue)()
			}
		}
	}
}

// sendQueued writes the messages of the queue, and reports whether more can follow.
func sendQueued(conn *eventStream, queue *messageQueue) (more bool) {
	messages, more := queue.drain(nil)
	for _, data := range messages {
		if conn.append(sse.Event{Type: sse.DefaultType, Data: data}) != nil {
			return false
		}
	}
	if conn.flush() != nil {
		return false
	}
	queue.written()
	return more
}

// serveEndpointPost accepts a message, or passes it to the process of the event stream. Its response
// is sent on the event stream.
func (h *Handler) serveEndpointPost(
	w http.ResponseWriter, r *http.Request, head *head, id string, msg *jsonrpc.Message,
) (no *refusal) {
	if s := h.sessions.acquire(id, head.principal.Key()); s != nil {
		no = h.acceptPost(r, s, &head.body, msg)
	} else {
		no = h.passPost(r, head, id, msg)
	}
	if no == nil {
		w.WriteHeader(http.StatusAccepted)
	}
	return no
}

// acceptPost accepts a message for a session, which it releases.
func (h *Handler) acceptPost(r *http.Request, s *session, charge *bodyCharge, msg *jsonrpc.Message) *refusal {
	isCall := msg.Kind() == jsonrpc.Request || msg.Kind() == jsonrpc.Batch
	caller, slots := charge.caller, slotsOf(msg)
	no := h.inFlight.acquire(caller, slots)
	if no != nil {
		h.sessions.release(s)
		return no
	}
	kept := *msg
	work, no := h.endpointWork(r, s, &kept)
	if no != nil {
		h.inFlight.release(caller, slots)
		h.sessions.release(s)
		return no
	}
	h.calls.add()
	body := charge.move()
	done := func() {
		defer h.calls.done() // also if a handler ends the goroutine
		defer h.sessions.release(s)
		defer h.inFlight.release(caller, slots)
		defer body.release()
		work()
	}
	if isCall {
		go done() // ends with the call, which ends with the session at the latest
	} else {
		done()
	}
	return nil
}

// endpointWork accepts a message and returns the remaining work. When the client receives the
// status 202, the request must already be registered, so that a cancellation finds it.
func (h *Handler) endpointWork(r *http.Request, s *session, msg *jsonrpc.Message) (work func(), no *refusal) {
	isRequest := msg.Kind() == jsonrpc.Request
	conv := s.conversation()
	switch {
	case s.queue == nil:
		return nil, errNoSession
	case (isRequest || msg.Kind() == jsonrpc.Batch) && h.sessions.isOverloaded(s):
		return nil, refuseBusy(http.StatusTooManyRequests, "too many responses of the session are unread")
	case isRequest && !h.life.isOpen():
		return nil, errShutdown
	case conv != nil:
		ctx := s.newContext(r)
		reply, work := conv.Accept(ctx, msg, s.queue.send)
		respond := func(reply *jsonrpc.Message) {
			if reply != nil {
				_ = s.queue.send(ctx, reply) // fails only if the stream is over, and with it the session
			}
		}
		if work == nil {
			work = func(func(*jsonrpc.Message)) { respond(reply) }
		}
		return func() { work(respond) }, nil
	case isRequest && msg.Method == wire.MethodInitialize:
		return func() { h.initializeEndpoint(r, s, msg) }, nil
	case isRequest && msg.Method == wire.MethodDiscover:
		err := mcp.Errorf(mcp.CodeMethodNotFound, "this transport has no %s: send initialize", msg.Method)
		return func() { _ = s.queue.send(s.newContext(r), &jsonrpc.Message{ID: msg.ID, Error: err}) }, nil
	}
	return nil, refuse(http.StatusBadRequest, "the session is not initialized")
}

func (h *Handler) initializeEndpoint(r *http.Request, s *session, msg *jsonrpc.Message) {
	answer := h.sessions.initialize(s.newContext(r), s, msg)
	if answer.Error == nil {
		// Before the client sees the answer. Without an initialized session, no subscription is
		// opened.
		_ = s.conversation().Attach(h.sessions.changesTo(s.queue))
	}
	_ = s.queue.send(s.newContext(r), answer) // fails only if the stream is over, and with it the session
}
