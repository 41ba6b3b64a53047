// Package exit contains the exit codes of patchbay and the errors that carry them.
package exit

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// ErrShown is an error whose message the command already printed.
var ErrShown = errors.New("shown")

// Exit codes; see `patchbay help exit-codes`.
const (
	OK          = 0
	Failure     = 1
	Usage       = 2
	Unreachable = 3
	Auth        = 4
	Tool        = 5
	NotFound    = 6
	Timeout     = 7
	Protocol    = 8
	Denied      = 9
	Incomplete  = 10
	Interrupted = 130
)

// Kinds are the kinds of errors in JSON.
var Kinds = map[int]string{
	Failure: "failure", Usage: "usage", Unreachable: "unreachable", Auth: "auth_required",
	Tool: "tool_failed", NotFound: "not_found", Timeout: "timeout", Protocol: "protocol_violation",
	Denied: "denied", Incomplete: "incomplete", Interrupted: "interrupted",
}

// An Error contains an error and its exit code.
type Error struct {
	Code int
	Err  error
}

// Error returns the text of Err.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// UsageError returns err with the exit code of a usage error.
func UsageError(err error) error { return &Error{Usage, err} }

// NotFoundError returns err with the exit code for an item that the server does not offer.
func NotFoundError(err error) error { return &Error{NotFound, err} }

// Code returns the exit code for an error. If ctx is done, the user interrupted the command.
func Code(ctx context.Context, err error) int {
	var own *Error
	var status interface{ HTTPStatus() int }
	var network *net.OpError
	var timeout interface{ Timeout() bool }
	var rpc *mcp.Error
	var malformed *jsonrpc.DecodeError
	var transport *mcp.TransportError
	switch {
	case err == nil:
		return OK
	case errors.As(err, &own) && (ctx.Err() == nil || !errors.Is(err, context.Cause(ctx))):
		return own.Code
	case ctx.Err() != nil:
		return Interrupted
	case errors.As(err, &network) && network.Op == "dial": // no connection could be made
		return Unreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, oauthclient.ErrLoginTimeout),
		errors.As(err, &timeout) && timeout.Timeout():
		return Timeout
	case errors.As(err, &status):
		return exitOfStatus(status.HTTPStatus())
	case errors.As(err, &malformed), errors.Is(err, mcp.ErrInvalidResult), errors.Is(err, mcp.ErrNoCommonRevision),
		errors.Is(err, mcphttp.ErrTooLarge):
		return Protocol
	case errors.As(err, &rpc):
		return exitOfCode(rpc)
	case errors.As(err, &transport):
		return Unreachable
	}
	return Failure
}

// exitOfStatus returns the exit code for an HTTP response without a JSON-RPC message.
func exitOfStatus(status int) int {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return Auth
	case status/100 == 2:
		return Protocol
	}
	return Unreachable
}

// NotServer returns err with exitUnreachable if an HTTP server answered that is not an MCP server.
func NotServer(err error) error {
	var status interface{ HTTPStatus() int }
	if errors.As(err, &status) && status.HTTPStatus()/100 == 2 {
		return &Error{Unreachable, err}
	}
	return err
}

func exitOfCode(e *mcp.Error) int {
	switch e.Code {
	case mcp.CodeMethodNotFound, driver.CodeResourceNotFound:
		return NotFound
	case mcp.CodeInvalidParams:
		if _, ok := rawjson.Get(e.Data, "uri"); ok {
			return NotFound // resource not found, since 2026-07-28
		}
	case CodeGateway:
		if isDenied(e.Data) {
			return Denied
		}
	}
	return Failure
}

const (
	// CodeGateway is the JSON-RPC code of errors of a gateway, whose data contain another code.
	CodeGateway = -32000
	// MetaGatewayError is the member of `_meta` with the data of such an error, in results of tools.
	MetaGatewayError = "dev.patchbay/error"
)

// OfTool returns the exit code for a result with isError.
func OfTool(r *mcp.CallToolResult) int {
	if raw, err := stdjson.Marshal(r.Meta[MetaGatewayError]); err == nil && isDenied(raw) {
		return Denied
	}
	return Tool
}

// isDenied reports whether the policy of a gateway or a user refused a request.
func isDenied(data []byte) bool {
	var detail struct {
		Code hosterr.Code `json:"code"`
	}
	return stdjson.Unmarshal(data, &detail) == nil && detail.Code == hosterr.CodeDenied
}

// A Report is an error in JSON.
type Report struct {
	Kind    string             `json:"kind"`
	Exit    int                `json:"exit"`
	Message string             `json:"message"`
	Code    int                `json:"code,omitzero"` // of a JSON-RPC error of the server
	Data    stdjson.RawMessage `json:"data,omitzero"`
	Login   string             `json:"login,omitzero"` // the command that logs in, if that may help
}

// NewReport returns the report of an error with an exit code.
func NewReport(code int, err error) Report {
	f := Report{Kind: Kinds[code], Exit: code, Message: Text(code, err)}
	var rpc *mcp.Error
	if errors.As(err, &rpc) && rpc.Remote() {
		f.Code, f.Message, f.Data = rpc.Code, rpc.Message, rpc.Data
	}
	return f
}

// Text returns the message for an error. It marks messages of the server.
func Text(code int, err error) string {
	var own *Error
	var rpc *mcp.Error
	var transport *mcp.TransportError
	var refused *oauthclient.AuthorizeError
	switch {
	case code == Interrupted && errors.As(err, &own) && own.Code == code:
		return own.Error()
	case code != Interrupted && errors.As(err, &refused):
		return strings.TrimPrefix(refused.Err.Error(), "oauth: ")
	case code == Interrupted && errors.As(err, &transport) && transport.MayHaveRun:
		return "interrupted; the server may have run " + transport.Method
	case code == Interrupted:
		return "interrupted"
	case errors.As(err, &rpc) && rpc.Remote():
		text := fmt.Sprintf("server error: %s (code %d)", rpc.Message, rpc.Code)
		return strings.Replace(err.Error(), rpc.Error(), text, 1)
	case errors.As(err, &transport) &&
		slices.Contains([]string{driver.MethodInitialize, driver.MethodDiscover}, transport.Method):
		return strings.Replace(err.Error(), transport.Error(), transport.Err.Error(), 1) // the user sent no request
	}
	return strings.TrimPrefix(err.Error(), "mcp: ")
}

// MaxReason bounds the shown reason of a server for cancelling or refusing, in characters.
const MaxReason = 500
