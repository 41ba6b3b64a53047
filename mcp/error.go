package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// An Error is a protocol error: its code, message and data cross the wire. Return one from a handler to answer a
// request with a JSON-RPC error; everything in it is shown to the peer. Every other error is either a tool failure,
// which the model may read, or is logged and sent as "internal error".
type Error = jsonrpc.Error

// Codes of protocol errors. Spec: basic (2026-07-28), Error Codes; JSON-RPC 2.0, section 5.1.
const (
	CodeParseError         = jsonrpc.CodeParseError      // the bytes are not JSON
	CodeInvalidRequest     = jsonrpc.CodeInvalidRequest  // JSON, but not a message
	CodeMethodNotFound     = jsonrpc.CodeMethodNotFound  // no such method, or its capability is not offered
	CodeInvalidParams      = jsonrpc.CodeInvalidParams   // the params are wrong for the method
	CodeInternalError      = jsonrpc.CodeInternalError   // the server failed; the details are in its log
	CodeHeaderMismatch     = wire.CodeHeaderMismatch     // an HTTP header contradicts the body
	CodeMissingCapability  = wire.CodeMissingCapability  // the client did not declare what the request needs
	CodeUnsupportedVersion = wire.CodeUnsupportedVersion // the revision is not spoken here
	CodeBusy               = -32000                      // too many requests in flight; data.retryAfterMs says when to try again
)

// Ends and refusals that callers test for with [errors.Is].
var (
	// ErrClosed is what every end of a connection satisfies.
	ErrClosed = peer.ErrClosed
	// ErrCancelled is the cause of a context whose request the peer cancelled, and the error of an [Ask] whose
	// question the user dismissed.
	ErrCancelled = errors.New("mcp: cancelled")
	// ErrDisconnected is the cause of a context whose peer went away before the answer.
	ErrDisconnected = peer.ErrDisconnected
	// ErrTimeout is within the error of a client's request that was not answered in time. It is a
	// context.DeadlineExceeded.
	ErrTimeout = fmt.Errorf("mcp: no answer in time: %w", context.DeadlineExceeded)
	// ErrInvalidResult is within the error of a client's request whose result breaks the protocol, or the tool's own
	// output schema.
	ErrInvalidResult = errors.New("the result is invalid")
	// ErrShutdown is the cause of a context whose server is shutting down.
	ErrShutdown = fmt.Errorf("%w: server is shutting down", ErrClosed)
)

// Errorf returns a protocol error with a formatted message, which the peer will see.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// NotFound returns the error for a resource that does not exist; data.uri names it.
//
// Spec: server/resources (2026-07-28), Error Handling.
func NotFound(uri string) *Error {
	data := append(jsonscan.AppendQuote([]byte(`{"uri":`), uri), '}')
	return &Error{Code: CodeInvalidParams, Message: "resource not found", Data: data}
}

// MissingCapability returns the error for a request that needs a capability its client did not declare; required holds
// the capabilities in the shape of the client's own declaration, such as {"sampling":{}}.
//
// Spec: basic (2026-07-28), Missing Required Client Capability.
func MissingCapability(required json.RawMessage) *Error {
	data := append(append([]byte(`{"requiredCapabilities":`), required...), '}')
	return &Error{Code: CodeMissingCapability, Message: "missing required client capability", Data: data}
}

// errInternal is what a peer sees of a failure that is not meant for it.
var errInternal = &Error{Code: CodeInternalError, Message: "internal error"}

func methodNotFound(method string) *Error {
	const shown = 128 // a method name is the peer's text: enough to recognise, not enough to flood a log
	if len(method) > shown {
		method = method[:shown]
	}
	return Errorf(CodeMethodNotFound, "method not found: %q", method)
}

// asError returns the protocol error within err, or nil.
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

// cancelled reports whether err is the end of a context rather than a failure of its own.
func cancelled(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}
