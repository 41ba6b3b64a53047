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
	quarantined func(err error, found []*Pin)
	first       bool // approve the definitions of the first connection
	resources   bool // approve resources and templates when they are listed
	all         bool // approve every definition when it is listed
}

// A serverPins compares the definitions of one server with the record of the approved ones. It is safe
// for concurrent use.
type serverPins struct {
	pinOptions

	record  atomic.Pointer[pinRecord] // as last read or written; nil before
	err     atomic.Pointer[error]     // of the last access to the state
	waiting atomic.Bool               // a definition is quarantined

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
func (s *serverPins) load(ctx context.Context) *pinRecord {
	if r := s.record.Load(); r != nil {
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text, version, err := s.state.Get(ctx, pinsKind, s.identity)
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
func (s *serverPins) update(ctx context.Context, change func(r *pinRecord)) *pinRecord {
	s.mu.Lock()
	r, err := updatePins(ctx, s.state, s.identity, func(r *pinRecord) error {
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
	r := s.review(ctx, pinReview{kind: pinKinds[kind], found: definitionsOf(kind, l), caller: c.key,
		lists: !c.isPrivate()})
	return l.Hide(r.held(kind, l))
}

// review adds the definitions that were found for a caller to the record, and reports definitions that were
// not quarantined before.
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

// report passes on quarantined definitions.
func (s *serverPins) report(unknown []*Pin) {
	const limit = 3
	var all []string
	for _, p := range unknown[:min(len(unknown), limit)] {
		all = append(all, p.describe())
	}
	if len(unknown) > limit {
		all = append(all, fmt.Sprintf("and %d others", len(unknown)-limit))
	}
	s.quarantined(s.errorf("%s; %s", strings.Join(all, "; "), s.advice("")), unknown)
}

func (s *serverPins) errorf(format string, args ...any) error {
	return &Error{Code: CodeQuarantined, Server: s.server, Err: statement{fmt.Errorf(format, args...)}}
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
func (s *serverPins) refusal(ctx context.Context, k PinKind, name string) error {
	if err := s.err.Load(); err != nil {
		return &Error{Code: CodeQuarantined, Server: s.server, Err: fmt.Errorf("the definition of %s %.128q is not "+
			"known to be approved, because the file of approved definitions cannot be used: %w", k, name, *err)}
	}
	p := &Pin{Kind: k, Name: name}
	if item := s.load(ctx).kind(k).Items[name]; item != nil {
		p = item.pin(s.server, s.identity, k, name)
	}
	return s.errorf("quarantined: %s; %s", p.describe(), s.advice(name))
}

// refresh reports whether lists must be reviewed again, because another program has changed the record while
// definitions are quarantined.
func (s *serverPins) refresh(ctx context.Context) bool {
	if !s.waiting.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, version, err := s.state.Get(ctx, pinsKind, s.identity)
	same := err == nil && version == s.version && s.err.Load() == nil
	s.version = version
	if same || err != nil {
		return false
	}
	s.waiting.Store(false) // reviews set it again
	return true
}

// pins returns the pins of the server.
func (s *serverPins) pins(ctx context.Context) ([]*Pin, error) {
	if err := s.err.Load(); err != nil {
		return nil, fmt.Errorf("host: pins of server %.64q: %w", s.server, *err)
	}
	return s.load(ctx).pins(s.identity), nil
}

// Names of the pins of kind PinServer.
const (
	pinInstructions = "instructions"
	pinServerInfo   = "serverInfo"
)

// A serverAbout is the description that a server sends of itself, as definitions.
type serverAbout struct {
	found        []foundDefinition
	capabilities json.RawMessage
	revision     string
}

func (a *serverAbout) add(name string, value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		return
	}
	digest := catalogue.DigestOf(raw)
	a.found = append(a.found, foundDefinition{name, hex.EncodeToString(digest[:]), raw})
}

// approvedAbout contains the texts of a server that callers may see.
type approvedAbout struct {
	instructions string
	serverInfo   json.RawMessage
}

// reviewAbout returns the approved texts of a server: the last approved texts if the server's own are
// quarantined. The capabilities become part of the record unless they are nil.
func (s *serverPins) reviewAbout(ctx context.Context, c pinCaller, about *serverAbout) approvedAbout {
	r := s.review(ctx, pinReview{kind: PinServer, found: about.found, caller: c.key})
	if !c.isPrivate() && about.capabilities != nil {
		r = s.update(ctx, func(r *pinRecord) {
			if c.key == "" || r.Capabilities == nil {
				r.Capabilities, r.Revision, r.Common = about.capabilities, about.revision, !c.varies
			}
		})
	}
	return r.approved(about)
}

// approved returns the texts of a server that are approved. about is nil before the first connection.
func (r *pinRecord) approved(about *serverAbout) (a approvedAbout) {
	text := func(name string) json.RawMessage {
		item := r.kind(PinServer).Items[name]
		found := about == nil
		if about != nil {
			for _, d := range about.found {
				if d.name == name {
					found = true
					if item != nil && item.isApproved(d.digest) {
						return d.raw
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
	found = restoredServer{approvedAbout: r.approved(nil), capabilities: r.Capabilities, revision: r.Revision}
	for k := range found.lists {
		kind := catalogue.Kind(k)
		l := r.list(kind)
		if l != nil {
			l = keep(kind, l)
		}
		if l == nil {
			return found, false
		}
		held := r.held(kind, l)
		if found.lists[k] = l.Hide(held); len(held) > 0 {
			s.waiting.Store(true)
		}
	}
	return found, true
}
