package upstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/cluster"
)

// A seat holds the lease of a server of a cluster. All servers of the host with the name use the same seat: a changed
// server serves its last requests beside its successor. The lock of shared guards the fields below turn.
type seat struct {
	env  *shared
	name string
	turn chan struct{} // buffered (1): contains a value while the store takes or ends the lease

	lease *cluster.Lease // may be nil
	claim string         // names the lease; it remains while the store may hold the lease
	users int            // connections with the present lease or an earlier lease
}

// seat returns the seat of the servers with a name.
func (s *shared) seat(name string) *seat {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.seats[name]
	if t == nil {
		t = &seat{env: s, name: name, turn: make(chan struct{}, 1)}
		if s.seats == nil {
			s.seats = map[string]*seat{}
		}
		s.seats[name] = t
	}
	return t
}

// allSeats returns the seats of all names.
func (s *shared) allSeats() []*seat {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.seats))
}

// take returns the lease for a connection, which must call leave when its process has ended, or the host that holds
// the lease. It waits for the end of an earlier lease.
func (t *seat) take(ctx context.Context) (*cluster.Lease, *cluster.Peer, error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	defer func() { <-t.turn }()
	present, claim := t.present()
	if present != nil && !present.IsValid() {
		return nil, nil, cluster.ErrLost
	}
	if present == nil {
		taken, at, err := t.env.Cluster.Take(ctx, t.name, claim)
		if taken == nil {
			return nil, at, err
		}
		present = taken
		t.env.Go(func() {
			if taken.Keep(t.env.Context) != nil {
				t.lost(taken)
			}
		})
	}
	t.env.mu.Lock()
	defer t.env.mu.Unlock()
	t.lease = present
	t.users++
	return present, nil, nil
}

// present returns the lease, or nil and the name of the lease to request.
func (t *seat) present() (l *cluster.Lease, claim string) {
	t.env.mu.Lock()
	defer t.env.mu.Unlock()
	t.claim = cmp.Or(t.claim, rand.Text())
	return t.lease, t.claim
}

// lost forgets a lease that another host may hold, and ends its connections.
func (t *seat) lost(l *cluster.Lease) {
	t.env.mu.Lock()
	if t.lease == l {
		t.lease, t.claim = nil, ""
	}
	t.env.mu.Unlock()
	t.env.leaseLost(l)
}

// leave ends the use of the lease by a connection.
func (t *seat) leave() {
	t.env.mu.Lock()
	defer t.env.mu.Unlock()
	t.users--
}

// unused returns the lease if no connection uses it.
func (t *seat) unused() *cluster.Lease {
	t.env.mu.Lock()
	defer t.env.mu.Unlock()
	if t.users > 0 {
		return nil
	}
	return t.lease
}

// end ends the lease unless a connection uses it. If the store fails, the next request regains the lease.
func (t *seat) end() {
	t.turn <- struct{}{} // the store takes at most 2 seconds
	defer func() { <-t.turn }()
	l := t.unused()
	if l == nil {
		return
	}
	t.env.mu.Lock()
	t.lease = nil // nobody takes it during the turn
	t.env.mu.Unlock()
	if l.Release() == nil {
		t.env.mu.Lock()
		t.claim = ""
		t.env.mu.Unlock()
	}
}

// holds reports whether the server may run in this host, with the lease of a token.
func (t *seat) holds(token uint64) bool {
	t.env.mu.Lock()
	defer t.env.mu.Unlock()
	return t.lease != nil && t.lease.Token == token && t.lease.IsValid()
}
