package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// pinsPoll is how often the state is read while definitions are quarantined: another process may
// have approved them.
const pinsPoll = 2 * time.Second

// A serverPins compares what a server sends with its record in the state.
type serverPins struct {
	up        *Upstream
	identity  string
	first     bool // approve what the first connection finds
	resources bool // approve resources as they are listed
	all       bool // approve everything as it is listed

	record  atomic.Pointer[pinRecord] // as last read or written; nil before
	err     atomic.Pointer[error]     // of the last access to the state
	waiting atomic.Bool               // something is quarantined

	mu      sync.Mutex // held while the state is used; guards version
	version uint64     // as last read by refresh
}

// newPins returns the pins of a server with an entry, nil if it needs none.
func newPins(u *Upstream, e *entry, identity string) *serverPins {
	if e.server == nil || !u.host.opts.Pins && e.settings.Trust == "" {
		return nil
	}
	review := e.settings.Trust == config.TrustReview || e.settings.Trust == "" && e.server.Project
	return &serverPins{up: u, identity: identity, first: !review, resources: e.settings.TrustResources,
		all: e.settings.Trust == config.TrustInsecureAll}
}

// equal reports whether two pins of one server decide in the same way about the same record.
func (s *serverPins) equal(o *serverPins) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.identity == o.identity && s.first == o.first && s.resources == o.resources && s.all == o.all
}

// load returns the record, which is read from the state once. It has nothing if that fails.
func (s *serverPins) load(ctx context.Context) *pinRecord {
	if r := s.record.Load(); r != nil {
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text, version, err := s.up.host.opts.State.Get(ctx, pinsKind, s.identity)
	var r *pinRecord
	if err == nil {
		r, err = decodePins(text)
	}
	s.failed(err)
	if err != nil {
		r, _ = decodePins(nil)
		return r
	}
	s.version = version
	s.record.Store(r)
	return r
}

// failed records the result of an access to the state.
func (s *serverPins) failed(err error) {
	if err == nil {
		s.err.Store(nil)
		return
	}
	s.waiting.Store(true)
	if s.err.Swap(&err) != nil {
		return
	}
	s.up.host.opts.Logger.Error("host: pins not stored: definitions that were not approved before are quarantined",
		"server", s.up.name, "error", err)
}

// update changes the record. If the state cannot be used, the last record remains.
func (s *serverPins) update(ctx context.Context, change func(r *pinRecord)) *pinRecord {
	s.mu.Lock()
	r, err := updatePins(ctx, s.up.host.opts.State, s.identity, func(r *pinRecord) error {
		r.Server = s.up.name
		change(r)
		return nil
	})
	s.failed(err)
	if err == nil {
		s.record.Store(r)
	}
	s.mu.Unlock()
	if err != nil {
		return s.load(ctx)
	}
	return r
}

// review records what was found for a caller, and reports what is quarantined and was not before.
func (s *serverPins) review(ctx context.Context, v pinReview) *pinRecord {
	v.first = s.first
	v.approve = s.all || s.resources && (v.kind == PinResource || v.kind == PinTemplate)
	v.added = s.first && v.kind == PinResource
	var unknown []*Pin
	r := s.update(ctx, func(r *pinRecord) { unknown = v.apply(s.identity, r) })
	for _, d := range v.found {
		if !r.isApproved(v.kind, d.name, d.digest) {
			s.waiting.Store(true)
		}
	}
	if len(unknown) > 0 && s.err.Load() == nil {
		s.report(unknown)
	}
	return r
}

// report sends an event with quarantined definitions.
func (s *serverPins) report(unknown []*Pin) {
	const most = 3
	s.up.counts.quarantined.Add(uint64(len(unknown)))
	var all []string
	for _, p := range unknown[:min(len(unknown), most)] {
		all = append(all, p.describe())
	}
	if len(unknown) > most {
		all = append(all, fmt.Sprintf("and %d others", len(unknown)-most))
	}
	e := s.up.errorf(CodeQuarantined, "%s; %s", strings.Join(all, "; "), s.advice(""))
	s.up.host.events.send(Event{Server: s.up.name, State: StateQuarantined, Err: e, Pins: unknown})
}

// advice says how to look at definitions of the server and how to approve them.
func (s *serverPins) advice(name string) string {
	target := s.up.name
	if name != "" {
		target += "/" + name
	}
	return fmt.Sprintf("compare with: patchbay gateway pins --diff %.200q; approve with: "+
		"patchbay gateway approve --pins %.200q", target, target)
}

// refusal returns the error of a request for a quarantined definition.
func (s *serverPins) refusal(ctx context.Context, k PinKind, name string) error {
	if err := s.err.Load(); err != nil {
		return &Error{Code: CodeQuarantined, Server: s.up.name, Err: fmt.Errorf("the definition of %s %.128q is not "+
			"known to be approved, because the file of approved definitions cannot be used: %w", k, name, *err)}
	}
	p := &Pin{Kind: k, Name: name}
	if item := s.load(ctx).kind(k).Items[name]; item != nil {
		p = item.pin(s.up.name, s.identity, k, name)
	}
	return s.up.errorf(CodeQuarantined, "quarantined: %s; %s", p.describe(), s.advice(name))
}

// refresh reads the state, if something is quarantined, and applies what was approved since.
func (s *serverPins) refresh(ctx context.Context) {
	if !s.waiting.Load() {
		return
	}
	s.mu.Lock()
	_, version, err := s.up.host.opts.State.Get(ctx, pinsKind, s.identity)
	same := err == nil && version == s.version && s.err.Load() == nil
	s.version = version
	s.mu.Unlock()
	if same || err != nil {
		return
	}
	s.waiting.Store(false) // reviews set it again
	s.up.mu.Lock()
	pools := slices.Collect(maps.Values(s.up.pools))
	s.up.mu.Unlock()
	for _, p := range pools {
		p.reviewAgain(ctx)
	}
}

// followPins applies approvals of other processes until the host is closed.
func (h *Host) followPins() {
	ticker := time.NewTicker(pinsPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-h.ctx.Done():
			return
		}
		for _, u := range h.set.Load().upstreams {
			for pins := range u.pinned() {
				pins.refresh(h.ctx)
			}
		}
	}
}

// startPins starts followPins when some server of a set has pins for the first time.
func (h *Host) startPins(set *serverSet) {
	for _, e := range set.entries {
		if e.pins != nil {
			h.following.Do(func() { h.work.run(h.followPins) })
			return
		}
	}
}

// pinned returns the pins of the server's entry and of its connections.
func (u *Upstream) pinned() map[*serverPins]struct{} {
	all := map[*serverPins]struct{}{u.entry().pins: {}}
	u.mu.Lock()
	pools := slices.Collect(maps.Values(u.pools))
	u.mu.Unlock()
	for _, p := range pools {
		all[p.pinned()] = struct{}{}
	}
	delete(all, nil)
	return all
}

// pinned returns the pins of the last connection, before it those of the entry; nil for none.
func (p *pool) pinned() *serverPins {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pins
}

// pinCaller returns a key of the caller for its pins: empty for the local user, and for all callers of
// a server that is shared.
func (p *pool) pinCaller() string {
	if p.caller.Principal == nil || p.up.share() == config.ShareShared {
		return ""
	}
	sum := sha256.Sum256([]byte(p.caller.principal()))
	return hex.EncodeToString(sum[:16])
}

// review returns a list of a connection with s, with what is not approved hidden.
func (p *pool) review(ctx context.Context, s *serverPins, kind catalogue.Kind, l *catalogue.List) *catalogue.List {
	if s == nil || l == nil {
		return l
	}
	r := s.review(ctx, pinReview{kind: pinKinds[kind], found: definitionsOf(kind, l), caller: p.pinCaller(),
		lists: !p.isPrivate()})
	return l.Hide(r.held(kind, l))
}

// reviewAgain reviews the lists, the instructions and the serverInfo that the pool has.
func (p *pool) reviewAgain(ctx context.Context) {
	p.reviewing.Lock()
	defer p.reviewing.Unlock()
	for k := range catalogue.Kinds {
		kind := catalogue.Kind(k)
		p.mu.Lock()
		list, pins := p.lists[k].list, p.lists[k].pins
		p.mu.Unlock()
		reviewed := p.review(ctx, pins, kind, list)
		p.mu.Lock()
		p.lists[k].list = reviewed
		p.mu.Unlock()
	}
	p.mu.Lock()
	pins, about := p.pins, p.about
	p.mu.Unlock()
	switch {
	case pins == nil:
	case about != nil:
		p.reviewAbout(ctx, pins, about, nil, "")
	default:
		r := pins.load(ctx)
		p.mu.Lock()
		p.setAbout(r)
		p.mu.Unlock()
	}
	p.notify()
}

// Names of the pins of kind PinServer.
const (
	pinInstructions = "instructions"
	pinServerInfo   = "serverInfo"
)

// reviewAbout sets the instructions and the serverInfo of the pool to what is approved: the last
// approved ones if those of the server are quarantined. capabilities may be nil.
func (p *pool) reviewAbout(
	ctx context.Context, s *serverPins, about []foundDefinition, capabilities json.RawMessage, revision string,
) {
	caller := p.pinCaller()
	r := s.review(ctx, pinReview{kind: PinServer, found: about, caller: caller})
	if !p.isPrivate() && capabilities != nil {
		r = s.update(ctx, func(r *pinRecord) {
			if caller == "" || r.Capabilities == nil {
				r.Capabilities, r.Revision, r.Common = capabilities, revision, !p.up.dependsOnCaller()
			}
		})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.about = about
	p.setAbout(r)
}

// setAbout sets the approved instructions and serverInfo. The lock is held.
func (p *pool) setAbout(r *pinRecord) {
	text := func(name string) json.RawMessage {
		item := r.kind(PinServer).Items[name]
		found := ""
		for _, d := range p.about {
			if d.name == name {
				found = d.digest
				if item != nil && item.isApproved(d.digest) {
					return d.raw
				}
			}
		}
		if item == nil || len(item.Approved) == 0 || item.Approved[0].JSON == "" || found == "" && p.about != nil {
			return nil
		}
		return json.RawMessage(item.Approved[0].JSON)
	}
	p.instructions, _ = jsonscan.Unquote(text(pinInstructions))
	p.serverInfo = text(pinServerInfo)
}

// aboutServer returns the instructions and the serverInfo of a connection as definitions.
func aboutServer(s *start) (about []foundDefinition) {
	add := func(name string, value any) {
		raw, err := json.Marshal(value)
		if err != nil {
			return
		}
		digest := catalogue.DigestOf(raw)
		about = append(about, foundDefinition{name, hex.EncodeToString(digest[:]), raw})
	}
	if text := cutInstructions(s.client.Instructions(), maxInstructions); text != "" {
		add(pinInstructions, text)
	}
	add(pinServerInfo, s.client.ServerInfo())
	return about
}

// dependsOnCaller reports whether the lists of the server may depend on the caller.
func (u *Upstream) dependsOnCaller() bool { return u.entry().dependsOnCaller() || u.usesCaller.Load() }

// isPrivate reports whether the lists of the pool may be for its caller only.
func (p *pool) isPrivate() bool { return p.pinCaller() != "" && p.up.dependsOnCaller() }

// restore restores the capabilities and lists of the last connection, so that the host can list the
// server without starting it. It skips capabilities and lists that may depend on the caller, and
// does nothing after the first call.
func (p *pool) restore(ctx context.Context) {
	if p.isPrivate() || p.pinned() == nil {
		return
	}
	p.restoring.Do(func() {
		s := p.pinned()
		if s == nil {
			return
		}
		r := s.load(ctx)
		if r.Capabilities == nil || p.pinCaller() != "" && !r.Common {
			return
		}
		var lists [catalogue.Kinds]*catalogue.List
		for k := range lists {
			kind := catalogue.Kind(k)
			l := r.list(kind)
			if l == nil {
				return
			}
			if l, _ = p.up.keep(kind, l); l == nil {
				return
			}
			held := r.held(kind, l)
			if lists[k] = l.Hide(held); len(held) > 0 {
				s.waiting.Store(true)
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.capabilities != nil || p.pins != s { // connected or reloaded meanwhile
			return
		}
		p.capabilities, p.revision = r.Capabilities, r.Revision
		p.setAbout(r)
		for k := range lists {
			p.lists[k].list, p.lists[k].pins, p.lists[k].restored = lists[k], s, true
		}
	})
}

// verify makes sure that the lists of some kinds are those of the connection, so that no request
// reaches a definition that has changed since it was approved.
func (p *pool) verify(ctx context.Context, kinds ...catalogue.Kind) error {
	for _, kind := range kinds {
		p.mu.Lock()
		fresh := p.isFresh(kind) && !p.lists[kind].restored
		p.mu.Unlock()
		if fresh {
			continue
		}
		s, err := p.join(ctx, backoffWait, func(p *pool) (*instance, error) { return p.instance(anyClass, false), nil })
		if err == nil {
			s.release()
			_, err = p.list(ctx, kind, 0)
		}
		if err != nil {
			return unsent(err)
		}
	}
	return nil
}

// quarantined returns why an unknown name is that of a definition that is not approved, nil if it is
// not.
func (v *View) quarantined(ctx context.Context, m *merged, kind catalogue.Kind, name string) error {
	item := m.catalogue.Hidden(kind, name)
	if item == nil {
		return nil
	}
	p := m.pools[item.Server]
	p.mu.Lock()
	pins := p.lists[kind].pins
	p.mu.Unlock()
	if pins == nil { // the list was read again meanwhile, without pins
		return nil
	}
	return pins.refusal(ctx, pinKinds[kind], item.Original)
}

// setApproved sets the instructions and the serverInfo of a result to the approved ones.
func (p *pool) setApproved(d *mcp.DiscoverResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pins == nil {
		return
	}
	d.Instructions = p.instructions
	d.Meta = maps.Clone(d.Meta)
	delete(d.Meta, wire.MetaServerInfo)
	if p.serverInfo != nil {
		if d.Meta == nil {
			d.Meta = mcp.Meta{}
		}
		d.Meta[wire.MetaServerInfo] = p.serverInfo
	}
}

// forgetPins makes a pool without connections use the pins of the present entry. What was restored from
// others is read again.
func (p *pool) forgetPins() {
	pins := p.up.entry().pins
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pins == pins {
		return
	}
	p.pins, p.about, p.instructions, p.serverInfo = pins, nil, "", nil
	for k := range p.lists {
		p.lists[k].restored = false
	}
}
