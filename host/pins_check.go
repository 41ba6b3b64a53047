package host

import (
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/pinrecord"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/pin"
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

// A quarantinedError refuses a name whose definition is not approved. A call of the name passes the policy
// before it is refused; see [Host.checkPins].
type quarantinedError struct {
	error
	item catalogue.Item // without its definition, which nobody approved
	pool *upstream.Pool
}

// quarantined returns a [quarantinedError] for a name whose definition is not approved, or nil for other names.
func (v *View) quarantined(ctx context.Context, m *merged, kind catalogue.Kind, name string) error {
	item := m.catalogue.Hidden(kind, name)
	if item == nil {
		return nil
	}
	_, server := m.pools[item.Server].Reviewed(kind)
	if server == nil { // the list was read again meanwhile, without pins
		return nil
	}
	unseen := *item
	unseen.Raw, unseen.Digest = nil, [32]byte{}
	return quarantinedError{server.Refusal(ctx, pin.Kind(pinrecord.Kinds[kind]), item.Original), unseen,
		m.pools[item.Server]}
}

// Unwrap returns the refusal.
func (e quarantinedError) Unwrap() error { return e.error }

// errNoPins reports that definitions of the server are not compared with approved ones.
var errNoPins = errors.New("the definitions of the server are not recorded: its settings must contain " +
	"\"trust\"")
