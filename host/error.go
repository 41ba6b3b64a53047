package host

import (
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// begun returns the error of a request that a server has executed in part: sending it again from the
// start would repeat what the server did before its first question.
func begun(err error) error {
	if unbegun, ok := errors.AsType[*round.NotSentError](err); ok {
		return unbegun.Err
	}
	return connection.Ran(err)
}

// response returns what a client receives for an error. A tool call that failed is a result that the
// model can see: clients end sessions for some errors.
func (v *View) response(ctx context.Context, method string, err error) (mcp.Result, error) {
	e, ok := errors.AsType[*hosterr.Error](err)
	if !ok {
		return nil, err
	}
	reason, incident := v.reasonFor(ctx, method, e)
	return hosterr.Response(method, e, reason, incident)
}
