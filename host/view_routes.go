package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

var _ routes.Server = (*upstream.Pool)(nil)

// newTable returns the merged lists of the view.
func (v *View) newTable() *routes.Table {
	h := v.host
	_, shared := h.opts.State.(*state.Shared)
	return routes.New(&routes.Options{Caller: v.caller, Servers: v.resolve, Filters: v.filters,
		Epoch: h.authorize.Epoch, Elsewhere: shared,
		HasPolicy:    func() bool { return h.authorize.Policy() != nil },
		Webhooks:     func() bool { return v.caller.Principal != nil && h.webhooks.Load() != nil },
		Instructions: h.opts.Instructions,
		Send:         func(e mcp.Event) { v.changes.Send(e) },
		Watch:        func(subscribed bool) { h.noteSubscribed(v, subscribed) },
		Call: func(ctx context.Context, req *mcp.Request, s routes.Server, item *catalogue.Item) (mcp.Result, error) {
			return v.send(ctx, req, &call.Call{Kind: policy.ActionCall, Pool: s, Target: item.Original, Item: item})
		},
		Ring: h.states.Ring, Misnamed: &h.misnamed, Context: h.ctx, Logger: h.opts.Logger})
}

// resolve returns the servers of the view in the present configuration.
func (v *View) resolve(last *routes.Servers) *routes.Servers {
	c, set := v.caller, v.host.servers.Current()
	if last != nil && last.Version == set {
		return last
	}
	s := &routes.Servers{Version: set, Settings: set.Settings(),
		Single: c.Server != "" || c.Single && len(set.Servers()) == 1}
	for _, u := range set.Servers() {
		if set.Opens(c, u) {
			s.All = append(s.All, u.Pool(c))
			if e := set.Entry(u); e != nil {
				_, ok := u.Logins().Principal(e, c)
				s.Logins, s.Forwards = s.Logins || ok, s.Forwards || e.Settings.Auth == config.AuthForward
			}
		}
	}
	return s
}

// filters returns the filters of the caller's lists: the kinds that the caller may use, and the policy.
// Definitions that are not approved are not part of the lists of a server; see package listing.
func (v *View) filters() (all []routes.Filter) {
	if v.caller.IsLimited() {
		all = append(all, func(item *catalogue.Item) bool { return mayUse(v.caller, item) })
	}
	if p := v.host.authorize.Policy(); p != nil {
		all = append(all, func(item *catalogue.Item) bool { return v.host.authorize.Visible(p, v.caller, item) })
	}
	return all
}

// HeaderParams returns the arguments of a tool that HTTP clients repeat in headers; see
// [driver.HeaderParam]. It returns nil for an unknown tool.
//
// It waits for the lists of the servers as a call of the tool does: otherwise the first calls would be
// served with headers that differ from their arguments.
func (v *View) HeaderParams(ctx context.Context, _ *mcp.Request, tool string) []driver.HeaderParam {
	item, s, err := v.table.Find(upstream.WithCaller(ctx, v.caller), catalogue.Tools, tool)
	if err != nil || item == nil {
		return nil
	}
	return serverPool(s).Schema(item).Headers
}

// noteSubscribed records whether a view holds subscriptions.
func (h *Host) noteSubscribed(v *View, subscribed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if subscribed {
		h.subscribed[v] = struct{}{}
	} else {
		delete(h.subscribed, v)
	}
}

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
		routes.DeclareEvents(v.caller, &d.Capabilities)
		p.SetApproved(d)
	}
	return res, err
}
