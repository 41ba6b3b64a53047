package host

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/pinrecord"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// pinOptions configures a [serverPins].
type pinOptions struct {
	server   string // name in the configuration
	identity string // key of the record
	state    state.Store
	logger   *slog.Logger
	// quarantined receives definitions that were not quarantined before, with an error that describes them.
	quarantined func(err error, found []*pin.Pin)
	first       bool // approve the definitions of the first connection
	resources   bool // approve resources and templates when they are listed
	all         bool // approve every definition when it is listed
}

// A serverPins compares the definitions of one server with the record of the approved ones. It is safe
// for concurrent use.
type serverPins struct {
	pinOptions

	record  atomic.Pointer[pinrecord.Record] // as last read or written; nil before
	err     atomic.Pointer[error]            // of the last access to the state
	waiting atomic.Bool                      // a definition is quarantined

	mu      sync.Mutex // held while the state is used; guards version
	version uint64     // as last read by refresh
}

// A pinCaller identifies the caller that a server has sent definitions for.
type pinCaller struct {
	key    string // empty for the local user, and for all callers of a shared server
	varies bool   // the lists of the server may depend on the caller
}

// isPrivate reports whether lists may be for the caller only.
func (c pinCaller) isPrivate() bool { return c.key != "" && c.varies }

// equal reports whether two pins of one server decide in the same way about the same record.
func (s *serverPins) equal(o *serverPins) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.fingerprint() == o.fingerprint() && s.all == o.all
}

// fingerprint returns a text that changes if connections must be reviewed again.
func (s *serverPins) fingerprint() string {
	return fmt.Sprintf("%q %t %t", s.identity, s.first, s.resources)
}

// load returns the record, which is read from the state once. The record is empty if that fails.
func (s *serverPins) load(ctx context.Context) *pinrecord.Record {
	if r := s.record.Load(); r != nil {
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, version, err := pinrecord.Get(ctx, s.state, s.identity)
	s.failed(err)
	if err != nil {
		r, _ = pinrecord.Decode(nil)
		return r
	}
	s.version = version
	s.record.Store(r)
	return r
}

// failed stores the outcome of an access to the state.
func (s *serverPins) failed(err error) {
	if err == nil {
		s.err.Store(nil)
		return
	}
	s.waiting.Store(true)
	if s.err.Swap(&err) == nil {
		s.logger.Error("host: pins not stored: definitions that were not approved before are quarantined",
			"server", s.server, "error", err)
	}
}

// update changes the record. If the state cannot be used, the last record remains.
func (s *serverPins) update(ctx context.Context, change func(r *pinrecord.Record)) *pinrecord.Record {
	s.mu.Lock()
	r, err := pinrecord.Update(ctx, s.state, s.identity, func(r *pinrecord.Record) error {
		r.Server = s.server
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

// reviewList returns a list of a connection, in which definitions that are not approved are hidden.
func (s *serverPins) reviewList(
	ctx context.Context, c pinCaller, kind catalogue.Kind, l *catalogue.List,
) *catalogue.List {
	if s == nil || l == nil {
		return l
	}
	r := s.review(ctx, &pinrecord.Review{Kind: pinrecord.Kinds[kind], Found: pinrecord.FindAll(kind, l), Caller: c.key,
		Lists: !c.isPrivate()})
	return l.Hide(r.Held(kind, l))
}

// review adds the definitions that were found for a caller to the record, and reports definitions that were
// not quarantined before.
func (s *serverPins) review(ctx context.Context, v *pinrecord.Review) *pinrecord.Record {
	v.First = s.first
	v.Approve = s.all || s.resources && (v.Kind == string(pin.Resource) || v.Kind == string(pin.Template))
	v.Added = s.first && v.Kind == string(pin.Resource)
	var quarantined []string
	r := s.update(ctx, func(r *pinrecord.Record) { quarantined = v.Apply(r) })
	for _, d := range v.Found {
		if !r.IsApproved(v.Kind, d.Name, d.Digest) {
			s.waiting.Store(true)
		}
	}
	if len(quarantined) > 0 && s.err.Load() == nil {
		var pins []*pin.Pin
		for _, name := range quarantined {
			pins = append(pins, newPin(s.identity, r, v.Kind, name))
		}
		s.report(pins)
	}
	return r
}

// report passes on quarantined definitions.
func (s *serverPins) report(unknown []*pin.Pin) {
	const limit = 3
	var all []string
	for _, p := range unknown[:min(len(unknown), limit)] {
		all = append(all, p.Describe())
	}
	if len(unknown) > limit {
		all = append(all, fmt.Sprintf("and %d others", len(unknown)-limit))
	}
	s.quarantined(s.errorf("%s; %s", strings.Join(all, "; "), s.advice("")), unknown)
}

func (s *serverPins) errorf(format string, args ...any) error {
	return &Error{Code: CodeQuarantined, Server: s.server, Err: hosterr.Public{Err: fmt.Errorf(format, args...)}}
}

// advice returns the commands that show and approve definitions of the server.
func (s *serverPins) advice(name string) string {
	target := s.server
	if name != "" {
		target += "/" + name
	}
	return fmt.Sprintf("compare with: patchbay gateway pins --diff %.200q; approve with: "+
		"patchbay gateway approve --pins %.200q", target, target)
}

// refusal returns the error of a request for a quarantined definition.
func (s *serverPins) refusal(ctx context.Context, k pin.Kind, name string) error {
	if err := s.err.Load(); err != nil {
		return &Error{Code: CodeQuarantined, Server: s.server, Err: fmt.Errorf("the definition of %s %.128q is not "+
			"known to be approved, because the file of approved definitions cannot be used: %w", k, name, *err)}
	}
	p := newPin(s.identity, s.load(ctx), string(k), name)
	return s.errorf("quarantined: %s; %s", p.Describe(), s.advice(name))
}

// refresh reports whether lists must be reviewed again, because another program has changed the record while
// definitions are quarantined.
func (s *serverPins) refresh(ctx context.Context) bool {
	if !s.waiting.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, version, err := pinrecord.Get(ctx, s.state, s.identity)
	same := err == nil && version == s.version && s.err.Load() == nil
	s.version = version
	if same || err != nil {
		return false
	}
	s.waiting.Store(false) // reviews set it again
	return true
}

// pins returns the pins of the server.
func (s *serverPins) pins(ctx context.Context) (pins []*pin.Pin, err error) {
	if failed := s.err.Load(); failed != nil {
		return nil, fmt.Errorf("host: pins of server %.64q: %w", s.server, *failed)
	}
	r := s.load(ctx)
	for _, n := range r.Names() {
		pins = append(pins, newPin(s.identity, r, n.Kind, n.Name))
	}
	return pins, nil
}

func newPin(identity string, r *pinrecord.Record, kind, name string) *pin.Pin {
	p := &pin.Pin{Server: r.Server, Identity: identity, Kind: pin.Kind(kind), Name: name}
	approved, pending := r.Forms(kind, name)
	for _, f := range approved {
		p.Approved = append(p.Approved, pin.Definition{Digest: f.Digest, JSON: f.Text(), Time: f.Time})
	}
	for _, f := range pending {
		p.Pending = append(p.Pending, pin.Definition{Digest: f.Digest, JSON: f.Text(), Time: f.Time})
	}
	return p
}

// Names of the pins of kind pin.Server.
const (
	pinInstructions = "instructions"
	pinServerInfo   = "serverInfo"
)

// A serverAbout is the description that a server sends of itself, as definitions.
type serverAbout struct {
	found        []pinrecord.Found
	capabilities json.RawMessage
	revision     string
}

func (a *serverAbout) add(name string, value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		return
	}
	digest := catalogue.DigestOf(raw)
	a.found = append(a.found, pinrecord.Found{Name: name, Digest: hex.EncodeToString(digest[:]), JSON: raw})
}

// approvedAbout contains the texts of a server that callers may see.
type approvedAbout struct {
	instructions string
	serverInfo   json.RawMessage
}

// reviewAbout returns the approved texts of a server: the last approved texts if the server's own are
// quarantined. The capabilities become part of the record unless they are nil.
func (s *serverPins) reviewAbout(ctx context.Context, c pinCaller, about *serverAbout) approvedAbout {
	r := s.review(ctx, &pinrecord.Review{Kind: string(pin.Server), Found: about.found, Caller: c.key})
	if !c.isPrivate() && about.capabilities != nil {
		r = s.update(ctx, func(r *pinrecord.Record) {
			if c.key == "" || r.Capabilities == nil {
				r.Capabilities, r.Revision, r.Common = about.capabilities, about.revision, !c.varies
			}
		})
	}
	return approvedTexts(r, about)
}

// approvedTexts returns the texts of a server that are approved. about is nil before the first connection.
func approvedTexts(r *pinrecord.Record, about *serverAbout) (a approvedAbout) {
	text := func(name string) json.RawMessage {
		item := r.Of(string(pin.Server)).Items[name]
		found := about == nil
		if about != nil {
			for _, d := range about.found {
				if d.Name == name {
					found = true
					if item != nil && item.IsApproved(d.Digest) {
						return d.JSON
					}
				}
			}
		}
		if item == nil || len(item.Approved) == 0 || item.Approved[0].JSON == "" || !found {
			return nil
		}
		return json.RawMessage(item.Approved[0].JSON)
	}
	a.instructions, _ = jsonscan.Unquote(text(pinInstructions))
	a.serverInfo = text(pinServerInfo)
	return a
}

// A restoredServer is what the last connection of a server has offered to the local user.
type restoredServer struct {
	approvedAbout
	capabilities json.RawMessage
	revision     string
	lists        [catalogue.Kinds]*catalogue.List
}

// restore returns the capabilities and lists of the last connection, unless they may depend on the caller or
// are not recorded. keep returns a list as it may be retained, or nil.
func (s *serverPins) restore(
	ctx context.Context, c pinCaller, keep func(catalogue.Kind, *catalogue.List) *catalogue.List,
) (found restoredServer, ok bool) {
	r := s.load(ctx)
	if r.Capabilities == nil || c.key != "" && !r.Common {
		return found, false
	}
	found = restoredServer{approvedAbout: approvedTexts(r, nil), capabilities: r.Capabilities, revision: r.Revision}
	for k := range found.lists {
		kind := catalogue.Kind(k)
		l := r.List(kind)
		if l != nil {
			l = keep(kind, l)
		}
		if l == nil {
			return found, false
		}
		held := r.Held(kind, l)
		if found.lists[k] = l.Hide(held); len(held) > 0 {
			s.waiting.Store(true)
		}
	}
	return found, true
}
