package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A Handler serves an [mcp.Handler] on an HTTP endpoint, to clients of every revision; see the
// package comment. Each request is served on the goroutine that net/http started for it. A Handler
// is safe for concurrent use.
type Handler struct {
	core     mcp.Handler
	server   server // serves with core, for exchanges
	opts     Options
	guard    *guard
	inFlight *quota // requests in progress, except subscriptions and waits for tasks
	listens  *quota
	follows  *quota // streams that GETs follow at other processes
	bodies   *quota // bytes
	filters  *quota // bytes
	unread   *unreadOutput
	sessions *sessions
	life     lifecycle
	calls    waitCounter // messages being served
	streams  waitCounter // GET streams being served
	sizes    sizeHint    // of responses
	refused  refusalCounter
	observer driver.RefusalObserver // may be nil

	bodyReads      *deadlineQueue[bodyRead]
	responseWrites *deadlineQueue[http.ResponseWriter] // of large responses
	eventWrites    *deadlineQueue[*eventStream]
	keepAlives     *deadlineQueue[*eventStream] // of open streams
}

// NewHandler returns a Handler that serves h. The options may be nil. NewHandler panics if an
// option is invalid.
func NewHandler(h mcp.Handler, opts *Options) *Handler {
	handler := &Handler{core: h, server: mcp.Driver(&modernCore{h})}
	if opts != nil {
		handler.opts = *opts
	}
	handler.opts.fillDefaults()
	if err := handler.opts.validate(); err != nil {
		panic("mcphttp: NewHandler: " + err.Error())
	}
	handler.observer, _ = mcp.Driver(h).Observer().(driver.RefusalObserver)
	handler.guard = newGuard(&handler.opts)
	handler.listens = newQuota("subscriptions",
		int64(handler.opts.MaxListens), int64(handler.opts.MaxListensPerPrincipal))
	handler.inFlight = newQuota("requests in progress",
		int64(handler.opts.MaxInFlight), int64(handler.opts.MaxInFlightPerPrincipal))
	handler.follows = newQuota("resumed streams", maxFollows, maxFollowsOfCaller)
	handler.bodies = newBodyQuota(handler.opts.MaxBody)
	handler.filters = newQuota("bytes of subscriptions", maxFilters, maxFiltersOfCaller)
	handler.unread = &unreadOutput{quota: newQuota("unread bytes", maxUnread, maxUnreadOfCaller)}
	handler.sessions = newSessions(h, &handler.opts, handler.filters)
	handler.sessions.shared.post = handler.receivePost
	handler.bodyReads = newDeadlineQueue(rateInterval(handler.opts.BodyTimeout), (*bodyRead).check)
	handler.responseWrites = newDeadlineQueue(handler.opts.WriteTimeout,
		func(w *http.ResponseWriter) bool { return expireWrite(*w) })
	handler.eventWrites = newDeadlineQueue(handler.opts.WriteTimeout, func(s **eventStream) bool {
		(*s).interrupt()
		return false
	})
	handler.keepAlives = newDeadlineQueue(handler.opts.KeepAlive, func(s **eventStream) bool {
		go (*s).sendComment() // ends with its write, which a deadline limits
		return true
	})
	return handler
}

// ServeHTTP serves an HTTP request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var head head
	head.read(r)
	no := h.guard.check(r, &head)
	if no != nil || r.Method != http.MethodPost {
		h.limitBodyTime(w, r)
	}
	if no != nil {
		h.refuse(w, jsonrpc.ID{}, no)
		return
	}
	h.guard.allowOrigin(w, head.origin)
	switch r.Method {
	case http.MethodPost:
		h.servePost(w, r, &head)
	case http.MethodGet:
		h.serveGet(w, r, &head)
	case http.MethodDelete:
		h.serveDelete(w, r, &head)
	case http.MethodOptions:
		h.serveOptions(w, r)
	default:
		h.refuseMethod(w, h.opts.Sessions.allowedMethods())
	}
}

func (h *Handler) refuseMethod(w http.ResponseWriter, allowed string) {
	w.Header().Set("Allow", allowed)
	h.refuse(w, jsonrpc.ID{}, refuse(http.StatusMethodNotAllowed, "method not allowed"))
}

// servePost reads a message and determines its era. A message is modern if its version header or
// its envelope says so. Either is enough, so that an intermediary that reads only the header or
// only the envelope cannot be misled. Spec:
// basic/versioning#backward-compatibility-with-initialization-based-versions (2026-07-28)
func (h *Handler) servePost(w http.ResponseWriter, r *http.Request, head *head) {
	h.calls.add()
	defer h.calls.done()
	defer head.body.release()
	head.principal = mcp.PrincipalFrom(r.Context())
	head.body.caller = h.caller(r, head.principal)
	body, no := h.readMessage(w, r, head)
	if no != nil {
		h.refuse(w, jsonrpc.ID{}, no)
		return
	}
	msg, err := jsonrpc.Decode(body)
	if err != nil {
		h.refuseMessage(w, err)
		return
	}
	if selectsModern(head.version) || hasModernEnvelope(msg) && !isEndpointDiscover(r, head, msg) {
		h.serveModern(w, r, head, msg)
	} else {
		h.serveSessionPost(w, r, head, msg)
	}
}

// selectsModern reports whether the version header selects the modern era. An unknown version is
// more likely a future revision than a past revision.
func selectsModern(version field) bool {
	rev, known := wire.ParseRevision(version.value)
	return version.sent && (!known || rev.Modern())
}

// isEndpointDiscover reports whether a message is the server/discover of a client of HTTP+SSE that
// does not know the revision of the server yet. Without a version header it is no modern request.
// The session answers it on its stream, since an error status would end the connection of some
// clients.
func isEndpointDiscover(r *http.Request, head *head, msg *jsonrpc.Message) bool {
	_, isEndpoint := endpointSession(r)
	return isEndpoint && !head.version.sent && msg.Kind() == jsonrpc.Request && msg.Method == wire.MethodDiscover
}

// hasModernEnvelope reports whether the params of a message name a version.
func hasModernEnvelope(msg *jsonrpc.Message) bool {
	const small = 4 << 10 // the search costs less than Get in small params, and several times as much in large params
	if len(msg.Params) < small && !bytes.Contains(msg.Params, []byte(wire.MetaProtocolVersion)) &&
		bytes.IndexByte(msg.Params, '\\') < 0 {
		return false // without escapes, the key would be there
	}
	meta, _ := jsonscan.Get(msg.Params, "_meta")
	_, ok := jsonscan.GetNonNull(meta, wire.MetaProtocolVersion)
	return ok
}

func (h *Handler) readMessage(w http.ResponseWriter, r *http.Request, head *head) ([]byte, *refusal) {
	if no := checkPost(r, head); no != nil {
		h.limitBodyTime(w, r)
		return nil, no
	}
	return h.readBody(w, r, head)
}

func (h *Handler) refuseMessage(w http.ResponseWriter, err error) {
	refused, ok := errors.AsType[*jsonrpc.DecodeError](err)
	switch {
	case !ok:
		h.refuse(w, jsonrpc.ID{}, refuse(http.StatusBadRequest, "the body is not a JSON-RPC message"))
	case refused.Kind == jsonrpc.Response: // its id belongs to a request of the server
		h.refuse(w, jsonrpc.ID{}, &refusal{http.StatusBadRequest, refused.Err})
	default:
		h.refuse(w, refused.ID, &refusal{http.StatusBadRequest, refused.Err})
	}
}

// checkPost returns the reason not to read the body of a POST, or nil.
func checkPost(r *http.Request, head *head) *refusal {
	if no := checkContent(head); no != nil {
		return no
	}
	if _, ok := endpointSession(r); ok {
		return nil // the response is sent on the session's stream
	}
	return checkAccept(head.accept)
}

// namesModern reports whether the version header names a revision without GET and DELETE.
func namesModern(version field) bool {
	rev, _ := wire.ParseRevision(version.value)
	return rev.Modern()
}

// allowedMethods returns the methods that the options allow, as the value of the header Allow.
func (o *SessionOptions) allowedMethods() string {
	allowed := "POST"
	if !o.Stateless && !o.NoGET {
		allowed += ", GET"
	}
	if !o.Stateless && !o.NoDELETE {
		allowed += ", DELETE"
	}
	return allowed + ", OPTIONS"
}

// resumes reports whether clients can resume streams.
func (o *SessionOptions) resumes() bool { return !o.Stateless && !o.NoGET }

func (h *Handler) serveGet(w http.ResponseWriter, r *http.Request, head *head) {
	o := &h.opts.Sessions
	switch {
	case namesModern(head.version):
		h.refuseMethod(w, "POST, OPTIONS")
		return
	case o.Stateless, o.NoGET, o.NoHTTPSSE && !head.id.sent:
		h.refuseMethod(w, o.allowedMethods())
		return
	}
	h.streams.add()
	defer h.streams.done()
	if !accepts(head.accept, typeEventStream) {
		h.refuse(w, jsonrpc.ID{}, refuse(http.StatusNotAcceptable, "Accept must list "+typeEventStream))
		return
	}
	var no *refusal
	_, resumes := first(r.Header, headerLastEvent)
	switch {
	case !h.life.isOpen():
		no = errShutdown
	case !head.id.sent && !resumes: // as clients of revision 2024-11-05 do
		no = h.serveEndpoint(w, r, head)
	default:
		no = h.serveSessionGet(w, r, head)
	}
	if no != nil {
		h.refuse(w, jsonrpc.ID{}, no)
	}
}

func (h *Handler) serveDelete(w http.ResponseWriter, r *http.Request, head *head) {
	if namesModern(head.version) {
		h.refuseMethod(w, "POST, OPTIONS")
		return
	}
	if o := &h.opts.Sessions; o.Stateless || o.NoDELETE {
		h.refuseMethod(w, o.allowedMethods())
		return
	}
	s, no := h.find(r, head, mcp.PrincipalFrom(r.Context()))
	if no == nil {
		defer h.sessions.release(s)
		no = h.sessions.removeRecord(s)
	}
	if no != nil {
		h.refuse(w, jsonrpc.ID{}, no)
		return
	}
	h.sessions.end(s, mcp.ErrClosed)
	w.WriteHeader(http.StatusNoContent)
}

// cancelGrace is how long before the deadline of a shutdown calls are canceled, so that they can
// still be answered.
const cancelGrace = 2 * time.Second

// Shutdown shuts the handler down gracefully. It refuses new requests with status 503, ends
// subscriptions with their result, lets calls finish, and then closes sessions and their streams.
// Shortly before the deadline of ctx it cancels the remaining calls with the cause
// [mcp.ErrShutdown]. It returns nil when all requests ended and the events of sessions are
// deleted, or the error of ctx; the deletion may take 10 seconds. Sessions of a
// [SessionOptions.Store] continue at other processes. Call it before the Shutdown of
// the http.Server, which waits for streams but does not end them.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.life.advance(draining)
	drainCtx := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var stop context.CancelFunc
		grace := min(cancelGrace, time.Until(deadline)/2)
		drainCtx, stop = context.WithDeadline(ctx, deadline.Add(-grace))
		defer stop()
	}
	drained := h.calls.wait(drainCtx)
	h.life.advance(over)
	h.sessions.endAll(ctx, mcp.ErrShutdown)
	defer h.sessions.endShared()
	if drained != nil {
		if err := h.calls.wait(ctx); err != nil {
			return err
		}
	}
	if err := h.streams.wait(ctx); err != nil {
		return err
	}
	return h.sessions.events.drain(ctx)
}
