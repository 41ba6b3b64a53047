package upstream

import (
	"bytes"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
)

// dropLists drops the lists of at least least bytes of callers without a connection, and the catalogues
// that contain them. The next request reads them again.
func dropLists(u *Server, least int) {
	users := u.env.Users()
	connected := map[string]bool{}
	for _, s := range u.conns() {
		connected[s.in.pool.key] = true
	}
	pools := u.AllPools()
	for _, user := range users { // users may use pools that were removed
		pools = append(pools, user.Pools()...)
	}
	dropped := least == 0
	for _, p := range pools {
		dropped = p.up == u && !connected[p.key] && p.Lists().Drop(least) || dropped
	}
	for _, user := range users {
		if dropped {
			user.ForgetLists()
		}
	}
}

// maxDriftNames limits the names of each kind of change in a record. A hostile server may send any
// number.
const maxDriftNames = 50

// A listDrift is the difference between two lists of a server.
type listDrift struct {
	List    string   `json:"list"`
	Added   []string `json:"added,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Removed []string `json:"removed,omitempty"`
	More    int      `json:"more,omitzero"` // names that were left out
}

func (d *listDrift) add(names *[]string, name string) {
	if len(*names) >= maxDriftNames {
		d.More++
		return
	}
	*names = append(*names, name)
}

// recordDrift records the difference between a list and its predecessor.
func recordDrift(p *Pool, kind catalogue.Kind, old, now *catalogue.List) {
	if !p.up.env.Drifts || old == nil || old.Equal(now) {
		return
	}
	d := &listDrift{List: kind.Member()}
	for name := range now.Digests() {
		switch {
		case !old.Has(name):
			d.add(&d.Added, name)
		case !bytes.Equal(old.Definition(name), now.Definition(name)):
			d.add(&d.Changed, name)
		}
	}
	for name := range old.Digests() {
		if !now.Has(name) {
			d.add(&d.Removed, name)
		}
	}
	p.up.env.Record(event.Drift, p.Caller(), p.Name(), d)
}
