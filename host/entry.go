package host

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
)

// An entry is what the configuration says about a server. It never changes.
type entry struct {
	server   *config.Server // unexpanded; nil if the entry is invalid
	settings *config.ServerSettings
	invalid  error
	id       string                   // in public names
	local    bool                     // only the local user may use it
	options  *catalogue.ServerOptions // one for equal settings, so that catalogues share definitions
	pins     *pins.Server             // of its connections, nil for none; one for equal settings
}

// newEntry returns the entry of a file. It shares what is equal with an older one, which may be nil.
func newEntry(f *config.File, set *config.Settings, name string, old *entry) *entry {
	e := &entry{settings: set.Servers[name], id: f.ID(name), local: f.IsLocal(name)}
	if e.settings == nil {
		e.settings = &config.ServerSettings{}
	}
	e.server, e.invalid = f.Server(name)
	e.options = &catalogue.ServerOptions{Allow: e.settings.Allow, Deny: e.settings.Deny, Rename: e.settings.Rename,
		Describe: e.settings.Describe, HideArgs: e.settings.HideArgs}
	if old != nil && reflect.DeepEqual(old.options, e.options) {
		e.options = old.options
	}
	return e
}

// identity returns the identity of the server for its pins, and adds it to those of the entries before.
// Entries that differ in their variables or headers only, such as two accounts of one program, offer
// different definitions: the first has the identity of the server, and the others one with their name.
// Values of variables are not part of it: a new token does not make definitions unknown.
func (e *entry) identity(before map[string]bool) string {
	if e.server == nil {
		return ""
	}
	identity := e.server.Identity()
	if before[identity] {
		sum := sha256.Sum256([]byte(identity + " " + e.server.Name))
		identity = hex.EncodeToString(sum[:])
	}
	before[identity] = true
	return identity
}

// isCommand reports whether the server is a command, so that each connection is a process.
func (e *entry) isCommand() bool { return e.server == nil || e.server.Type == config.TypeStdio }

// dependsOnCaller reports whether the server receives a credential, a header or the subject of its
// caller. The lists of such a server may differ between callers.
func (e *entry) dependsOnCaller() bool {
	s := e.settings
	return e.server == nil || e.server.UsesCaller() || s.InsecureForwardAuthorization ||
		s.Auth == config.AuthCaller || s.Auth == config.AuthForward
}

// share returns the sharing mode. An instance serves one caller unless the configuration says
// otherwise.
func (e *entry) share() config.Share {
	if e.settings.Share != "" {
		return e.settings.Share
	}
	return config.ShareCaller
}

// A fingerprint identifies what a connection depends on: connections with different ones are not the
// same.
type fingerprint [sha256.Size]byte

func newFingerprintKey() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return key
}

// fingerprint returns the fingerprint of connections with an entry: of its present values, and of the
// settings that are those of a connection.
func (h *Host) fingerprint(e *entry) fingerprint {
	hash := sha256.New()
	if e.invalid != nil {
		fmt.Fprintf(hash, "invalid %q ", e.invalid)
	} else {
		sum := e.server.Fingerprint(h.fingerprintKey, h.opts.Lookup)
		hash.Write(sum[:])
	}
	s := e.settings
	if p := e.pins; p != nil {
		fmt.Fprintf(hash, "pins %s ", p.Fingerprint())
	}
	fmt.Fprintf(hash, "auth %q ", []any{s.Auth, fmt.Sprintf("%+v", s.OAuth), s.ForwardHeaders,
		s.InsecureForwardAuthorization})
	fmt.Fprintf(hash, "%q", []any{s.Era, s.Timeout, s.MaxTimeout, s.Roots, fmt.Sprintf("%+v", s.Limits)})
	return fingerprint(hash.Sum(nil))
}

// A serverSet is the servers and the settings of one configuration. It never changes; the entries of
// its servers do, with a reload.
type serverSet struct {
	settings  *config.Settings
	upstreams []*Upstream // in the order of the file
	byName    map[string]*Upstream
	entries   map[*Upstream]*entry
	sessions  bool // some server depends on Caller.Session
	// authorization of callers is forwarded to some server.
	authorization bool
}

// newServerSet returns the servers of a file, without those that are disabled. It has those of another
// set that can serve with the new entry; that set may be nil.
func (h *Host) newServerSet(f *config.File, old *serverSet) (*serverSet, error) {
	settings, err := f.Settings()
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	identities := map[string]bool{}
	set := &serverSet{settings: settings, byName: map[string]*Upstream{}, entries: map[*Upstream]*entry{}}
	for _, name := range f.Names() {
		var u *Upstream
		var last *entry
		if old != nil {
			if u = old.byName[name]; u != nil {
				last = u.entry()
			}
		}
		e := newEntry(f, settings, name, last)
		identity := e.identity(identities)
		if e.server != nil && e.server.Disabled {
			continue
		}
		if u == nil || e.invalid == nil && (e.isCommand() != u.isCommand() || e.share() != u.share()) {
			u, last = newUpstream(h, name, e), nil
		}
		e.pins = newPins(u, e, identity)
		if last != nil && e.pins.Equal(last.pins) {
			e.pins = last.pins
		}
		set.upstreams = append(set.upstreams, u)
		set.byName[name], set.entries[u] = u, e
		set.sessions = set.sessions || u.share() == config.ShareSession
		set.authorization = set.authorization || e.settings.InsecureForwardAuthorization
	}
	return set, nil
}
