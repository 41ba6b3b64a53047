package connection

import (
	"errors"
	"net/http"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A LimitsError reports that a process cannot be started with the limits of its settings.
type LimitsError struct{ Err error }

// Error returns the reason.
func (e *LimitsError) Error() string { return "limits: " + e.Err.Error() }

// Unwrap returns Err.
func (e *LimitsError) Unwrap() error { return e.Err }

// IsUnauthorized reports whether the server refused a request by an HTTP status.
func IsUnauthorized(err error) bool {
	status, ok := errors.AsType[interface {
		error
		HTTPStatus() int
	}](err)
	return ok && (status.HTTPStatus() == http.StatusUnauthorized || status.HTTPStatus() == http.StatusForbidden)
}

// IsUnsent reports whether a request certainly did not run because its connection ended.
func IsUnsent(err error) bool {
	failed, ok := errors.AsType[*mcp.TransportError](err)
	return ok && !failed.MayHaveRun && errors.Is(err, mcp.ErrClosed)
}

// ExitOf returns the error of a connection that ended by itself, or nil for any other error.
func ExitOf(err error) error {
	if exited, ok := errors.AsType[*mcp.ExitError](err); ok {
		return exited
	}
	if errors.Is(err, mcp.ErrDisconnected) {
		return err
	}
	return nil
}

// NotRun returns the error of a step before a request: the server did not run the request.
func NotRun(err error) error {
	e, ok := errors.AsType[*hosterr.Error](err)
	if !ok {
		return err
	}
	before := *e
	before.MayHaveRun = false
	return &before
}

// Ran returns the error of a request that a server ran in part: sending it again from the start
// would repeat the part before the first question of the server.
func Ran(err error) error {
	e, ok := errors.AsType[*hosterr.Error](err)
	if !ok || e.MayHaveRun {
		return err
	}
	ran := *e // requests that wait for the same connection share the error
	ran.MayHaveRun = true
	return &ran
}
