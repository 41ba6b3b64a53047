package cli

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// Exit codes, as `patchbay help exit-codes` tells them.
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
	exitInterrupted = 130
)

// exitKinds names an exit code for programs.
var exitKinds = map[int]string{
	exitFailure: "failure", exitUsage: "usage", exitUnreachable: "unreachable", exitAuth: "auth_required",
	exitTool: "tool_failed", exitNotFound: "not_found", exitTimeout: "timeout", exitProtocol: "protocol_violation",
	exitInterrupted: "interrupted",
}

// A coded error knows its exit code.
type coded struct {
	code int
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

// usage marks what the user has to mend.
func usage(err error) error { return &coded{exitUsage, err} }

// notFound marks what the server does not have.
func notFound(err error) error { return &coded{exitNotFound, err} }

// exitCode returns the status for an error. ctx is the command's own: what ended it was the user.
func exitCode(ctx context.Context, err error) int {
	var own *coded
	var status interface{ HTTPStatus() int }
	var rpc *mcp.Error
	var refused *jsonrpc.DecodeError
	var transport *mcp.TransportError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &own):
		return own.code
	case ctx.Err() != nil:
		return exitInterrupted
	case isDial(err):
		return exitUnreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, oauth.ErrLoginTimeout), timedOut(err):
		return exitTimeout
	case errors.As(err, &status):
		return exitOfStatus(status.HTTPStatus())
	case errors.As(err, &refused), errors.Is(err, mcp.ErrInvalidResult), errors.Is(err, mcp.ErrNoRevision), errors.Is(err, mcphttp.ErrTooLarge):
		return exitProtocol
	case errors.As(err, &rpc):
		return exitOfCode(rpc)
	case errors.As(err, &transport):
		return exitUnreachable
	}
	return exitFailure
}

// exitOfStatus is for what is no message of the protocol.
func exitOfStatus(status int) int {
	const unauthorized, forbidden = 401, 403
	switch {
	case status == unauthorized || status == forbidden:
		return exitAuth
	case status/100 == 2:
		return exitProtocol
	}
	return exitUnreachable
}

// notThere marks the error of a connection whose other end answers, but not as a server of the protocol does.
func notServer(err error) error {
	var status interface{ HTTPStatus() int }
	if errors.As(err, &status) && status.HTTPStatus()/100 == 2 {
		return &coded{exitUnreachable, err}
	}
	return err
}

// exitOfCode is for what the server says itself.
func exitOfCode(e *mcp.Error) int {
	switch e.Code {
	case mcp.CodeMethodNotFound, wire.CodeResourceNotFoundLegacy:
		return exitNotFound
	case mcp.CodeInvalidParams:
		if _, names := jsonscan.Get(e.Data, "uri"); names {
			return exitNotFound // a resource, by the newest revision
		}
	}
	return exitFailure
}

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// isDial reports whether there was no connection to begin with.
func isDial(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "dial"
}

// A failure is an error as programs read it.
type failure struct {
	Kind    string             `json:"kind"`
	Exit    int                `json:"exit"`
	Message string             `json:"message"`
	Code    int                `json:"code,omitzero"` // of the protocol, when the server answered with an error
	Data    stdjson.RawMessage `json:"data,omitzero"`
	Login   string             `json:"login,omitzero"` // the command that logs in, if that can help
}

func newFailure(code int, err error) failure {
	f := failure{Kind: exitKinds[code], Exit: code, Message: errorText(code, err)}
	var rpc *mcp.Error
	if errors.As(err, &rpc) && rpc.Remote() {
		f.Code, f.Message, f.Data = rpc.Code, rpc.Message, rpc.Data
	}
	return f
}

// errorText tells people of an error. That they have ended the command themselves needs no reason, and what the server says is
// marked as its own.
func errorText(code int, err error) string {
	var own *coded
	var rpc *mcp.Error
	var transport *mcp.TransportError
	var refused *oauth.AuthorizeError
	switch {
	case code == exitInterrupted && errors.As(err, &own):
		return own.Error()
	case code != exitInterrupted && errors.As(err, &refused):
		return strings.TrimPrefix(refused.Err.Error(), "oauth: ")
	case code == exitInterrupted && errors.As(err, &transport) && transport.MayHaveRun:
		return "interrupted; " + transport.Method + " may have run all the same"
	case code == exitInterrupted:
		return "interrupted"
	case errors.As(err, &rpc) && rpc.Remote():
		said := fmt.Sprintf("the server says: %s (code %d)", rpc.Message, rpc.Code)
		return strings.Replace(err.Error(), rpc.Error(), said, 1)
	}
	return err.Error()
}
