package catalogue

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// A Server is one server of a catalogue, with what it offers to the caller.
type Server struct {
	// Name is the server's name in the configuration, unique.
	Name string
	// ID is the prefix of its public names. Default: as [IDs] returns it.
	ID string
	// Lists are the server's lists by kind; nil ones are empty.
	Lists [Kinds]*List
	// Capabilities is the server's declaration, an object; nil for none.
	Capabilities json.RawMessage
	// Instructions is the server's own text.
	Instructions string
	// Options are the server's settings; nil for none. They must not change any more. Catalogues
	// share definitions only if they have the same pointer.
	Options *ServerOptions
}

// ServerOptions are the settings of one server's tools. All names are original names.
type ServerOptions struct {
	// Allow has globs of the tools that are used; nil for all. Deny has globs of those that are not.
	// In a glob * stands for any text and ? for one character; letters match in their own case only.
	Allow, Deny []string
	// Rename maps tools and prompts to the names that they have instead. Prefixes are added as to
	// original names.
	Rename map[string]string
	// Describe maps tools to the descriptions that they have instead.
	Describe map[string]string
	// HideArgs maps tools to the arguments that their input schema does not show.
	HideArgs map[string][]string
}

// Options are the settings of a catalogue.
type Options struct {
	// Names is the mode of public names. Default: Prefixed.
	Names NameMode
	// MaxName is the maximum length of public names in bytes. Default: DefaultMaxName. Values beyond
	// MinMaxName and MaxMaxName are changed to these.
	MaxName int
	// Single keeps all names and URIs of the only server, except configured ones.
	Single bool
	// ToolGlobs has globs of the public names of the tools that the caller may see; nil for all.
	ToolGlobs []string
	// Visible reports whether the caller may see an item. Default: all items. It must not change
	// its answer while the catalogue is in use.
	Visible func(*Item) bool
	// ReservedNames are public names that no item gets.
	ReservedNames []string
	// Instructions says which instructions the catalogue has. Default: MergedInstructions.
	Instructions InstructionMode
	// OwnInstructions is the text in front of those of the servers.
	OwnInstructions string
	// Extension reports whether the catalogue declares an extension that several servers declare.
	// An extension of a single server is always declared. Default: no.
	Extension func(id string, servers []string) bool
}

// A Catalogue is what one caller sees of several servers. It is immutable and safe for concurrent
// use.
type Catalogue struct {
	servers  []*member
	byName   map[string]*member // servers
	kinds    [Kinds]section
	problems []Problem
	options  Options
	routes   routes

	search func() *index // built on first use
}

// A member is a server in a catalogue.
type member struct {
	Server
	position int
	mapped   map[string]string          // original URIs and templates with their public ones, if they differ
	hidden   [Kinds]map[string]struct{} // original names of items that the caller may not see
}

// A section has the visible items of one kind.
type section struct {
	items  []*Item          // in the order of the list
	public map[string]*Item // by public name, URI or template
	pages  func() []page    // built on first use
}

// Merge joins the lists of servers, which are in the order of the configuration. It never fails:
// what cannot be listed is left out and described by [Catalogue.Problems]. Nil options mean the
// defaults.
func Merge(servers []Server, o *Options) *Catalogue {
	c := &Catalogue{byName: map[string]*member{}}
	if o != nil {
		c.options = *o
	}
	c.options.MaxName = min(max(cmp.Or(c.options.MaxName, DefaultMaxName), MinMaxName), MaxMaxName)
	c.addServers(servers)
	for _, k := range []Kind{Templates, Resources} {
		c.addURIs(k)
		c.finish(k)
	}
	c.addRoutes()
	for _, k := range []Kind{Prompts, Tools} { // after the routes: tools name the URIs of their views
		c.addNames(k)
		c.finish(k)
	}
	c.search = sync.OnceValue(func() *index { return newIndex(c.kinds[Tools].items) })
	return c
}

func (c *Catalogue) addServers(servers []Server) {
	if c.options.Single && len(servers) > 1 {
		c.problem(Misconfigured, servers[1].Name, Tools, "", "only the first server can have unchanged names")
		servers = servers[:1]
	}
	names := make([]string, len(servers))
	for i := range servers {
		names[i] = servers[i].Name
	}
	var ids []string
	used := map[string]bool{}
	for i, s := range servers {
		if s.ID == "" {
			if ids == nil {
				ids = IDs(names)
			}
			s.ID = ids[i]
		}
		if s.Options == nil {
			s.Options = noOptions
		}
		switch {
		case c.byName[s.Name] != nil:
			c.problem(Misconfigured, s.Name, Tools, "", "two servers have this name: the first is used")
			continue
		case !isServerID(s.ID) || used[s.ID]:
			c.problem(Misconfigured, s.Name, Tools, "", fmt.Sprintf("the id %q is invalid or that of another server", s.ID))
			continue
		}
		used[s.ID] = true
		m := &member{Server: s, position: i}
		c.servers = append(c.servers, m)
		c.byName[s.Name] = m
		for _, l := range s.Lists {
			for _, p := range l.Problems() {
				c.problem(p.Severity, s.Name, p.Kind, p.Name, p.Reason)
			}
		}
	}
}

var noOptions = &ServerOptions{}

func (c *Catalogue) problem(severity Severity, server string, kind Kind, name, reason string) {
	c.problems = append(c.problems, Problem{severity, server, kind, name, reason})
}

// addNames adds the tools or prompts of all servers under their public names.
func (c *Catalogue) addNames(k Kind) {
	n := naming{mode: c.options.Names, max: c.options.MaxName, claims: make(map[string]claim, c.count(k))}
	n.items = make([]candidate, 0, c.count(k))
	n.reserve(c.options.ReservedNames)
	for _, s := range c.servers {
		for _, e := range s.entries(k) {
			wanted := e.original
			if name := s.Options.Rename[wanted]; name != "" {
				wanted = name
			}
			n.items = append(n.items, candidate{server: s, entry: e, wanted: wanted})
		}
	}
	if c.options.Single {
		n.keep()
	} else {
		n.assign()
	}
	for i := range n.items {
		d := &n.items[i]
		if d.step == stepEnd {
			c.problem(Misconfigured, d.server.Name, k, d.entry.original, fmt.Sprintf("%q is the name of another item", d.wanted))
			continue
		}
		c.add(d.server, d.entry, d.name)
	}
}

// addURIs adds the resources or templates of all servers.
func (c *Catalogue) addURIs(k Kind) {
	owners := make(map[string]*member, c.count(k))
	c.routes.owners[k-Resources] = owners
	for _, s := range c.servers {
		for _, e := range s.entries(k) {
			public := e.original
			if (owners[public] != nil || isMapped(public)) && !c.options.Single {
				public = mapURI(s.ID, e.original, k == Templates)
				if s.mapped == nil {
					s.mapped = map[string]string{}
				}
				s.mapped[e.original] = public
			}
			owners[public] = s
			c.add(s, e, public)
		}
	}
}

// add adds an item, unless the caller may not see it.
func (c *Catalogue) add(s *member, e *entry, public string) {
	item := c.build(s, e, public)
	k := e.kind
	visible := k != Tools || c.options.ToolGlobs == nil || matchAny(c.options.ToolGlobs, public)
	if visible && c.options.Visible != nil {
		visible = c.options.Visible(item)
	}
	if !visible {
		if s.hidden[k] == nil {
			s.hidden[k] = map[string]struct{}{}
		}
		s.hidden[k][e.original] = struct{}{}
		return
	}
	c.kinds[k].items = append(c.kinds[k].items, item)
}

func (c *Catalogue) finish(k Kind) {
	s := &c.kinds[k]
	s.public = make(map[string]*Item, len(s.items))
	for _, item := range s.items {
		s.public[item.Public] = item
	}
	s.pages = sync.OnceValue(func() []page { return c.newPages(k) })
}

// count returns the number of items that servers list.
func (c *Catalogue) count(k Kind) (n int) {
	for _, s := range c.servers {
		n += s.Lists[k].Len()
	}
	return n
}

// entries returns the items that the server's settings allow, by original name.
func (s *member) entries(k Kind) []*entry {
	if s.Lists[k].Len() == 0 {
		return nil
	}
	all, o := s.Lists[k].entries, s.Options
	if k != Tools || o.Allow == nil && o.Deny == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(e *entry) bool {
		return o.Allow != nil && !matchAny(o.Allow, e.original) || matchAny(o.Deny, e.original)
	})
}

// Problems returns what was left out of the catalogue and of its lists, and what should be looked
// at, by server and kind. It includes names that look alike; see [Catalogue.Alike].
func (c *Catalogue) Problems() []Problem { return c.problems }

// Items returns the visible items of a kind in the order of the list. The caller must not change
// the slice.
func (c *Catalogue) Items(k Kind) []*Item { return c.kinds[k].items }

// Find returns the visible item with a public name, URI or template; nil if there is none.
func (c *Catalogue) Find(k Kind, public string) *Item { return c.kinds[k].public[public] }

// Equal reports whether a client sees no difference between two lists of the kind. Then it needs no
// notification.
func (c *Catalogue) Equal(k Kind, other *Catalogue) bool {
	return slices.EqualFunc(c.kinds[k].items, other.kinds[k].items, func(a, b *Item) bool {
		return a == b || string(a.Definition) == string(b.Definition)
	})
}

// matchAny reports whether one of the globs matches all of s.
func matchAny(globs []string, s string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { return matchGlob(g, s) })
}

// matchGlob reports whether a glob matches all of s, in time at most len(glob) times len(s).
func matchGlob(glob, s string) bool {
	g, t := []rune(glob), []rune(s)
	i, j, star, from := 0, 0, -1, 0
	for j < len(t) {
		switch {
		case i < len(g) && g[i] == '*':
			star, from = i, j
			i++
		case i < len(g) && (g[i] == '?' || g[i] == t[j]):
			i++
			j++
		case star >= 0: // the last * takes one more character
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	for i < len(g) && g[i] == '*' {
		i++
	}
	return i == len(g)
}
