package host

import (
	"maps"
	"slices"
)

// dropLists drops the lists of at least least bytes of callers without a connection, and the catalogues
// that contain them. The next request reads them again.
func (u *Upstream) dropLists(least int) {
	u.host.mu.Lock()
	views := slices.AppendSeq(slices.Collect(maps.Values(u.host.views.views)), maps.Keys(u.host.subscribed))
	u.host.mu.Unlock()
	connected := map[string]bool{}
	for _, s := range u.conns() {
		connected[s.in.pool.key] = true
	}
	pools := u.allPools()
	for _, v := range views { // views may use pools that were removed
		pools = append(pools, v.resolved.Load().pools...)
	}
	dropped := least == 0
	for _, p := range pools {
		dropped = p.up == u && !connected[p.key] && p.lists.Drop(least) || dropped
	}
	for _, v := range views {
		if dropped {
			v.forget()
		}
	}
}

// forget makes the view merge its catalogue again: with the next request, or soon if the view has
// subscriptions.
func (v *View) forget() {
	v.mu.Lock()
	subscribed := v.subscriptions > 0
	if !subscribed {
		v.merged.Store(nil)
		v.announced = nil
	}
	v.mu.Unlock()
	if subscribed {
		v.schedule()
	}
}
