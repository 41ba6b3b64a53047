package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// An Error is a protocol error. A handler returns an *Error to respond with a JSON-RPC error: its
// code, message and data are sent to the client. Every other error is either a tool error, whose
// text the model sees, or is logged and sent as "internal error". A client receives the errors of
// servers.
type Error = jsonrpc.Error

// Codes of protocol errors. Package [driver] contains the codes that the SDK itself sends and handles.
//
// Spec: basic (2026-07-28), Error Codes; JSON-RPC 2.0, section 5.1.
const (
	CodeInvalidRequest = jsonrpc.CodeInvalidRequest // JSON, but not a message
	CodeMethodNotFound = wire.CodeMethodNotFound    // no such method, or capability not offered
	CodeInvalidParams  = wire.CodeInvalidParams     // the params are wrong for the method
	CodeInternalError  = wire.CodeInternalError     // the server failed; the details are in its log
	CodeBusy           = wire.CodeBusy              // too many requests; see data.retryAfterMs
)

// Errors for [errors.Is].
var (
	// ErrClosed is wrapped by every error for a connection or client that is closed.
	ErrClosed = peer.ErrClosed
	// ErrCancelled is the cause of a context whose request the client cancelled.
	ErrCancelled = errors.New("mcp: cancelled")
	// ErrDisconnected is the cause of a context whose client disconnected before the response.
	ErrDisconnected = peer.ErrDisconnected
	// ErrTimeout is wrapped by the error of a client's request without a response in time. It wraps
	// context.DeadlineExceeded.
	ErrTimeout = fmt.Errorf("mcp: no response in time: %w", context.DeadlineExceeded)
	// ErrInvalidResult is wrapped by the error of a client's request whose result violates the
	// protocol or the output schema of the tool.
	ErrInvalidResult = errors.New("the result is invalid")
	// ErrShutdown is the cause of a context whose server is shutting down.
	ErrShutdown = fmt.Errorf("%w: server is shutting down", ErrClosed)
)

// Errorf returns a protocol error with a formatted message, which the client sees. It is not
// inlined, because it is called in many places, all off the fast path.
//
//go:noinline
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// NotFound returns the error for a resource that does not exist, with its URI in data.uri.
//
// Spec: server/resources (2026-07-28), Error Handling.
func NotFound(uri string) *Error {
	data := append(jsonscan.AppendQuote([]byte(`{"uri":`), uri), '}')
	return &Error{Code: CodeInvalidParams, Message: "resource not found", Data: data}
}

var errInternal = &Error{Code: CodeInternalError, Message: "internal error"}

func methodNotFound(method string) *Error {
	const maxLen = 128 // the name comes from the peer
	if len(method) > maxLen {
		method = method[:maxLen]
	}
	return Errorf(CodeMethodNotFound, "method not found: %q", method)
}

// ofHandler marks an error of a feature's handler with the code of an unknown method, because the
// method itself is known.
func ofHandler(err error) error {
	if e := asError(err); e != nil && e.Code == CodeMethodNotFound {
		return &wire.HandlerError{Err: err}
	}
	return err
}

func asError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// cancelled reports whether err is the end of the context.
func cancelled(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// recovered is deferred around functions of the user. It turns a panic into an error with an
// incident id, which is sent to the peer; the value and the stack are logged with the same id.
func recovered(ctx context.Context, log *slog.Logger, what string, err *error) {
	value := recover()
	if value == nil {
		return
	}
	incident, public := newIncident()
	log.ErrorContext(ctx, "mcp: panic recovered",
		"in", what, "incident", incident, "value", value, "stack", string(debug.Stack()))
	*err = public
}

// newIncident returns a random id for the log, and the error with it that the peer sees.
func newIncident() (id string, public *Error) {
	id = rand.Text()[:16]
	data := append(jsonscan.AppendQuote([]byte(`{"incident":`), id), '}')
	return id, &Error{Code: CodeInternalError, Message: "internal error", Data: data}
}
