package host

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// discover serves server/discover. A client learns only once what a server offers, so a view of
// several servers offers all that any of them may offer later.
func (v *View) discover(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if s := v.servers(); s.single && len(s.pools) == 1 {
		res, err := v.discoverSingle(ctx, req, s.pools[0])
		if c, _ := v.neededLogin(ctx, err); c == nil || !c.IsOfCallers() {
			return res, err
		} // else the client connects, and its calls ask for the login
	}
	v.noteClass(req)
	wait, cancel := context.WithTimeout(ctx, listing.DiscoverWait)
	defer cancel()
	v.connect(wait)
	m, err := v.currentWithin(ctx, wait, 0)
	if err != nil {
		return nil, err
	}
	res := &mcp.DiscoverResult{SupportedVersions: newestRevisions(), Instructions: m.catalogue.Instructions()}
	if err := json.Unmarshal(m.catalogue.Capabilities(), &res.Capabilities); err != nil {
		return nil, err
	}
	caps := &res.Capabilities
	caps.Tools, caps.Prompts = &mcp.ListCapability{ListChanged: true}, &mcp.ListCapability{ListChanged: true}
	caps.Resources = &mcp.ResourceCapability{Subscribe: true, ListChanged: true}
	caps.Completions, caps.Logging = &struct{}{}, &struct{}{}
	v.tasks.Declare(req, caps)
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
			m, err := v.current(ctx)
			if err != nil {
				return nil, err
			}
			if shown := p.Offers(p.Lists().Fresh()); !showsItems(&shown, m.catalogue) {
				d.Instructions = ""
			}
		}
		v.tasks.Declare(req, &d.Capabilities)
		p.SetApproved(d)
	}
	return res, err
}

func newestRevisions() (all []string) {
	for _, r := range wire.Revisions() {
		all = append([]string{r.String()}, all...)
	}
	return all
}

// connect connects to the servers, and waits for those that are starting until ctx ends.
func (v *View) connect(ctx context.Context) {
	var wait sync.WaitGroup
	for _, p := range v.pools() {
		wait.Go(func() { p.Connect(ctx) })
	}
	wait.Wait()
}
