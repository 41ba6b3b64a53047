package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// An ErrorCode is the reason why a request did not reach its server, or has no valid response.
type ErrorCode string

// Codes of an [Error].
const (
	// CodeUnavailable: the server cannot be reached, or its process has exited.
	CodeUnavailable ErrorCode = "unavailable"
	// CodeStarting: the server did not become ready in time.
	CodeStarting ErrorCode = "starting"
	// CodeCrashLoop: the process exits soon after each start.
	CodeCrashLoop ErrorCode = "crashloop"
	// CodeTimeout: the server did not respond in time.
	CodeTimeout ErrorCode = "timeout"
	// CodeAuthRequired: the server requires authorization.
	CodeAuthRequired ErrorCode = "auth_required"
	// CodeDenied: the policy or the user refused the request.
	CodeDenied ErrorCode = "denied"
	// CodeUnrecorded: the request was not sent, because the Recorder could not store it.
	CodeUnrecorded ErrorCode = "unrecorded"
	// CodeApprovalNeeded: the request needs an approval, and no channel can ask for it.
	CodeApprovalNeeded ErrorCode = "approval_needed"
	// CodeApprovalExpired: the request was not approved in time.
	CodeApprovalExpired ErrorCode = "approval_expired"
	// CodeLimited: a limit of the host is reached.
	CodeLimited ErrorCode = "limited"
	// CodeTooLarge: the arguments or the result are larger than allowed.
	CodeTooLarge ErrorCode = "too_large"
	// CodeCallLost: the call waited for an answer of the caller, and the instance that it ran on has
	// ended since.
	CodeCallLost ErrorCode = "call_lost"
	// CodeInvalidResult: the response of the server violates the protocol.
	CodeInvalidResult ErrorCode = "invalid_result"
	// CodeQuarantined: the definition is not approved; see [Pin].
	CodeQuarantined ErrorCode = "quarantined"
	// CodeConfigError: the entry of the server in the configuration is invalid.
	CodeConfigError ErrorCode = "config_error"
)

// An Error reports that a request has no valid response of its server. Errors that a server responded
// with are an [*mcp.Error] instead.
type Error struct {
	Code ErrorCode
	// Server is the name of the server in the configuration.
	Server string
	// MayHaveRun reports whether the server may have executed the request.
	MayHaveRun bool
	// RetryAfter is when the request is worth sending again; zero if that is unknown.
	RetryAfter time.Duration
	// Err is the reason.
	Err error
}

// Error returns the server, the reason, whether the request may have run, and the code, whose page in
// docs/errors says what to do.
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

// unsent returns an error of what comes before a request: the request has not run.
func unsent(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	before := *e
	before.MayHaveRun = false
	return &before
}

// begun returns the error of a request that a server has executed in part: sending it again from the
// start would repeat what the server did before its first question.
func begun(err error) error {
	if unbegun, ok := errors.AsType[unbegunError](err); ok {
		return unbegun.error
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || e.MayHaveRun {
		return err
	}
	ran := *e // requests that wait for one connection share the error
	ran.MayHaveRun = true
	return &ran
}

// metaError is the member of `_meta` with the members of an Error.
const metaError = "dev.patchbay/error"

// detail returns the members of the error as JSON, with the id of its incident if there is one.
func (e *Error) detail(incident string) json.RawMessage {
	b := jsonscan.AppendQuote([]byte(`{"code":`), string(e.Code))
	b = jsonscan.AppendQuote(append(b, `,"server":`...), e.Server)
	b = fmt.Appendf(b, `,"mayHaveRun":%t`, e.MayHaveRun)
	if e.RetryAfter > 0 {
		b = fmt.Appendf(b, `,"retryAfterMs":%d`, e.RetryAfter.Milliseconds())
	}
	if incident != "" {
		b = jsonscan.AppendQuote(append(b, `,"id":`...), incident)
	}
	return append(b, '}')
}

// codeServer is the JSON-RPC code of an Error on the wire: a server error that MCP leaves to
// implementations.
const codeServer = -32000

// response returns what a client receives for an error. A tool call that failed is a result that the
// model can see: clients end sessions for some errors.
func (v *View) response(ctx context.Context, method string, err error) (mcp.Result, error) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return nil, err
	}
	reason, incident := v.reasonFor(ctx, method, e)
	return response(method, e, reason, incident)
}

// response returns the response to a request that failed: a tool call fails with a result, so that the
// model sees the reason and clients keep their session; other methods fail with a JSON-RPC error. reason
// replaces the reason of the error, and incident identifies it in the log; it may be empty.
func response(method string, e *Error, reason, incident string) (mcp.Result, error) {
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
