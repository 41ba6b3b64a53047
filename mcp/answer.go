package mcp

import (
	"context"
	"errors"
	"log/slog"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Answer serves one request with h and gives the response to send. It is for transports: whatever happens in h, the
// peer gets one answer that says no more than it should. A panic or an error that is not an [*Error] is logged in full
// and answered "internal error".
func Answer(ctx context.Context, h Handler, req *Request) *jsonrpc.Message {
	const room = 256 // for small results, which would grow to it in steps
	body, err := AppendResult(make([]byte, 0, room), ctx, h, req)
	if err != nil {
		return jsonrpc.NewErrorResponse(req.ID, err)
	}
	return jsonrpc.NewResponse(req.ID, body)
}

// AppendAnswer is [Answer] for transports that write bytes: it appends the whole response message to dst. The error is
// the one within the response, if the response is an error.
func AppendAnswer(dst []byte, ctx context.Context, h Handler, req *Request) ([]byte, *Error) {
	mark := len(dst)
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, req.ID.String()...)
	dst = append(dst, `,"result":`...)
	out, err := AppendResult(dst, ctx, h, req)
	if err != nil {
		return appendErrorAnswer(dst[:mark], req.ID, err), err
	}
	return append(out, '}'), nil
}

// appendErrorAnswer is apart so that a call that goes well keeps no room for a message on its stack.
//
//go:noinline
func appendErrorAnswer(dst []byte, id jsonrpc.ID, err *Error) []byte {
	return jsonrpc.Append(dst, jsonrpc.NewErrorResponse(id, err))
}

// AppendResult is [Answer] for transports that make the response themselves: it appends the result to dst, or gives the
// error of the response.
//
// A subscription is served when h has returned, which saves the stack of the call, if h is a [*Server] without middleware.
func AppendResult(dst []byte, ctx context.Context, h Handler, req *Request) ([]byte, *Error) {
	if req.env.Revision == 0 {
		return nil, wire.UnsupportedVersion(req.env.VersionText)
	}
	var res Result
	var err error
	if req.Method == wire.MethodSubscriptionsListen && passesOn(h) {
		res, err = listenApart(ctx, req, h)
	} else {
		res, err = contain(ctx, req.logger(), req, h)
	}
	if err != nil {
		return nil, publicError(ctx, req.logger(), req, err)
	}
	dst, err = appendContained(dst, ctx, req, res)
	if err == nil {
		return dst, nil
	}
	return nil, notEncoded(ctx, req, err)
}

// notEncoded returns what the peer may see of err, which is that of a result's encoder.
//
//go:noinline
func notEncoded(ctx context.Context, req *Request, err error) *Error {
	if e := asError(err); e != nil {
		return e
	}
	req.logger().ErrorContext(ctx, "mcp: result cannot be encoded", "method", req.Method, "error", err)
	return errInternal
}

// appendContained appends a result whose methods, and those of the values within it, may be the user's.
func appendContained(dst []byte, ctx context.Context, req *Request, res Result) (out []byte, err error) {
	defer recovered(ctx, req.logger(), req.Method, &err)
	return appendResult(dst, res, req.frame())
}

// contain calls h and turns a panic into an error: one handler's mistake is one failed request.
func contain(ctx context.Context, log *slog.Logger, req *Request, h Handler) (res Result, err error) {
	defer recovered(ctx, log, req.Method, &err)
	res, err = h.ServeMCP(ctx, req)
	if err == nil && res == nil {
		return nil, nothingReturned(ctx, log, req)
	}
	return res, err
}

// nothingReturned is apart, as all that is seldom: a call keeps no room for it on its stack while its handler works.
//
//go:noinline
func nothingReturned(ctx context.Context, log *slog.Logger, req *Request) error {
	log.ErrorContext(ctx, "mcp: handler returned neither result nor error", "method", req.Method)
	return errInternal
}

// publicError returns what the peer may see of err, and logs the rest.
func publicError(ctx context.Context, log *slog.Logger, req *Request, err error) *Error {
	if e := asError(err); e != nil {
		return e
	}
	if cancelled(ctx, err) || errors.Is(err, ErrClosed) {
		return &Error{Code: CodeInternalError, Message: "request cancelled"}
	}
	log.ErrorContext(ctx, "mcp: request failed", "method", req.Method, "id", req.ID, "error", err)
	return errInternal
}
