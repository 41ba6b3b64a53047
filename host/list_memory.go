package host

import (
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
)

const (
	// maxHeldBytes limits the size of all different lists of one server, for all its callers, in bytes as
	// the server sent them. It is enough for the four largest lists of one caller. Equal lists count once.
	maxHeldBytes = 4 * maxListBytes
	// largeList is more than servers in use list. Longer lists leave smallRoom to other lists, are read by
	// at most maxLargeReads callers at a time, and are dropped with the connection of their caller.
	largeList, smallRoom, maxLargeReads = 1 << 20, maxListBytes / 2, 2
)

// keep returns the held list that equals l, so that callers share it, or holds l. It fails if l does
// not fit.
func (u *Upstream) keep(kind catalogue.Kind, l *catalogue.List) (*catalogue.List, error) {
	most := maxHeldBytes
	if l.Bytes() > largeList {
		most -= smallRoom
	}
	kept := u.lists.Keep(l, most)
	if kept != nil {
		return kept, nil
	}
	u.collecting.Lock()
	collects := time.Since(u.collected) >= maxListPause
	if collects {
		u.dropLists(0)
		runtime.GC() // unused lists count until they are collected
		u.collected = time.Now()
	}
	u.collecting.Unlock()
	if kept = u.lists.Keep(l, most); kept != nil {
		return kept, nil
	}
	e := u.errorf(CodeLimited, "%s has returned %d bytes for this caller, which do not fit: the different lists of "+
		"all callers of the server may have %d bytes together; end connections of other callers",
		kind.Method(), l.Bytes(), most)
	e.RetryAfter = maxListPause
	if collects {
		u.host.opts.Logger.Warn("host: list not kept", "server", u.name, "error", e)
	}
	return nil, e
}

// dropLists drops the lists of at least least bytes of callers without a connection, and the catalogues
// that contain them. The next request reads them again.
func (u *Upstream) dropLists(least int) {
	u.host.mu.Lock()
	views := slices.AppendSeq(slices.Collect(maps.Values(u.host.views.views)), maps.Keys(u.host.subscribed))
	u.host.mu.Unlock()
	connected := map[string]bool{}
	u.mu.Lock()
	for s := range u.connections {
		connected[s.in.pool.key] = true
	}
	pools := slices.Collect(maps.Values(u.pools))
	u.mu.Unlock()
	for _, v := range views { // views may use pools that were removed
		pools = append(pools, v.resolved.Load().pools...)
	}
	dropped := least == 0
	for _, p := range pools {
		dropped = p.up == u && !connected[p.key] && p.drop(least) || dropped
	}
	for _, v := range views {
		if dropped {
			v.forget()
		}
	}
}

// drop drops the lists of at least least bytes, and reports whether it found any. It keeps the lists of
// a view with subscriptions, which are needed to notice changes.
func (p *pool) drop(least int) (dropped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.lists {
		if l := &p.lists[k]; l.list != nil && l.list.Bytes() >= least && len(p.views) == 0 {
			l.list, l.changed, l.restored, dropped = nil, true, false, true
		}
	}
	return dropped
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
