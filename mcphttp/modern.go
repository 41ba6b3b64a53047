package mcphttp

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// serveModern serves a modern message, on the goroutine that net/http started.
func (h *Handler) serveModern(w http.ResponseWriter, r *http.Request, head *head, msg *jsonrpc.Message) {
	switch msg.Kind() {
	case jsonrpc.Request:
		if no := h.serveRequest(w, r, head, msg); no != nil {
			h.refuse(w, msg.ID, no)
		}
	case jsonrpc.Notification:
		h.serveNotification(w, head, msg)
	default:
		h.refuse(w, jsonrpc.ID{}, refuse(http.StatusBadRequest, "the body must be one request or notification"))
	}
}

// serveNotification accepts or refuses a notification. The protocol defines no notifications that
// clients send over HTTP, so an accepted notification is ignored. Spec:
// basic/transports/streamable-http#sending-messages (2026-07-28)
func (h *Handler) serveNotification(w http.ResponseWriter, head *head, msg *jsonrpc.Message) {
	var err *mcp.Error
	if rev, known := wire.ParseRevision(head.version.value); head.version.sent && (!known || !rev.Modern()) {
		err = wire.UnsupportedVersion(head.version.value, h.sessions.config.Revisions)
	} else if head.method.sent && head.method.value != msg.Method {
		err = mismatch(headerMethod + " differs from the method in the body")
	}
	if err != nil {
		h.refuse(w, jsonrpc.ID{}, &refusal{http.StatusBadRequest, err})
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// openRequest returns the request of a message, or a refusal. It checks the envelope first, then
// the headers against the body, then the version.
func (h *Handler) openRequest(head *head, msg *jsonrpc.Message) (*mcp.Request, *refusal) {
	req, err := mcp.NewRequest(msg)
	if err != nil {
		var e *mcp.Error
		if !errors.As(err, &e) {
			e = &mcp.Error{Code: mcp.CodeInvalidParams, Message: "invalid params"}
		}
		return nil, &refusal{http.StatusBadRequest, e}
	}
	if err := checkHeaders(head, req); err != nil {
		return nil, &refusal{http.StatusBadRequest, err}
	}
	if rev, known := wire.ParseRevision(req.Revision()); !known || !rev.Modern() {
		accepted := h.sessions.config.Revisions
		return nil, &refusal{http.StatusBadRequest, wire.UnsupportedVersion(req.Revision(), accepted)}
	}
	return req, nil
}

// prepareListen prepares the serving of a subscription. It is a function of its own so that the
// goroutine of an open subscription keeps a small stack.
func (h *Handler) prepareListen(c *bodyCharge, msg *jsonrpc.Message) *refusal {
	if no := h.sessions.subscribe(); no != nil {
		return no
	}
	return h.keepParams(c, msg)
}

func (h *Handler) serveRequest(w http.ResponseWriter, r *http.Request, head *head, msg *jsonrpc.Message) *refusal {
	if wire.Lasts(msg.Method) {
		if no := h.prepareListen(&head.body, msg); no != nil {
			return no
		}
	}
	req, no := h.openRequest(head, msg)
	if no != nil {
		return no
	}
	if !h.life.isOpen() {
		return errShutdown
	}
	req.Principal = head.principal
	req.Header = r.Header
	endsAt := over
	limit, caller := h.inFlight, head.body.caller
	if isListen(req) {
		limit, endsAt = h.listens, draining
	}
	streams := accepts(head.accept, typeEventStream)
	if !streams && isListen(req) {
		return errNotAcceptable
	}
	if no := limit.acquire(caller, 1); no != nil {
		return no
	}
	defer limit.release(caller, 1)
	x := &exchange{
		w: w, r: r, caller: caller,
		ctx: callContext{Context: r.Context(), handler: h, endsAt: endsAt},
	}
	defer x.ctx.end()
	req.Driver().Carrier = x
	if err := checkParams(&x.ctx, h.core, head, req); err != nil {
		return &refusal{http.StatusBadRequest, err}
	}
	if streams {
		req.Notify = x.notify
	}
	x.serve(req)
	return nil
}

func isListen(req *mcp.Request) bool { return wire.Lasts(req.Method) }

// An exchange is a modern request and its response. The response is JSON, unless something is
// sent before it: then it is the last event of a stream.
type exchange struct {
	w        http.ResponseWriter
	r        *http.Request
	caller   caller
	response *buffer
	ctx      callContext

	mu       sync.Mutex   // guards the fields below
	stream   *eventStream // nil until something is sent
	answered bool         // the response began, and no message can precede it
}

// A modernCore serves the requests of exchanges.
type modernCore struct{ handler mcp.Handler }

// ServeMCP serves a request, and records in its callContext how the error is sent over HTTP.
func (c *modernCore) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	res, err := c.handler.ServeMCP(ctx, req)
	if err != nil {
		if call, ok := ctx.Value(callContextKey{}).(*callContext); ok {
			call.challenged = challengeOf(err)
			_, call.isKnown = errors.AsType[*wire.HandlerError](err)
		}
	}
	return res, err
}

// Via implements [driver.Carrier].
func (x *exchange) Via() driver.Via { return (*httpVia)(x.r).Via() }

// Splice implements [wire.Splicer].
func (x *exchange) Splice(dst, part []byte, shared bool) bool {
	return x.response.Splice(dst, part, shared)
}

// Unwrap implements [driver.Wrapped].
func (c *modernCore) Unwrap(driver.Wrapped) mcp.Handler { return c.handler }

func (x *exchange) serve(req *mcp.Request) {
	sizes := &x.ctx.handler.sizes
	if isListen(req) { // which lasts for hours, and must not hold a pooled buffer
		x.response = new(buffer)
	} else {
		x.response = sizes.newBuffer()
	}
	defer x.response.free()
	returned := false
	defer func() {
		if !returned {
			x.exited(req)
		}
	}()
	body, err := x.ctx.handler.server.AppendResponse(x.response.bytes, &x.ctx, req)
	returned = true
	x.response.bytes = body
	sizes.learn(len(body))
	x.write(body, err)
}

// exited responds to a request whose handler ended the goroutine with runtime.Goexit. net/http then
// closes the connection without ending a chunked body, so the response contains a Content-Length.
func (x *exchange) exited(req *mcp.Request) {
	x.ctx.handler.opts.Logger.Error("mcphttp: the handler has ended its goroutine", "method", req.Method)
	err := &mcp.Error{Code: mcp.CodeInternalError, Message: "internal error"}
	body := jsonrpc.Append(nil, &jsonrpc.Message{ID: req.ID, Error: err})
	lastResponse(x.w, x.r.ProtoMajor == 1, len(body))
	x.write(body, err)
	_ = http.NewResponseController(x.w).Flush() // fails only without a connection
}

// lastResponse sets the headers of a response after which net/http closes an HTTP/1 connection. On
// HTTP/2 it resets the stream, and the connection serves other requests.
func lastResponse(w http.ResponseWriter, isHTTP1 bool, length int) {
	w.Header().Set("Content-Length", strconv.Itoa(length))
	if isHTTP1 {
		w.Header().Set("Connection", "close")
	}
}

// write sends the response. err is the error in it, nil if it is a result.
func (x *exchange) write(body []byte, err *mcp.Error) {
	stream := x.close()
	switch h := x.ctx.handler; {
	case x.ctx.Err() != nil && errors.Is(context.Cause(&x.ctx), mcp.ErrDisconnected): // the client is gone
		if stream != nil {
			stream.close()
		}
	case stream != nil && stream.finish(sse.Event{Data: x.response.joined(body)}):
	case err == nil:
		h.writeResponse(x.w, x.caller, http.StatusOK, x.response, body)
	case x.ctx.challenged != nil:
		h.writeChallenge(x.w, x.ctx.challenged, body)
	default:
		if after := retryAfter(err); after != "" {
			x.w.Header().Set("Retry-After", after)
		}
		status := http.StatusOK
		if !x.ctx.isKnown {
			status = statusOf(err)
		}
		h.writeResponse(x.w, x.caller, status, nil, body)
	}
}

// open returns the stream of the response, which it creates if necessary.
func (x *exchange) open() (*eventStream, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answered {
		return nil, mcp.ErrDisconnected
	}
	if x.stream == nil {
		x.stream = newEventStream(x.w, x.ctx.handler, x.caller)
		x.stream.call = &x.ctx
	}
	return x.stream, nil
}

// close returns the stream of the response, or nil, and prevents that another is created.
func (x *exchange) close() *eventStream {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answered = true
	return x.stream
}

// notify sends a notification before the response. It is the Notify of the request.
func (x *exchange) notify(ctx context.Context, method string, params stdjson.RawMessage) error {
	for _, c := range [...]context.Context{ctx, &x.ctx} {
		if c.Err() == nil {
			continue
		}
		// During a shutdown the client is still connected, and the last notifications are sent.
		if cause := context.Cause(c); !errors.Is(cause, mcp.ErrShutdown) {
			return cause
		}
	}
	stream, err := x.open()
	if err != nil {
		return err
	}
	buf := encodeNotification(method, params)
	defer buf.free()
	return stream.send(sse.Event{Data: buf.bytes})
}
