package host

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Diff reports what a reload has changed. Names are in the order of the file that has them.
type Diff struct {
	// Added and Removed are the names of servers.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	// Changed are the servers that are connected to again.
	Changed []string `json:"changed,omitempty"`
	// Updated are the servers whose settings have changed, and that keep their connections.
	Updated []string `json:"updated,omitempty"`
	// Settings are the other members of the settings that have changed, such as "profiles", and
	// "mcpServers" for the order of the servers.
	Settings []string `json:"settings,omitempty"`
	// Restart are the members of the settings that have changed, such as "listen", and have no effect
	// until the program is started again.
	Restart []string `json:"restart,omitempty"`
}

// IsEmpty reports whether nothing has changed.
func (d *Diff) IsEmpty() bool {
	return len(d.Added)+len(d.Removed)+len(d.Changed)+len(d.Updated)+len(d.Settings)+len(d.Restart) == 0
}

// Reload replaces the configuration. A server has changed if what its entry means now differs: the
// values of variables and the contents of files count, the outputs of commands such as ${exec:…} do
// not.
//
//   - Servers that have not changed keep their processes, sessions, requests and subscriptions.
//   - Of a changed server, new instances are started. When they are ready, they replace the others as
//     with [Upstream.Restart]. An instance whose replacement fails stays in use, the failure is an
//     event, and Reload with another entry, or a later attempt, replaces it. If the replacement
//     fails because a secret is no longer stored, the instance receives no new requests. A server
//     that becomes a URL instead of a command, or the reverse, or has another mode of sharing, is
//     replaced at once.
//   - Removed servers get no new requests. Those in progress continue for 30 seconds at most, suspended
//     ones until their end.
//   - Other settings apply to the next request. Settings of a server that are not those of a connection,
//     such as allow, and limits do too. "trust" is one of a connection: what it offers is compared with pins again.
//   - Policy, channels and webhook are those that [Options.Configure] sets. Approvals and decisions of
//     another epoch of the policy are void. See [Diff] for settings that need a restart.
//
// Every view with subscriptions is notified of lists that differ. If the settings of the file are
// invalid, Reload changes nothing and returns the error. Its outcome is also an event, unless nothing
// has changed. A file whose servers need trust must have been trusted: see [config.TrustStore]. Reload
// does not wait for servers.
func (h *Host) Reload(ctx context.Context, f *config.File) (*Diff, error) {
	h.reloading.Lock()
	defer h.reloading.Unlock()
	d, err := h.reload(ctx, f)
	if err != nil || !d.IsEmpty() {
		h.events.send(Event{Reload: d, Err: err})
	}
	return d, err
}

func (h *Host) reload(ctx context.Context, f *config.File) (*Diff, error) {
	old := h.set.Load()
	set, err := h.newServerSet(f, old)
	if err != nil {
		return nil, err
	}
	rules, err := h.configured(f)
	if err != nil {
		return nil, err
	}
	wanted := map[*Upstream]server.Fingerprint{}
	for u, e := range set.entries {
		wanted[u] = h.fingerprint(e)
	}
	d := h.compare(old, set, wanted)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if d.IsEmpty() {
		return d, nil
	}
	views, err := h.apply(old, set, rules)
	if err != nil {
		return nil, err
	}
	h.startPins(set)
	for name, u := range old.byName {
		if n := set.byName[name]; n != u {
			u.remove(n)
		}
	}
	for u := range set.entries {
		u.reconfigure(wanted[u], slices.Contains(d.Changed, u.name))
		u.applyLimits()
	}
	for _, v := range views {
		v.servers()
	}
	h.poke()
	h.approver.answers.wake() // requests that the last policy has asked about are void
	h.recordConfig(f, "reload")
	return d, nil
}

// apply makes a set and its rules those of the host. It returns the views with subscriptions.
func (h *Host) apply(old, set *serverSet, rules *Options) ([]*View, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, mcp.ErrClosed
	}
	if h.opts.Configure != nil {
		h.use(rules) // before the servers: a request for a new one is never decided by the last policy
	}
	for u, e := range set.entries {
		u.current.Store(e)
	}
	for name, u := range old.byName {
		if set.byName[name] != u {
			h.leaving = append(h.leaving, u)
		}
	}
	h.set.Store(set)
	return slices.Collect(maps.Keys(h.subscribed)), nil
}

// compare returns the differences between two sets, the second of which is not yet in use.
func (h *Host) compare(old, set *serverSet, wanted map[*Upstream]server.Fingerprint) *Diff {
	d := &Diff{}
	var kept, now []string
	for _, u := range old.upstreams {
		if set.byName[u.name] == nil {
			d.Removed = append(d.Removed, u.name)
			continue
		}
		kept = append(kept, u.name)
	}
	for _, u := range set.upstreams {
		last, e := old.byName[u.name], set.entries[u]
		if last == nil {
			d.Added = append(d.Added, u.name)
			continue
		}
		now = append(now, u.name)
		before := last.entry()
		switch {
		case last != u || h.fingerprint(before) != wanted[u] || u.hasOutdated(wanted[u]):
			d.Changed = append(d.Changed, u.name)
		case before.ID != e.ID || !reflect.DeepEqual(before.Settings, e.Settings):
			d.Updated = append(d.Updated, u.name)
		}
	}
	if !slices.Equal(kept, now) {
		d.Settings = append(d.Settings, "mcpServers")
	}
	h.compareSettings(d, old.settings, set.settings)
	return d
}

// hasOutdated reports whether some connection has another fingerprint.
func (u *Upstream) hasOutdated(wanted server.Fingerprint) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range u.pools {
		for _, i := range p.instances {
			if s := i.current; s != nil && s.fingerprint != (server.Fingerprint{}) && s.fingerprint != wanted {
				return true
			}
		}
	}
	return false
}

var errRemoved = errors.New("the server was removed from the configuration")

// remove ends the connections of a server that the configuration no longer has, each with its last
// request. Another server may have its name now.
func (u *Upstream) remove(successor *Upstream) {
	u.mu.Lock()
	u.removed = true
	stopped := u.stopped
	for s := range u.connections {
		switch c := s.Status(); {
		case c.State == connection.StateStarting:
			s.replaced = true
			if s.in.current == s {
				s.in.current = nil
			}
			s.stopLocked()
		case !c.Stopping && c.State != connection.StateDraining:
			if s.in.current == s {
				s.in.current, s.in.state = nil, StateOff
			}
			s.drainLocked()
		}
	}
	pools := slices.Collect(maps.Values(u.pools))
	for _, p := range pools {
		for _, i := range p.instances {
			i.wake()
		}
	}
	u.mu.Unlock()
	if successor != nil && stopped {
		successor.mu.Lock()
		successor.stopped = true
		successor.mu.Unlock()
	}
	for _, p := range pools {
		p.lists.Close()
	}
}

// reconfigure makes the supervisor replace the connections with another fingerprint. A delay of starts
// after failures ends if the server has changed.
func (u *Upstream) reconfigure(wanted server.Fingerprint, changed bool) {
	if changed {
		u.credentials.forget()
	}
	u.mu.Lock()
	now := time.Now()
	u.wanted = wanted
	if changed {
		u.endDelayLocked()
	}
	var unconnected []*pool
	for _, p := range u.pools {
		connected := false
		for _, i := range p.instances {
			if connected = connected || i.current != nil; !changed {
				continue
			}
			i.swapFailed = false
			if i.current == nil && !i.backoff.Until.IsZero() {
				i.backoff = connection.Backoff{Until: now}
				i.wake()
			}
		}
		if changed && !connected {
			unconnected = append(unconnected, p)
		}
	}
	u.mu.Unlock()
	for _, p := range unconnected {
		p.lists.SetReviewer(p.reviewer(u.entry().pins))
		p.lists.AllChanged()
	}
}

// all returns the servers of the configuration, and those that were removed and have connections.
func (h *Host) all() []*Upstream {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Concat(h.set.Load().upstreams, h.leaving)
}

// forgetRemoved forgets removed servers without connections.
func (h *Host) forgetRemoved() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaving = slices.DeleteFunc(h.leaving, func(u *Upstream) bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.removed && len(u.connections) == 0
	})
}
