package routes

import (
	"log/slog"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
)

// Extensions that a host routes for several servers; see the packages ext/apps and ext/skills.
const (
	ExtensionApps   = "io.modelcontextprotocol/ui"
	ExtensionSkills = "io.modelcontextprotocol/skills"
)

// mergesExtension reports whether several servers may declare an extension, because the host routes its
// requests. Nothing in the requests of other extensions identifies a server.
func mergesExtension(id string, _ []string) bool {
	return id == task.Extension || id == ExtensionApps || id == ExtensionSkills || id == listing.ExtensionEvents
}

// A Snapshot is the merged catalogue of a caller, with the lists that it contains. It never changes,
// except for the pages that were made of it.
type Snapshot struct {
	// Catalogue contains the items of all servers.
	Catalogue *catalogue.Catalogue

	servers *Servers
	lists   [][catalogue.Kinds]*catalogue.List // of servers.All; an unknown list is nil
	byName  map[string]Server
	epoch   uint64 // of the policy
	pages   pages
}

// Server returns the server with a name, nil for an unknown name.
func (m *Snapshot) Server(name string) Server { return m.byName[name] }

// merge merges lists of the servers, in the order of s.All.
func merge(o *Options, s *Servers, lists [][catalogue.Kinds]*catalogue.List) *Snapshot {
	m := &Snapshot{servers: s, lists: lists, byName: map[string]Server{}, epoch: o.Epoch()}
	servers := make([]catalogue.Server, len(s.All))
	for n, p := range s.All {
		m.byName[p.Name()] = p
		servers[n] = offers(p, lists[n])
	}
	m.Catalogue = catalogue.Merge(servers, o.catalogue(s))
	if o.HasPolicy() && hideInstructions(servers, m.Catalogue) {
		m.Catalogue = catalogue.Merge(servers, o.catalogue(s))
	}
	for _, problem := range m.Catalogue.Problems() {
		level := slog.LevelDebug
		if problem.Severity == catalogue.Misconfigured && o.Misnamed.isFirst(problem) {
			level = slog.LevelWarn // the user misses an item that the server offers
		}
		o.Logger.Log(o.Context, level, "host: item of a list", "server", problem.Server, "list",
			problem.Kind, "name", problem.Name, "severity", problem.Severity, "problem", problem.Reason)
	}
	return m
}

// offers returns a server with its lists.
func offers(s Server, lists [catalogue.Kinds]*catalogue.List) catalogue.Server {
	e, about := s.Entry(), s.Lists().About()
	return catalogue.Server{Name: s.Name(), ID: e.ID, Lists: lists, Options: e.Options,
		Capabilities: about.Capabilities, Instructions: about.Instructions}
}

// catalogue returns the options of a merged catalogue.
func (o *Options) catalogue(s *Servers) *catalogue.Options {
	set := s.Settings
	all := &catalogue.Options{Single: s.Single, MaxName: set.Names.Max, OwnInstructions: o.Instructions,
		Extension: mergesExtension, Webhooks: o.Webhooks()}
	if !s.Single {
		all.ReservedNames = searchNames
		if s.Logins {
			all.ReservedNames = slices.Concat(searchNames, loginNames)
		}
	}
	switch set.Names.Mode {
	case config.NamesConflict:
		all.Names = catalogue.PrefixedConflicts
	case config.NamesNone:
		all.Names = catalogue.Unprefixed
	}
	if p := set.Profiles[o.Caller.Profile]; p != nil {
		all.ToolGlobs = p.Tools
	}
	if filters := o.Filters(); len(filters) > 0 {
		all.Visible = func(item *catalogue.Item) bool {
			return !slices.ContainsFunc(filters, func(accepts Filter) bool { return !accepts(item) })
		}
	}
	return all
}

// hideInstructions removes the instructions of servers without a visible item, also before their lists were
// read. It reports whether it removed any.
func hideInstructions(servers []catalogue.Server, c *catalogue.Catalogue) (removed bool) {
	for n := range servers {
		if s := &servers[n]; s.Instructions != "" && !showsItems(s, c) {
			s.Instructions, removed = "", true
		}
	}
	return removed
}

// Shows reports whether the caller sees an item of the server, or the server offers no items.
func (m *Snapshot) Shows(s Server) bool {
	shown := offers(s, s.Lists().Fresh())
	return showsItems(&shown, m.Catalogue)
}

// showsItems reports whether a catalogue contains an item of a server, or the server offers no items.
func showsItems(s *catalogue.Server, c *catalogue.Catalogue) bool {
	offers := false
	for kind := range catalogue.Kinds {
		list := s.Lists[kind]
		offers = offers || list == nil || list.Len() > 0
		for _, item := range c.Items(catalogue.Kind(kind)) {
			if item.Server == s.Name {
				return true
			}
		}
	}
	return !offers
}
