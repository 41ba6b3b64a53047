package host

import (
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
)

// A viewServers is the servers of a view in one configuration. It never changes.
type viewServers struct {
	set    *upstream.Set
	single bool             // names and URIs are unchanged
	pools  []*upstream.Pool // in the order of the file
	// logins are needed by some, and headers are forwarded to some.
	logins, forwards bool
}

// resolve returns the servers of the view in a configuration.
func (v *View) resolve(set *upstream.Set) *viewServers {
	c := v.caller
	s := &viewServers{set: set, single: c.Server != "" || c.Single && len(set.Servers()) == 1}
	for _, u := range set.Servers() {
		if set.Opens(c, u) {
			s.pools = append(s.pools, u.Pool(c))
			if e := set.Entry(u); e != nil {
				_, ok := u.Logins().Principal(e, c)
				s.logins, s.forwards = s.logins || ok, s.forwards || e.Settings.Auth == config.AuthForward
			}
		}
	}
	return s
}

// servers returns the servers of the view in the present configuration. After a reload, subscriptions
// move to them.
func (v *View) servers() *viewServers {
	s := v.resolved.Load()
	if s.set == v.host.servers.Current() {
		return s
	}
	v.mu.Lock()
	s = v.resolved.Load()
	set := v.host.servers.Current()
	if s.set == set {
		v.mu.Unlock()
		return s
	}
	now := v.resolve(set)
	v.resolved.Store(now)
	v.named.keep(now.pools)
	subscribed := v.subscriptions > 0
	if subscribed {
		for _, p := range now.pools {
			p.Lists().AddListener((*viewListener)(v))
		}
		for _, p := range s.pools {
			if !slices.Contains(now.pools, p) {
				p.Lists().RemoveListener((*viewListener)(v))
			}
		}
		if v.timer == nil {
			v.timer = time.AfterFunc(listing.ChangeDelay, v.refresh)
		}
	}
	v.mu.Unlock()
	if subscribed {
		v.moveSubscriptions(s.pools)
	}
	return now
}

// pools returns the pools of the present servers, in the order of the file.
func (v *View) pools() []*upstream.Pool { return v.servers().pools }

// poolNamed returns the pool of a present server, nil if there is none.
func (v *View) poolNamed(server string) *upstream.Pool {
	for _, p := range v.pools() {
		if p.Name() == server {
			return p
		}
	}
	return nil
}

// latest returns the last catalogue that was merged, nil if there is none. After a reload it has the
// present servers, with the lists that are known of them.
func (v *View) latest() *merged {
	m := v.merged.Load()
	if m == nil {
		return nil
	}
	s := v.servers()
	if m.servers == s {
		return m
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	m = v.merged.Load()
	if m == nil || m.servers == s || s != v.resolved.Load() {
		return m
	}
	lists := make([][catalogue.Kinds]*catalogue.List, len(s.pools))
	for n, p := range s.pools {
		lists[n] = p.Lists().Last()
	}
	m = v.merge(s, lists)
	v.merged.Store(m)
	return m
}

// moveSubscriptions moves subscriptions of the view to resources from pools to those of servers that
// have replaced theirs.
func (v *View) moveSubscriptions(from []*upstream.Pool) {
	for _, p := range from {
		if to := v.poolNamed(p.Name()); to != nil && to != p {
			to.Lists().AddSubscriptions(p.Lists().TakeSubscriptions(viewSubscriber{v, p.Name()}))
		}
	}
}

// unsubscribe ends subscriptions of the view to resources, also those that have moved.
func (v *View) unsubscribe(p *upstream.Pool, all listing.Subscriptions) {
	p.Lists().Unsubscribe(all)
	if to := v.poolNamed(p.Name()); to != nil && to != p {
		to.Lists().Unsubscribe(all)
	}
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
