package host

import (
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// checkPins refuses a call for a definition that is not approved.
func (h *Host) checkPins(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		if c.Quarantined != nil {
			return nil, c.Quarantined
		}
		if !c.Suspended && !c.Own && poolOf(c).Pinned() != nil {
			if err := pins.Check(ctx, poolOf(c), uses(c)); err != nil {
				return nil, err
			}
		}
		return next(ctx, c)
	}
}

// uses returns the definition that a request uses.
func uses(c *call.Call) pins.Target { return pins.TargetOf(c.Kind, c.Target) }

// errNoPins reports that definitions of the server are not compared with approved ones.
var errNoPins = errors.New("the definitions of the server are not recorded: its settings must contain " +
	"\"trust\"")
