package host

import (
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// suspendedPool returns the pool of a connection of a server that was removed or replaced, nil if there
// is none: calls that wait for an answer of their caller continue there.
func (h *Host) suspendedPool(server, instance string) *pool {
	if instance == "" {
		return nil
	}
	h.mu.Lock()
	leaving := h.leaving
	h.mu.Unlock()
	for _, u := range leaving {
		if u.name != server {
			continue
		}
		if p := u.poolOfConnection(instance); p != nil {
			return p
		}
	}
	return nil
}

// suspendedRoute returns the route of the answer to a call that waits at a server which was removed, or
// which no longer lists the item; nil for any other request. The arguments are those of the call, so
// that nothing has to be removed from them: the server does not get them again.
func (v *View) suspendedRoute(req *mcp.Request, kind catalogue.Kind) *call {
	text, ok, err := round.StateOf(req)
	if !ok || err != nil {
		return nil
	}
	st, err := v.host.states.Open(v.caller, req, text)
	if err != nil || st.Target == "" {
		return nil
	}
	p := v.host.suspendedPool(st.Server, st.Instance)
	if p == nil {
		for _, u := range v.host.set.Load().upstreams {
			if u.name == st.Server {
				p = u.poolOfConnection(st.Instance)
			}
		}
	}
	if p == nil || !v.mayContinue(p, kind, st.Target, jsonscan.GetString(req.Params, "name")) {
		return nil
	}
	return &call{kind: actionOf(kind), pool: p, target: st.Target, suspended: true}
}

// mayContinue reports whether the caller may use the server and the item of a suspended call.
// Another caller with the same principal and more permissions may have begun the call.
func (v *View) mayContinue(p *pool, kind catalogue.Kind, target, public string) bool {
	c, set := v.caller, v.servers().set
	present := set.byName[p.Name()] // may have replaced the server of the call
	if !set.opens(c, p.up) || present != nil && !set.opens(c, present) {
		return false
	}
	if profile := set.settings.Profiles[c.Profile]; kind == catalogue.Tools && profile != nil &&
		profile.Tools != nil && !config.Match(profile.Tools, public) {
		return false
	}
	return mayUse(c, &catalogue.Item{Kind: kind, Raw: p.Lists().Last()[kind].Definition(target)})
}
