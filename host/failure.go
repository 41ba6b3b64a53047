package host

import (
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// failure returns the Error of a request or connection that has no valid response.
func (u *Upstream) failure(ctx context.Context, err error) *hosterr.Error {
	if e, ok := errors.AsType[*hosterr.Error](err); ok {
		return e
	}
	e := &hosterr.Error{Code: hosterr.CodeUnavailable, Server: u.name, Err: err}
	if failed, ok := errors.AsType[*mcp.TransportError](err); ok {
		e.MayHaveRun, e.Err = failed.MayHaveRun, failed.Err
	}
	cause := context.Cause(ctx)
	switch {
	case connection.IsUnauthorized(err):
		e.Code = hosterr.CodeAuthRequired
	case errors.Is(err, mcp.ErrInvalidResult):
		e.Code = hosterr.CodeInvalidResult
	case errors.Is(err, mcp.ErrTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(cause, mcp.ErrTimeout):
		e.Code = hosterr.CodeTimeout
	}
	e.Err = u.masked(e.Err)
	return e
}
