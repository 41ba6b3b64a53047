package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/pinrecord"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// pinsPoll is the interval at which the state is read while definitions are quarantined: another
// process may approve them. A [state.Shared] reports that at once.
const pinsPoll = 2 * time.Second

// newPins returns the pins of a server with an entry, or nil if the server needs no pins.
func newPins(u *Server, e *entry, identity string) *pins.Server {
	s := u.env
	if e.Config == nil || !s.Pins && e.Settings.Trust == "" {
		return nil
	}
	review := e.Settings.Trust == config.TrustReview || e.Settings.Trust == "" && e.Config.Project
	return pins.New(pins.Options{Server: u.name, Identity: identity, State: s.State,
		Logger: s.Logger, Quarantined: func(err error, found []*pin.Pin) {
			u.counts.quarantined.Add(uint64(len(found)))
			s.Notify(&Change{Server: u.name, State: status.Quarantined, Err: err, Pins: found})
		}, First: !review, Resources: e.Settings.TrustResources,
		All: e.Settings.Trust == config.TrustInsecureAll})
}

// followPins applies approvals of other processes until the host is closed.
func (s *Servers) followPins() {
	ticker := time.NewTicker(pinsPoll)
	defer ticker.Stop()
	changed := make(chan struct{})
	defer state.Watch(s.State, pinrecord.Kind, func() {
		select {
		case changed <- struct{}{}:
		case <-s.Context.Done():
		}
	})()
	for {
		select {
		case <-ticker.C:
		case <-changed:
		case <-s.Context.Done():
			return
		}
		for _, u := range s.Current().servers {
			for server := range pinnedBy(u) {
				if server.Refresh(s.Context) {
					for _, p := range u.AllPools() {
						p.lists.ReviewAgain(s.Context)
					}
				}
			}
		}
	}
}

// startPins starts followPins when a set first contains a server with pins.
func (s *Servers) startPins(set *Set) {
	for _, e := range set.entries {
		if e.pins != nil {
			s.following.Do(func() { s.Go(s.followPins) })
			return
		}
	}
}

// pinnedBy returns the pins of a server's entry and of its connections.
func pinnedBy(u *Server) map[*pins.Server]struct{} {
	all := map[*pins.Server]struct{}{u.entry().pins: {}}
	for _, p := range u.AllPools() {
		all[p.Pinned()] = struct{}{}
	}
	delete(all, nil)
	return all
}

// Pinned returns the pins of the last connection or, before the first connection, of the entry. It
// returns nil without pins.
func (p *Pool) Pinned() *pins.Server { return pinsOf(p.lists.Reviewer()) }

// pinCaller returns the caller for the pins.
func (p *Pool) pinCaller() pins.Caller {
	c := pins.Caller{Varies: p.up.entry().DependsOnCaller() || p.up.usesCaller.Load()}
	if p.caller.Principal != nil && p.up.Share() != config.ShareShared {
		sum := sha256.Sum256([]byte(p.caller.Key()))
		c.Key = hex.EncodeToString(sum[:16])
	}
	return c
}

// A poolReviewer is the [listing.Reviewer] of a pool, with the pins of a server.
type poolReviewer struct {
	pool *Pool
	pins *pins.Server
}

// reviewer returns the reviewer with pins, nil without pins.
func (p *Pool) reviewer(server *pins.Server) listing.Reviewer {
	if server == nil {
		return nil
	}
	return poolReviewer{p, server}
}

// pinsOf returns the pins of a reviewer, nil if it is nil.
func pinsOf(r listing.Reviewer) *pins.Server {
	if r == nil {
		return nil
	}
	return r.(poolReviewer).pins
}

// ReviewList implements [listing.Reviewer].
func (r poolReviewer) ReviewList(ctx context.Context, kind catalogue.Kind, l *catalogue.List) *catalogue.List {
	return r.pins.Review(ctx, r.pool.pinCaller(), kind, l)
}

// ReviewAbout implements [listing.Reviewer].
func (r poolReviewer) ReviewAbout(ctx context.Context, about *listing.About) listing.Approved {
	if about == nil {
		return listing.Approved(r.pins.Approved(ctx))
	}
	return listing.Approved(r.pins.ReviewAbout(ctx, r.pool.pinCaller(), &pins.Start{
		About:        pins.NewAbout(about.Instructions, about.ServerInfo),
		Capabilities: about.Capabilities, Revision: about.Revision, Lacks: about.Lacks}))
}

// Restore implements [listing.Reviewer].
func (r poolReviewer) Restore(
	ctx context.Context, keep func(catalogue.Kind, *catalogue.List) *catalogue.List,
) (listing.Restored, bool) {
	caller := r.pool.pinCaller()
	if caller.IsPrivate() {
		return listing.Restored{}, false
	}
	found, ok := r.pins.Restore(ctx, caller, keep)
	return listing.Restored{Approved: listing.Approved(found.Approved), Capabilities: found.Capabilities,
		Revision: found.Revision, Lists: found.Lists}, ok
}

// Restore restores the lists of the last connection, so that the host can list the server without starting
// it. It skips lists that may depend on the caller.
func (p *Pool) Restore(ctx context.Context) { p.lists.Restore(ctx) }

// Verify implements [pins.Lists]: a request must not reach a definition that changed after its
// approval.
func (p *Pool) Verify(ctx context.Context, kinds ...catalogue.Kind) error {
	for _, kind := range kinds {
		if p.lists.IsCurrent(kind) {
			continue
		}
		s, err := p.join(ctx, backoffWait, func(p *Pool, _ time.Time) (*instance, error) {
			return p.instanceLocked(AnyClass, false), nil
		})
		if err == nil {
			s.Release()
			_, err = p.lists.List(ctx, kind, 0)
		}
		if err != nil {
			return connection.NotRun(err)
		}
	}
	return nil
}

// Reviewed implements [pins.Lists].
func (p *Pool) Reviewed(kind catalogue.Kind) (*catalogue.List, *pins.Server) {
	list, reviewer := p.lists.Reviewed(kind)
	return list, pinsOf(reviewer)
}

// SetApproved sets the instructions and the serverInfo of a result to the approved texts.
func (p *Pool) SetApproved(d *mcp.DiscoverResult) {
	if p.Pinned() == nil {
		return
	}
	about := p.lists.About()
	d.Instructions = about.Instructions
	d.Meta = maps.Clone(d.Meta)
	delete(d.Meta, wire.MetaServerInfo)
	if about.ServerInfo != nil {
		if d.Meta == nil {
			d.Meta = mcp.Meta{}
		}
		d.Meta[wire.MetaServerInfo] = about.ServerInfo
	}
}

// checkPins refuses a request for a definition that the connection does not offer in an approved
// form. The stage of pins checks the lists of the pool, which may contain several connections.
func (s *Conn) checkPins(ctx context.Context, t pins.Target) error {
	if s.pins == nil {
		return nil
	}
	p := s.in.pool
	for _, kind := range t.Kinds {
		if p.lists.Origin(kind) == s.Conn {
			continue
		}
		if err := s.own.Check(ctx, s.reviewer(), pins.Target{Kinds: []catalogue.Kind{kind}, Name: t.Name}); err != nil {
			return connection.NotRun(p.up.RequestError(ctx, err))
		}
	}
	return nil
}

func (s *Conn) reviewer() *pins.Reviewer {
	return &pins.Reviewer{Server: s.pins, Caller: s.in.pool.pinCaller(), Source: s}
}

// ReadList implements [pins.Source].
func (s *Conn) ReadList(ctx context.Context, kind catalogue.Kind) (*catalogue.List, error) {
	return s.in.pool.lists.ReadFrom(ctx, s.Conn, kind)
}
