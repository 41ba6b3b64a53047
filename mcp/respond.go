package mcp

import (
	"context"
	"errors"
	"log/slog"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// typicalSize is the capacity of a new buffer for params or a result: more than most of them need.
const typicalSize = 256

// Driver returns the interface to h for transports, and for handlers that report to an observer.
func Driver(h Handler) driver.Server[*Request, Result, Observer] { return &serverDriver{h} }

type serverDriver struct{ handler Handler }

// Respond implements [driver.Server].
func (d *serverDriver) Respond(ctx context.Context, req *Request) *jsonrpc.Message {
	return respond(ctx, d.handler, req)
}

// AppendResponse implements [driver.Server].
func (d *serverDriver) AppendResponse(dst []byte, ctx context.Context, req *Request) ([]byte, *Error) {
	start := len(dst)
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, req.ID.String()...)
	dst = append(dst, `,"result":`...)
	out, err := appendResult(dst, ctx, d.handler, req)
	if err != nil {
		return appendError(dst[:start], req.ID, err), err
	}
	return append(out, '}'), nil
}

// AppendResult implements [driver.Server].
func (d *serverDriver) AppendResult(dst []byte, ctx context.Context, req *Request) ([]byte, *Error) {
	return appendResult(dst, ctx, d.handler, req)
}

// Observe implements [driver.Server].
func (d *serverDriver) Observe(
	ctx context.Context, req *Request, target func(req *Request, err error) string,
) (Result, error) {
	if o := observerOf(d.handler); o != nil {
		return observe(ctx, o, d.handler, req, target)
	}
	return d.handler.ServeMCP(ctx, req)
}

// Observer implements [driver.Server].
func (d *serverDriver) Observer() Observer { return observerOf(d.handler) }

// Revisions implements [driver.Server].
func (d *serverDriver) Revisions() (all []string) {
	for _, r := range d.config().Revisions {
		all = append(all, r.String())
	}
	return all
}

// RootsChanged implements [driver.Server].
func (d *serverDriver) RootsChanged() func(ctx context.Context) { return d.config().RootsChanged }

func (d *serverDriver) config() *legacy.Config {
	c := &legacy.Config{Revisions: wire.Revisions()}
	configure(c, d.handler)
	return c
}

// Driver returns the part of the request that transports and forwarders set and read.
func (r *Request) Driver() *driver.Request { return &r.env }

// respond calls the handler, and returns the response message.
func respond(ctx context.Context, h Handler, req *Request) *jsonrpc.Message {
	result, err := appendResult(make([]byte, 0, typicalSize), ctx, h, req)
	if err != nil {
		return &jsonrpc.Message{ID: req.ID, Error: err}
	}
	return &jsonrpc.Message{ID: req.ID, Result: result}
}

// appendError is not inlined: a subscription waits in a call of AppendResponse, and inlining the
// encoder there doubles the stack of each idle stream to 16 KiB.
//
//go:noinline
func appendError(dst []byte, id jsonrpc.ID, err *Error) []byte {
	return jsonrpc.Append(dst, &jsonrpc.Message{ID: id, Error: err})
}

// appendResult is respond for transports that make the response message: it appends the result to
// dst, or returns the error of the response.
//
// If h is a [*Server] without middleware or a handler that uses a [Broadcaster], a subscription is
// served after h returned, which frees the stack of the call.
func appendResult(dst []byte, ctx context.Context, h Handler, req *Request) ([]byte, *Error) {
	if req.env.Revision == 0 {
		return nil, wire.UnsupportedVersion(req.env.VersionText, (&serverDriver{h}).config().Revisions)
	}
	var res Result
	var err error
	req.plain = plainServer(h)
	switch {
	case req.Method == wire.MethodSubscriptionsListen && req.plain != nil:
		res, err = listenThenServe(ctx, req, h)
	case serverOf(h) != nil: // it makes the context of its calls itself
		res, err = contain(ctx, req.logger(), req, h)
	default:
		c := newCall(ctx, nil, req)
		if req.Method == wire.MethodSubscriptionsListen && passesListen(h) {
			res, err = listenThenServe(c, req, h)
		} else {
			res, err = contain(c, req.logger(), req, h)
		}
		c.progress.finish(c)
	}
	req.plain = nil
	return appendOutcome(dst, ctx, req, res, err)
}

// appendOutcome is the part of appendResult after the handler returned. It must not be inlined, for the
// same reason as appendError.
//
//go:noinline
func appendOutcome(dst []byte, ctx context.Context, req *Request, res Result, err error) ([]byte, *Error) {
	if err != nil {
		return nil, containError(ctx, req, err)
	}
	dst, err = appendContained(dst, ctx, req, res)
	switch {
	case err == nil:
		return dst, nil
	case asError(err) != nil:
		return nil, asError(err)
	}
	incident, public := newIncident()
	req.logger().ErrorContext(ctx, "mcp: cannot encode result",
		"method", req.Method, "incident", incident, "error", err)
	return nil, public
}

// appendContained encodes a result and recovers from panics of its methods.
func appendContained(dst []byte, ctx context.Context, req *Request, res Result) (out []byte, err error) {
	defer recovered(ctx, req.logger(), req.Method, &err)
	form, isList := req.form(), isListResult(res)
	req.env.Projected = form != 0 && isList
	var carrier wire.Splicer
	if req.env.Projected || req.has(wire.ResultType) { // otherwise package legacy reads the result
		carrier, _ = req.env.Carrier.(wire.Splicer)
	}
	if raw, ok := res.(RawResult); ok && req.isChecked(raw) {
		return appendRaw(dst, raw, carrier), nil
	}
	return encodeResult(dst, res, req.server, form, carrier)
}

// contain calls h and turns a panic into an error, so that it fails only this request.
func contain(ctx context.Context, log *slog.Logger, req *Request, h Handler) (res Result, err error) {
	defer recovered(ctx, log, req.Method, &err)
	res, err = h.ServeMCP(ctx, req)
	if err == nil && res == nil {
		return nil, errors.New("the handler returned neither result nor error")
	}
	return res, err
}

// containError is publicError for an error whose methods may panic.
func containError(ctx context.Context, req *Request, err error) (public *Error) {
	var panicked error
	defer func() {
		if panicked != nil {
			public = asError(panicked)
		}
	}()
	defer recovered(ctx, req.logger(), req.Method, &panicked)
	return publicError(ctx, req.logger(), req, err)
}

// publicError returns the error that the peer may see, and logs err if they differ.
func publicError(ctx context.Context, log *slog.Logger, req *Request, err error) *Error {
	if e := asError(err); e != nil {
		return req.env.Revision.PermittedError(req.Method, e)
	}
	if cancelled(ctx, err) || errors.Is(err, ErrClosed) {
		return &Error{Code: CodeInternalError, Message: "request cancelled"}
	}
	incident, public := newIncident()
	log.ErrorContext(ctx, "mcp: request failed",
		"method", req.Method, "id", req.ID, "incident", incident, "error", err)
	return public
}
