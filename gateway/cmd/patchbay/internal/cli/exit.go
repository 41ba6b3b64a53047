package cli

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
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// Exit codes; see `patchbay help exit-codes`.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitAuth        = 4
	exitTool        = 5
	exitNotFound    = 6
	exitTimeout     = 7
	exitProtocol    = 8
	exitDenied      = 9
	exitIncomplete  = 10
	exitInterrupted = 130
)

// exitKinds are the kinds of errors in JSON.
var exitKinds = map[int]string{
	exitFailure: "failure", exitUsage: "usage", exitUnreachable: "unreachable", exitAuth: "auth_required",
	exitTool: "tool_failed", exitNotFound: "not_found", exitTimeout: "timeout", exitProtocol: "protocol_violation",
	exitDenied: "denied", exitIncomplete: "incomplete", exitInterrupted: "interrupted",
}

// A coded error has an exit code.
type coded struct {
	code int
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

// usage returns err with the exit code of a usage error.
func usage(err error) error { return &coded{exitUsage, err} }

// notFound returns err with the exit code of something that the server does not have.
func notFound(err error) error { return &coded{exitNotFound, err} }

// exitCode returns the exit code for an error. If ctx is done, the user has interrupted the command.
func exitCode(ctx context.Context, err error) int {
	var own *coded
	var status interface{ HTTPStatus() int }
	var network *net.OpError
	var timeout interface{ Timeout() bool }
	var rpc *mcp.Error
	var malformed *jsonrpc.DecodeError
	var transport *mcp.TransportError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &own) && (ctx.Err() == nil || !errors.Is(err, context.Cause(ctx))):
		return own.code
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &network) && network.Op == "dial": // no connection could be made
		return exitUnreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, oauthclient.ErrLoginTimeout),
		errors.As(err, &timeout) && timeout.Timeout():
		return exitTimeout
	case errors.As(err, &status):
		return exitOfStatus(status.HTTPStatus())
	case errors.As(err, &malformed), errors.Is(err, mcp.ErrInvalidResult), errors.Is(err, mcp.ErrNoCommonRevision),
		errors.Is(err, mcphttp.ErrTooLarge):
		return exitProtocol
	case errors.As(err, &rpc):
		return exitOfCode(rpc)
	case errors.As(err, &transport):
		return exitUnreachable
	}
	return exitFailure
}

// exitOfStatus returns the exit code for an HTTP response without a JSON-RPC message.
func exitOfStatus(status int) int {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return exitAuth
	case status/100 == 2:
		return exitProtocol
	}
	return exitUnreachable
}

// notServer returns err with exitUnreachable if an HTTP server answered that is not an MCP server.
func notServer(err error) error {
	var status interface{ HTTPStatus() int }
	if errors.As(err, &status) && status.HTTPStatus()/100 == 2 {
		return &coded{exitUnreachable, err}
	}
	return err
}

func exitOfCode(e *mcp.Error) int {
	switch e.Code {
	case mcp.CodeMethodNotFound, driver.CodeResourceNotFound:
		return exitNotFound
	case mcp.CodeInvalidParams:
		if _, ok := rawjson.Get(e.Data, "uri"); ok {
			return exitNotFound // resource not found, since 2026-07-28
		}
	case codeGateway:
		if isDenied(e.Data) {
			return exitDenied
		}
	}
	return exitFailure
}

const (
	// codeGateway is the code of errors of a gateway, whose data have a code of their own.
	codeGateway = -32000
	// metaGatewayError is the member of `_meta` with the data of such an error, in results of tools.
	metaGatewayError = "dev.patchbay/error"
)

// exitOfTool returns the exit code for a result with isError.
func exitOfTool(r *mcp.CallToolResult) int {
	if raw, err := stdjson.Marshal(r.Meta[metaGatewayError]); err == nil && isDenied(raw) {
		return exitDenied
	}
	return exitTool
}

// isDenied reports whether a gateway has refused a request: by its policy, or because a user has.
func isDenied(data []byte) bool {
	var detail struct {
		Code hosterr.Code `json:"code"`
	}
	return stdjson.Unmarshal(data, &detail) == nil && detail.Code == host.CodeDenied
}

// A failure is an error in JSON.
type failure struct {
	Kind    string             `json:"kind"`
	Exit    int                `json:"exit"`
	Message string             `json:"message"`
	Code    int                `json:"code,omitzero"` // of a JSON-RPC error of the server
	Data    stdjson.RawMessage `json:"data,omitzero"`
	Login   string             `json:"login,omitzero"` // the command that logs in, if that may help
}

func newFailure(code int, err error) failure {
	f := failure{Kind: exitKinds[code], Exit: code, Message: errorText(code, err)}
	var rpc *mcp.Error
	if errors.As(err, &rpc) && rpc.Remote() {
		f.Code, f.Message, f.Data = rpc.Code, rpc.Message, rpc.Data
	}
	return f
}

// errorText returns the message for an error. It marks messages of the server.
func errorText(code int, err error) string {
	var own *coded
	var rpc *mcp.Error
	var transport *mcp.TransportError
	var refused *oauthclient.AuthorizeError
	switch {
	case code == exitInterrupted && errors.As(err, &own) && own.code == code:
		return own.Error()
	case code != exitInterrupted && errors.As(err, &refused):
		return strings.TrimPrefix(refused.Err.Error(), "oauth: ")
	case code == exitInterrupted && errors.As(err, &transport) && transport.MayHaveRun:
		return "interrupted; the server may have run " + transport.Method
	case code == exitInterrupted:
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
