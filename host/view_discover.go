package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// discover serves server/discover.
func (v *View) discover(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if s := v.table.Servers(); s.Single && len(s.All) == 1 {
		res, err := v.discoverSingle(ctx, req, serverPool(s.All[0]))
		if c, _ := v.requester().Needed(ctx, err); c == nil || !c.IsOfCallers() {
			return res, err
		} // else the client connects, and its calls ask for the login
	}
	v.noteClass(req)
	res, err := v.table.Discover(ctx)
	if err != nil {
		return nil, err
	}
	v.tasks.Declare(req, &res.Capabilities)
	res.Meta = mcp.Meta{wire.MetaServerInfo: v.host.identity()}
	return res, nil
}

// identity returns how the host presents itself to clients.
func (h *Host) identity() mcp.Implementation {
	if info := h.opts.Client.Info; info.Name != "" {
		return info
	}
	return mcp.Implementation{Name: "patchbay-host", Version: "unknown"}
}

func (v *View) discoverSingle(ctx context.Context, req *mcp.Request, p *upstream.Pool) (mcp.Result, error) {
	s, err := p.Acquire(ctx, p.Class(req))
	if err != nil {
		return nil, err
	}
	defer s.Release()
	res, err := mcp.Forward(s.Client()).ServeMCP(ctx, req)
	if d, ok := res.(*mcp.DiscoverResult); ok && err == nil {
		d.Instructions = listing.Cut(d.Instructions, catalogue.MaxInstructions)
		if d.Instructions != "" && v.host.authorize.Policy() != nil {
			m, err := v.table.Current(ctx)
			if err != nil {
				return nil, err
			}
			if !m.Shows(p) {
				d.Instructions = ""
			}
		}
		v.tasks.Declare(req, &d.Capabilities)
		p.SetApproved(d)
	}
	return res, err
}
