package pins

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Stage is the stage of a call that compares definitions with the approved definitions.
type Stage struct{}

// A Pool contains the reviewed lists of a server. The [call.Call.Pool] of each call must implement it.
type Pool interface {
	Lists
	// Pinned returns the pins of the server, or nil if the host does not compare its definitions.
	Pinned() *Server
}

// Check refuses a call for a definition that is not approved. A call that answers a question, and the host's own
// resources, need no approved definition.
func (Stage) Check(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		if c.Quarantined != nil {
			return nil, c.Quarantined
		}
		if p := c.Pool.(Pool); !c.Suspended && !c.Own && p.Pinned() != nil {
			if err := Check(ctx, p, TargetOf(c.Kind, c.Target)); err != nil {
				return nil, err
			}
		}
		return next(ctx, c)
	}
}
