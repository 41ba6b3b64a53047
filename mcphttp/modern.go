package mcphttp

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// serveModern serves a message that needs nothing but itself, on the goroutine that net/http gave it.
func (h *Handler) serveModern(w http.ResponseWriter, r *http.Request, head *head, msg *jsonrpc.Message) {
	switch msg.Kind() {
	case jsonrpc.Request:
		if no := h.serveRequest(w, r, head, msg); no != nil {
			h.refuse(w, msg.ID, no)
		}
	case jsonrpc.Notification:
		if no := checkNotification(head, msg); no != nil {
			h.refuse(w, jsonrpc.ID{}, no)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	default:
		h.refuse(w, jsonrpc.ID{}, refuse(http.StatusBadRequest, "the body must be one request or notification"))
	}
}

// checkNotification returns the reason not to accept a notification. The protocol has none that clients send over HTTP,
// so nothing more comes of it.
//
// Spec: basic/transports/streamable-http#sending-messages (2026-07-28)
func checkNotification(head *head, msg *jsonrpc.Message) *refusal {
	if version := head.version; version.sent {
		if rev, known := wire.ParseRevision(version.value); !known || !rev.Modern() {
			return &refusal{http.StatusBadRequest, wire.UnsupportedVersion(version.value)}
		}
	}
	if head.method.sent && head.method.value != msg.Method {
		return &refusal{http.StatusBadRequest, mismatch("header " + headerMethod + " differs from the method in the body")}
	}
	return nil
}

// openRequest makes a request of a message, or says what is wrong with it. The order is that of what has to be known:
// what the request says of itself, whether the headers say the same, and whether that version is spoken here.
func openRequest(head *head, msg *jsonrpc.Message) (*mcp.Request, *refusal) {
	req, err := mcp.NewRequest(msg)
	if err != nil {
		var e *mcp.Error
		if !errors.As(err, &e) {
			e = &mcp.Error{Code: mcp.CodeInvalidParams, Message: "invalid params"}
		}
		return nil, &refusal{http.StatusBadRequest, e}
	}
	if err := checkMirrors(head, req); err != nil {
		return nil, &refusal{http.StatusBadRequest, err}
	}
	if rev, known := wire.ParseRevision(req.Revision()); !known || !rev.Modern() {
		return nil, &refusal{http.StatusBadRequest, wire.UnsupportedVersion(req.Revision())}
	}
	return req, nil
}

// serveRequest answers one request.
func (h *Handler) serveRequest(w http.ResponseWriter, r *http.Request, head *head, msg *jsonrpc.Message) *refusal {
	req, no := openRequest(head, msg)
	if no != nil {
		return no
	}
	if !h.life.isOpen() {
		return refuseBusy(http.StatusServiceUnavailable, "server is shutting down")
	}
	req.Principal = mcp.PrincipalFrom(r.Context())
	req.Header = r.Header
	endsAt := over
	if isListen(req) {
		principal := req.Principal.Key()
		if no := h.listens.take(principal); no != nil {
			return no
		}
		defer h.listens.give(principal)
		endsAt = draining
	}
	x := &exchange{w: w, ctx: callContext{Context: r.Context(), handler: h, endsAt: endsAt}}
	defer x.ctx.end()
	if err := checkParams(&x.ctx, h.core, head, req); err != nil {
		return &refusal{http.StatusBadRequest, err}
	}
	x.serve(req)
	return nil
}

func isListen(req *mcp.Request) bool { return req.Method == wire.MethodSubscriptionsListen }

// An exchange is one modern request on its way to its answer. The answer is JSON, unless something is sent before it:
// then it is the last event of a stream.
type exchange struct {
	w          http.ResponseWriter
	ctx        callContext
	challenged *challenge // what the answer says if it is an error; nil for nothing

	mu       sync.Mutex   // guards the fields below
	stream   *eventStream // nil until something is sent
	answered bool         // nothing can be sent any more
}

// ServeMCP has the request answered, and notes what HTTP has to say about the error.
func (x *exchange) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	res, err := x.ctx.handler.core.ServeMCP(ctx, req)
	if err != nil {
		x.challenged = challengeOf(err)
	}
	return res, err
}

// Unwrap lets a subscription go on when ServeMCP has returned; see [mcp.AppendResult].
func (x *exchange) Unwrap(wire.ForTransports) mcp.Handler { return x.ctx.handler.core }

func (x *exchange) serve(req *mcp.Request) {
	req.Notify = x.notify
	sizes := &x.ctx.handler.sizes
	var answer *buffer
	if isListen(req) { // one that waits for hours must not keep a buffer for its last word
		answer = new(buffer)
	} else {
		answer = sizes.newBuffer()
	}
	defer answer.free()
	body, err := mcpFuncs.AppendResponse(answer.bytes, &x.ctx, x, req)
	answer.bytes = body
	sizes.learn(len(body))
	x.write(body, err)
}

// write sends the answer, in which err stands if it is an error. It has a frame of its own, since
// serve waits for as long as a handler takes.
func (x *exchange) write(body []byte, err *mcp.Error) {
	stream := x.close()
	switch h := x.ctx.handler; {
	case x.ctx.isDisconnected(): // nothing more is said about a cancelled request
		if stream != nil {
			stream.close()
		}
	case stream != nil && stream.finish(sse.Event{Data: body}):
	case err == nil:
		h.reply(x.w, http.StatusOK, body)
	case x.challenged != nil:
		h.challenge(x.w, x.challenged, body)
	default:
		if after := retryAfter(err); after != "" {
			x.w.Header().Set("Retry-After", after)
		}
		h.reply(x.w, statusOf(err), body)
	}
}

// open returns the stream of the answer, and makes the answer one if need be.
func (x *exchange) open() (*eventStream, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answered {
		return nil, mcp.ErrDisconnected
	}
	if x.stream == nil {
		x.stream = newEventStream(x.w, x.ctx.handler)
		x.stream.call = &x.ctx
	}
	return x.stream, nil
}

// close returns the stream of the answer, nil if it is none, and keeps it at that.
func (x *exchange) close() *eventStream {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answered = true
	return x.stream
}

// notify sends a notification ahead of the answer. It is the Notify of the request.
func (x *exchange) notify(ctx context.Context, method string, params stdjson.RawMessage) error {
	for _, c := range [...]context.Context{ctx, &x.ctx} {
		if c.Err() == nil {
			continue
		}
		// At a shutdown the client is still there, and what is said last is still said.
		if cause := context.Cause(c); !errors.Is(cause, mcp.ErrShutdown) {
			return cause
		}
	}
	stream, err := x.open()
	if err != nil {
		return err
	}
	if err := stream.prepareNotification(method, params); err != nil {
		return err
	}
	return stream.open()
}
