package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

var _ routes.Server = (*upstream.Pool)(nil)

// newTable returns the merged lists of the view.
func (v *View) newTable() *routes.Table {
	h := v.host
	return routes.New(&routes.Options{Caller: v.caller, Servers: v.resolve, Filters: v.filters, Epoch: h.authorize.Epoch,
		HasPolicy:    func() bool { return h.authorize.Policy() != nil },
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

// serverPool returns the pool that a server of a view is.
func serverPool(s routes.Server) *upstream.Pool {
	p, _ := s.(*upstream.Pool)
	return p
}

// poolNamed returns the pool of a present server, nil for an unknown name.
func (v *View) poolNamed(server string) *upstream.Pool {
	return serverPool(v.table.Servers().Named(server))
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
	return serverPool(s).Schemas().Of(item).Headers
}

// noteSubscribed records whether a view has subscriptions.
func (h *Host) noteSubscribed(v *View, subscribed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if subscribed {
		h.subscribed[v] = struct{}{}
	} else {
		delete(h.subscribed, v)
	}
}
