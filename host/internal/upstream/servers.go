package upstream

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// Servers holds the servers of a host: the present set, and removed servers whose connections are
// still open. It is safe for concurrent use.
type Servers struct {
	*shared
	following sync.Once // see followPins
	current   atomic.Pointer[Set]
	secrets   atomic.Pointer[secretSet]

	leaving []*Server // removed, with open connections; guarded by the lock of shared
}

// New returns the servers of a host before the first configuration.
func New(env *Environment) *Servers {
	s := &Servers{shared: &shared{Environment: *env, key: server.NewFingerprintKey(), wake: make(chan struct{}, 1),
		freed: make(chan struct{}, 1)}}
	s.endIdle, s.leaseLost = s.endIdleProcess, s.endConnections
	s.processLimit = func() int { return s.Current().settings.Limits.Processes }
	return s
}

// Start makes a set the present one, and supervises its servers until the host is closed.
func (s *Servers) Start(set *Set) {
	s.current.Store(set)
	s.Go(s.supervise)
	s.startPins(set)
}

// Current returns the present set of servers.
func (s *Servers) Current() *Set { return s.current.Load() }

// All returns the servers of the configuration, and removed servers with open connections.
func (s *Servers) All() []*Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.Current().servers, s.leaving)
}

// Leaving returns the pool of a connection of a removed server, or nil: calls that wait for an
// answer of their caller continue there.
func (s *Servers) Leaving(name, conn string) *Pool {
	if conn == "" {
		return nil
	}
	s.mu.Lock()
	leaving := slices.Clone(s.leaving) // forgetRemoved changes the array
	s.mu.Unlock()
	for _, u := range leaving {
		if u.name != name {
			continue
		}
		if p := u.PoolOfConnection(conn); p != nil {
			return p
		}
	}
	return nil
}

// Processes returns the number of processes of all servers.
func (s *Servers) Processes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes.all
}

// A Diff contains the names of the servers that differ between two sets.
type Diff struct {
	Added, Removed []string
	// Changed contains the servers that are connected to again. Updated contains the servers whose
	// settings changed and that keep their connections.
	Changed, Updated []string
	// Reordered means that the servers of both sets have another order.
	Reordered bool
}

// Compare returns the differences between the present set and another set, which is not yet in use.
func (s *Servers) Compare(set *Set) *Diff {
	d := &Diff{}
	old := s.Current()
	var kept, now []string
	for _, u := range old.servers {
		if set.byName[u.name] == nil {
			d.Removed = append(d.Removed, u.name)
			continue
		}
		kept = append(kept, u.name)
	}
	for _, u := range set.servers {
		last, e := old.byName[u.name], set.entries[u]
		if last == nil {
			d.Added = append(d.Added, u.name)
			continue
		}
		now = append(now, u.name)
		before, wanted := last.entry(), set.wanted[u]
		switch {
		case last != u || s.fingerprint(before) != wanted || u.hasOutdated(wanted):
			d.Changed = append(d.Changed, u.name)
		case before.ID != e.ID || !reflect.DeepEqual(before.Settings, e.Settings):
			d.Updated = append(d.Updated, u.name)
		}
	}
	d.Reordered = !slices.Equal(kept, now)
	return d
}

// Use makes a set the present set. Requests use it from now on; the caller must then call
// [Servers.Settle].
func (s *Servers) Use(set *Set) (old *Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old = s.Current()
	for u, e := range set.entries {
		u.current.Store(e)
	}
	for name, u := range old.byName {
		if set.byName[name] != u {
			s.leaving = append(s.leaving, u)
		}
	}
	s.current.Store(set)
	return old
}

// Settle ends the servers that are not part of the present set, and replaces the connections of the
// changed servers.
func (s *Servers) Settle(old *Set, changed []string) {
	set := s.Current()
	s.startPins(set)
	for name, u := range old.byName {
		if n := set.byName[name]; n != u {
			u.remove(n)
		}
	}
	for u := range set.entries {
		changed := slices.Contains(changed, u.name)
		if changed {
			u.logins.Forget()
		}
		u.reconfigure(set.wanted[u], changed)
		u.ApplyLimits()
	}
}

// forgetRemoved forgets removed servers without connections.
func (s *Servers) forgetRemoved() {
	gone := slices.DeleteFunc(s.All(), func(u *Server) bool { return !u.isGone() })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = slices.DeleteFunc(s.leaving, func(u *Server) bool { return slices.Contains(gone, u) })
}

// A Set contains the servers and the settings of a configuration. It never changes; a reload
// changes the entries of its servers.
type Set struct {
	settings *config.Settings
	servers  []*Server // in the order of the file
	byName   map[string]*Server
	entries  map[*Server]*entry
	wanted   map[*Server]server.Fingerprint // of connections
	// sessions means that some server depends on the session of its caller, and authorization that the
	// authorization of callers is forwarded to some server.
	sessions, authorization bool
}

// Settings returns the settings of the configuration.
func (s *Set) Settings() *config.Settings { return s.settings }

// Servers returns the servers that are not disabled, in the order of the file.
func (s *Set) Servers() []*Server { return s.servers }

// Named returns the server with a name, or nil.
func (s *Set) Named(name string) *Server { return s.byName[name] }

// Entry returns the entry of a server in the configuration of the set, nil if the set does not contain
// the server.
func (s *Set) Entry(u *Server) *server.Server {
	if e := s.entries[u]; e != nil {
		return e.Server
	}
	return nil
}

// IsLocal reports whether only the local user may use a server.
func (s *Set) IsLocal(u *Server) bool {
	e := s.entries[u]
	return e != nil && e.Local
}

// InProfile reports whether a profile contains a server. An unknown profile contains no server.
func (s *Set) InProfile(profile, server string) bool {
	if profile == "" {
		return true
	}
	p := s.settings.Profiles[profile]
	return p != nil && (len(p.Servers) == 0 || slices.Contains(p.Servers, server))
}

// Opens reports whether a caller may use a server, which may no longer be part of the configuration.
func (s *Set) Opens(c *policy.Caller, u *Server) bool {
	return (c.Server == "" || u.name == c.Server) && s.InProfile(c.Profile, u.name) && c.HasServer(u.name) &&
		(c.Principal == nil || !s.IsLocal(u))
}

// HasSessions reports whether some server depends on the session of its caller.
func (s *Set) HasSessions() bool { return s.sessions }

// ForwardsAuthorization reports whether the authorization of callers is forwarded to some server.
func (s *Set) ForwardsAuthorization() bool { return s.authorization }

// NewSet returns the servers of a file that are not disabled. It keeps the servers of the present set
// that can serve with the new entry.
func (s *Servers) NewSet(f *config.File) (*Set, error) {
	settings, err := f.Settings()
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	identities, old := map[string]bool{}, s.Current()
	set := &Set{settings: settings, byName: map[string]*Server{},
		entries: map[*Server]*entry{}, wanted: map[*Server]server.Fingerprint{}}
	for _, name := range f.Names() {
		var u *Server
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
		if u == nil || e.Invalid == nil && (e.IsCommand() != u.isCommand() || e.Share() != u.sharing) {
			u, last = newServer(s, name, e), &entry{}
		}
		if e.Share() == config.ShareCluster && s.Cluster == nil && e.Invalid == nil {
			e.Invalid = errNoCluster
		}
		e.pins = newPins(u, e, identity)
		if last.Server != nil && e.pins.Equal(last.pins) {
			e.pins = last.pins
		}
		set.servers = append(set.servers, u)
		set.byName[name], set.entries[u] = u, e
		if old != nil { // the first connections need no comparison
			set.wanted[u] = s.fingerprint(e)
		}
		set.sessions = set.sessions || u.Share() == config.ShareSession
		set.authorization = set.authorization || e.Settings.InsecureForwardAuthorization
	}
	return set, nil
}

// A secretSet contains the secrets of all servers, the longest first: a secret may contain another
// secret.
type secretSet struct {
	version uint64 // of Servers.secretsVersion
	texts   []string
}

// Mask replaces the secrets of all servers in a text.
func (s *Servers) Mask(text string) string {
	version := s.secretsVersion.Load()
	if set := s.secrets.Load(); set != nil && set.version == version {
		return maskAll(text, set.texts)
	}
	var all []string
	for _, u := range s.All() {
		if secrets := u.secrets.Load(); secrets != nil {
			all = append(all, *secrets...)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	all = slices.Compact(all)
	s.secrets.Store(&secretSet{version, all})
	return maskAll(text, all)
}

func newServer(s *Servers, name string, e *entry) *Server {
	u := &Server{failures: &failures{env: s.shared, name: name}, counts: &counts{}, command: e.IsCommand(),
		sharing: e.Share(), pools: map[string]*Pool{}, connections: map[*Conn]struct{}{}}
	u.lists = listing.NewMemory(name, s.Logger, func() { dropLists(u, 0) })
	u.current.Store(e)
	u.logins = newLogins(u)
	u.limits = s.Limits.NewServer(name, e.Settings)
	u.requests = u.limits.NewQueue(true)
	if !u.command { // otherwise each process of the host starts its own process of the server
		u.requests.Divide()
	}
	return u
}
