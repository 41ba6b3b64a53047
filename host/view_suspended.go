package host

import (
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// suspendedRoute returns the route of the answer to a call that waits at a server which was removed, or
// which no longer lists the item; nil for any other request. The arguments are those of the call, so
// that nothing has to be removed from them: the server does not get them again.
func (v *View) suspendedRoute(req *mcp.Request, kind catalogue.Kind) *call.Call {
	text, ok, err := round.StateOf(req)
	if !ok || err != nil {
		return nil
	}
	st, err := v.host.states.Open(v.caller, req, text)
	if err != nil || st.Target == "" {
		return nil
	}
	p := v.host.servers.Leaving(st.Server, st.Instance)
	if p == nil {
		if u := v.host.servers.Current().Named(st.Server); u != nil {
			p = u.PoolOfConnection(st.Instance)
		}
	}
	if p == nil || !v.mayContinue(p, kind, st.Target, jsonscan.GetString(req.Params, "name")) {
		return nil
	}
	return &call.Call{Kind: actionOf(kind), Pool: p, Target: st.Target, Suspended: true}
}

// mayContinue reports whether the caller may use the server and the item of a suspended call.
// Another caller with the same principal and more permissions may have begun the call.
func (v *View) mayContinue(p *upstream.Pool, kind catalogue.Kind, target, public string) bool {
	c, set := v.caller, v.host.servers.Current()
	present := set.Named(p.Name()) // may have replaced the server of the call
	if !set.Opens(c, p.Server()) || present != nil && !set.Opens(c, present) {
		return false
	}
	if profile := set.Settings().Profiles[c.Profile]; kind == catalogue.Tools && profile != nil &&
		profile.Tools != nil && !config.Match(profile.Tools, public) {
		return false
	}
	return mayUse(c, &catalogue.Item{Kind: kind, Raw: p.Lists().Last()[kind].Definition(target)})
}

// leaving returns the connections of a removed server at which a call waits, or nil.
func (h *Host) leaving(server, connection string) call.Pool {
	if p := h.servers.Leaving(server, connection); p != nil {
		return p
	}
	return nil // not a nil *upstream.Pool
}
