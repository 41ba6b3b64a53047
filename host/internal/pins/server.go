// Package pins compares the definitions that servers send with the approved definitions. It knows a state store
// and the lists of connections; it does not know callers, connections and views.
package pins

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/pinrecord"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/state"
)

// Options configures a [Server].
type Options struct {
	Server   string // name in the configuration
	Identity string // key of the record
	State    state.Store
	Logger   *slog.Logger
	// Quarantined receives definitions that were not quarantined before, with an error that describes them.
	Quarantined func(err error, found []*pin.Pin)
	First       bool // approve the definitions of the first connection
	Resources   bool // approve resources and templates when they are listed
	All         bool // approve every definition when it is listed
}

// A Server compares the definitions of a server with the record of approved definitions. It is safe
// for concurrent use.
type Server struct {
	options Options

	record  atomic.Pointer[pinrecord.Record] // as last read or written, without texts; nil before
	err     atomic.Pointer[error]            // of the last access to the state
	waiting atomic.Bool                      // a definition is quarantined

	mu      sync.Mutex // held while the state is used; guards version
	version uint64     // as last read by refresh
}

// A Caller identifies the caller that a server sent definitions for.
type Caller struct {
	Key    string // empty for the local user, and for all callers of a shared server
	Varies bool   // the lists of the server may depend on the caller
}

// IsPrivate reports whether lists may be for the caller only.
func (c Caller) IsPrivate() bool { return c.Key != "" && c.Varies }

// New returns the pins of a server.
func New(o Options) *Server { return &Server{options: o} }

// Equal reports whether two pins of a server decide in the same way about the same record.
func (s *Server) Equal(o *Server) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.Fingerprint() == o.Fingerprint() && s.options.All == o.options.All
}

// Fingerprint returns a text that changes if connections must be reviewed again.
func (s *Server) Fingerprint() string {
	return fmt.Sprintf("%q %t %t", s.options.Identity, s.options.First, s.options.Resources)
}

// load returns the record without the texts that DropTexts drops. It is read from the state once, and is empty if
// that fails.
func (s *Server) load(ctx context.Context) *pinrecord.Record {
	if r := s.record.Load(); r != nil {
		return r
	}
	r, err := s.read(ctx)
	if err == nil {
		s.keep(r)
	}
	return r
}

// keep keeps a record that was read without an error, unless a record is kept already. It drops the texts of lists:
// they would take most of the memory of a host.
func (s *Server) keep(r *pinrecord.Record) {
	r.DropTexts()
	s.record.CompareAndSwap(nil, r)
}

// read returns a record that the caller may change: the record in the state or, if that cannot be read, an empty
// record and the error.
func (s *Server) read(ctx context.Context) (*pinrecord.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, version, err := pinrecord.Get(ctx, s.options.State, s.options.Identity)
	s.failed(err)
	if err != nil {
		r, _ = pinrecord.Decode(nil)
	} else if s.record.Load() == nil {
		s.version = version
	}
	return r, err
}

// failed stores the outcome of an access to the state.
func (s *Server) failed(err error) {
	if err == nil {
		s.err.Store(nil)
		return
	}
	s.waiting.Store(true)
	if s.err.Swap(&err) == nil {
		s.options.Logger.Error("host: pins not stored: definitions that were not approved before are quarantined",
			"server", s.options.Server, "error", err)
	}
}

// update changes the record. If the state cannot be used, the last record remains.
func (s *Server) update(ctx context.Context, change func(r *pinrecord.Record)) *pinrecord.Record {
	s.mu.Lock()
	r, err := pinrecord.Update(ctx, s.options.State, s.options.Identity, func(r *pinrecord.Record) error {
		r.Server = s.options.Server
		change(r)
		return nil
	})
	s.failed(err)
	if err == nil {
		r.DropTexts()
		s.record.Store(r)
	}
	s.mu.Unlock()
	if err != nil {
		return s.load(ctx)
	}
	return r
}

// Review returns a list of a connection, in which definitions that are not approved are hidden.
func (s *Server) Review(
	ctx context.Context, c Caller, kind catalogue.Kind, l *catalogue.List,
) *catalogue.List {
	if s == nil || l == nil {
		return l
	}
	v := &pinrecord.Review{Kind: pinrecord.Kinds[kind], Found: pinrecord.FindAll(kind, l),
		Caller: c.Key, Lists: !c.IsPrivate()}
	return l.Hide(s.review(ctx, v, func(*pinrecord.Record) {}).Held(v.Kind, v.Found))
}

// review adds the definitions that were found for a caller to the record, with a further change. It reports
// definitions that were not quarantined before.
func (s *Server) review(
	ctx context.Context, v *pinrecord.Review, further func(r *pinrecord.Record),
) *pinrecord.Record {
	v.First = s.options.First
	isResource := v.Kind == string(pin.Resource) || v.Kind == string(pin.Template)
	v.Approve = s.options.All || s.options.Resources && isResource
	v.Added = s.options.First && v.Kind == string(pin.Resource)
	var quarantined []string
	r := s.update(ctx, func(r *pinrecord.Record) {
		quarantined = v.Apply(r)
		further(r)
	})
	if len(r.Held(v.Kind, v.Found)) > 0 {
		s.waiting.Store(true)
	}
	if len(quarantined) > 0 && s.err.Load() == nil {
		var pins []*pin.Pin
		for _, name := range quarantined {
			pins = append(pins, newPin(s.options.Identity, r, v.Kind, name))
		}
		s.report(pins)
	}
	return r
}

// report passes on quarantined definitions.
func (s *Server) report(unknown []*pin.Pin) {
	const limit = 3
	var all []string
	for _, p := range unknown[:min(len(unknown), limit)] {
		all = append(all, p.Describe())
	}
	if len(unknown) > limit {
		all = append(all, fmt.Sprintf("and %d others", len(unknown)-limit))
	}
	s.options.Quarantined(s.errorf("%s; %s", strings.Join(all, "; "), s.advice("")), unknown)
}

func (s *Server) errorf(format string, args ...any) error {
	return hosterr.Errorf(hosterr.CodeQuarantined, s.options.Server, format, args...)
}

// advice returns the commands that show and approve definitions of the server.
func (s *Server) advice(name string) string {
	target := s.options.Server
	if name != "" {
		target += "/" + name
	}
	return fmt.Sprintf("compare with: patchbay gateway pins --diff %.200q; approve with: "+
		"patchbay gateway approve --pins %.200q", target, target)
}

// Refusal returns the error of a request for a quarantined definition.
func (s *Server) Refusal(ctx context.Context, k pin.Kind, name string) error {
	if err := s.err.Load(); err != nil {
		return &hosterr.Error{Code: hosterr.CodeQuarantined, Server: s.options.Server, Err: fmt.Errorf(
			"the definition of %s %.128q is not known to be approved, because the file of approved definitions "+
				"cannot be used: %w", k, name, *err)}
	}
	p := newPin(s.options.Identity, s.load(ctx), string(k), name)
	return s.errorf("quarantined: %s; %s", p.Describe(), s.advice(name))
}

// Refresh reports whether lists must be reviewed again, because another program has changed the record while
// definitions are quarantined.
func (s *Server) Refresh(ctx context.Context) bool {
	if !s.waiting.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	version, err := pinrecord.Version(ctx, s.options.State, s.options.Identity)
	same := err == nil && version == s.version && s.err.Load() == nil
	s.version = version
	if same || err != nil {
		return false
	}
	s.waiting.Store(false) // reviews set it again
	return true
}

// Pins returns the pins of the server.
func (s *Server) Pins(ctx context.Context) (pins []*pin.Pin, err error) {
	r, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("host: pins of server %.64q: %w", s.options.Server, err)
	}
	for _, n := range r.Names() {
		pins = append(pins, newPin(s.options.Identity, r, n.Kind, n.Name))
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
