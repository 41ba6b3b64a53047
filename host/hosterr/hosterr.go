// Package hosterr declares the error of a request that did not reach its server, or got no valid
// response.
package hosterr

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Code is the reason why a request did not reach its server, or got no valid response.
type Code string

// Codes of an [Error].
const (
	// CodeUnavailable: the server cannot be reached, or its process exited.
	CodeUnavailable Code = "unavailable"
	// CodeStarting: the server did not become ready in time.
	CodeStarting Code = "starting"
	// CodeCrashLoop: the process exits soon after each start.
	CodeCrashLoop Code = "crashloop"
	// CodeTimeout: the server did not respond in time.
	CodeTimeout Code = "timeout"
	// CodeAuthRequired: the server requires authorization.
	CodeAuthRequired Code = "auth_required"
	// CodeDenied: the policy or the user refused the request.
	CodeDenied Code = "denied"
	// CodeUnrecorded: the request was not sent, because host.Options.Recorder could not store it.
	CodeUnrecorded Code = "unrecorded"
	// CodeApprovalNeeded: the request requires an approval, and no channel can ask for it.
	CodeApprovalNeeded Code = "approval_needed"
	// CodeApprovalExpired: the request was not approved in time.
	CodeApprovalExpired Code = "approval_expired"
	// CodeLimited: a limit of the host is reached.
	CodeLimited Code = "limited"
	// CodeTooLarge: the arguments or the result are larger than allowed.
	CodeTooLarge Code = "too_large"
	// CodeCallLost: the call waited for an answer of the caller, and its connection ended meanwhile.
	CodeCallLost Code = "call_lost"
	// CodeInvalidResult: the response of the server violates the protocol.
	CodeInvalidResult Code = "invalid_result"
	// CodeQuarantined: the definition is not approved; see pin.Pin.
	CodeQuarantined Code = "quarantined"
	// CodeConfigError: the entry of the server in the configuration is invalid.
	CodeConfigError Code = "config_error"
)

// An Error reports that a request did not get a valid response of its server. The error of a response is
// an [*mcp.Error] instead.
type Error struct {
	Code Code
	// Server is the name of the server in the configuration.
	Server string
	// MayHaveRun reports whether the server may have executed the request.
	MayHaveRun bool
	// RetryAfter is the time after which the request is worth sending again; zero means unknown.
	RetryAfter time.Duration
	// Err is the reason.
	Err error
}

// Error returns the server, the reason, whether the request may have run, and the code. The page of the
// code in docs/errors explains what to do.
func (e *Error) Error() string { return e.describe(fmt.Sprint(e.Err)) }

func (e *Error) describe(reason string) string {
	text := fmt.Sprintf("server %q: %s", e.Server, reason)
	ran := "did not run"
	if e.MayHaveRun {
		ran = "may have run"
	}
	return fmt.Sprintf("%s; the request %s (code %s)", text, ran, e.Code)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error whose reason every caller may see.
func Errorf(code Code, server, format string, args ...any) *Error {
	return &Error{Code: code, Server: server, Err: Public{Err: fmt.Errorf(format, args...)}}
}

// A Public is a reason that every caller may see: its text must not contain addresses, paths and command lines of
// the machine, or parts of responses.
type Public struct{ Err error }

// Error returns the text of the reason.
func (p Public) Error() string { return p.Err.Error() }

// Unwrap returns the reason.
func (p Public) Unwrap() error { return p.Err }

// metaError is the member of `_meta` that contains the error.
const metaError = "dev.patchbay/error"

// detail returns the error as JSON, with the ID of its incident unless incident is empty.
func (e *Error) detail(incident string) json.RawMessage {
	b := jsonscan.AppendQuote([]byte(`{"code":`), string(e.Code))
	b = jsonscan.AppendQuote(append(b, `,"server":`...), e.Server)
	b = fmt.Appendf(b, `,"mayHaveRun":%t`, e.MayHaveRun)
	if e.RetryAfter > 0 {
		ms := math.Ceil(float64(e.RetryAfter) / float64(time.Millisecond)) // never before the limit permits it
		b = fmt.Appendf(b, `,"retryAfterMs":%.0f`, ms)
	}
	if incident != "" {
		b = jsonscan.AppendQuote(append(b, `,"id":`...), incident)
	}
	return append(b, '}')
}

// codeServer is the JSON-RPC code of an Error on the wire: a server error that MCP leaves to
// implementations.
const codeServer = -32000

// Response returns the response to a request that failed: a tool call fails with a result, so that the
// model sees the reason and clients keep their session; other methods fail with a JSON-RPC error. reason
// replaces the reason of the error, and incident identifies it in the log; it may be empty.
func Response(method string, e *Error, reason, incident string) (mcp.Result, error) {
	text, detail := e.describe(reason), e.detail(incident)
	if method != "tools/call" {
		fault := mcp.Errorf(codeServer, "%s", text)
		fault.Data = detail
		return nil, fault
	}
	b := jsonscan.AppendQuote([]byte(`{"resultType":"complete","content":[{"type":"text","text":`), text)
	b = append(append(b, `}],"isError":true,"_meta":{"`+metaError+`":`...), detail...)
	return mcp.RawResult(append(b, '}', '}')), nil
}
