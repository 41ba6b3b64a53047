package host

import (
	"fmt"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
)

// An entry contains the configuration of a server, and the pins of its connections. It never changes.
type entry struct {
	*server.Server
	pins *pins.Server // nil without pins; shared between equal settings
}

// fingerprint returns the fingerprint of connections with an entry.
func (h *Host) fingerprint(e *entry) server.Fingerprint {
	var pins string
	if e.pins != nil {
		pins = e.pins.Fingerprint()
	}
	return e.Fingerprint(h.fingerprintKey, h.opts.Lookup, pins)
}

// A serverSet contains the servers and the settings of a configuration. It never changes; a reload
// changes the entries of its servers.
type serverSet struct {
	settings  *config.Settings
	upstreams []*Upstream // in the order of the file
	byName    map[string]*Upstream
	entries   map[*Upstream]*entry
	sessions  bool // some server depends on Caller.Session
	// authorization of callers is forwarded to some server.
	authorization bool
}

// newServerSet returns the servers of a file that are not disabled. It keeps the servers of the old set,
// which may be nil, that can serve with the new entry.
func (h *Host) newServerSet(f *config.File, old *serverSet) (*serverSet, error) {
	settings, err := f.Settings()
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	identities := map[string]bool{}
	set := &serverSet{settings: settings, byName: map[string]*Upstream{}, entries: map[*Upstream]*entry{}}
	for _, name := range f.Names() {
		var u *Upstream
		last := &entry{}
		if old != nil {
			if u = old.byName[name]; u != nil {
				last = u.entry()
			}
		}
		e := &entry{Server: server.New(f, settings, name, last.Server)}
		identity := e.Identity(identities)
		if e.Config != nil && e.Config.Disabled {
			continue
		}
		if u == nil || e.Invalid == nil && (e.IsCommand() != u.isCommand() || e.Share() != u.share()) {
			u, last = newUpstream(h, name, e), &entry{}
		}
		e.pins = newPins(u, e, identity)
		if last.Server != nil && e.pins.Equal(last.pins) {
			e.pins = last.pins
		}
		set.upstreams = append(set.upstreams, u)
		set.byName[name], set.entries[u] = u, e
		set.sessions = set.sessions || u.share() == config.ShareSession
		set.authorization = set.authorization || e.Settings.InsecureForwardAuthorization
	}
	return set, nil
}
