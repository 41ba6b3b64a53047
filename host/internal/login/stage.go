package login

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Stage is the stage of a call that requires logins.
type Stage struct{}

// A Pool contains the credentials for a server. The [call.Call.Pool] of each call must implement it.
type Pool interface {
	// CheckLogin returns an error if requests to the server need a login that is missing.
	CheckLogin(ctx context.Context) error
}

// Check refuses a call that requires a missing login.
func (Stage) Check(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		if err := c.Pool.(Pool).CheckLogin(ctx); err != nil {
			return nil, err
		}
		return next(ctx, c)
	}
}
