package catalogue

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// Merge joins the lists of servers, which must be in the order of the configuration. It never
// fails: it leaves out items that cannot be listed, and [Catalogue.Problems] describes them. Nil
// options mean the defaults.
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
	for _, k := range []Kind{Prompts, Tools, Events} { // after the routes: tools name the URIs of their views
		c.addNames(k)
		c.finish(k)
	}
	c.search = sync.OnceValue(func() *index { return newIndex(c.kinds[Tools].items) })
	c.instructions = sync.OnceValue(c.newInstructions)
	c.capabilities = sync.OnceValue(c.newCapabilities)
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
			c.problem(Misconfigured, s.Name, Tools, "",
				fmt.Sprintf("the id %q is invalid or that of another server", s.ID))
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

// addNames adds the tools, prompts or types of events of all servers under their public names.
func (c *Catalogue) addNames(k Kind) {
	n := naming{mode: c.options.Names, max: c.options.MaxName, claims: map[string]claim{}}
	count := c.count(k)
	n.items = make([]candidate, 0, count)
	c.kinds[k].items = make([]*Item, 0, count)
	n.reserve(c.options.ReservedNames)
	for _, s := range c.servers {
		for _, e := range s.entries(k) {
			wanted := e.original
			if name := s.Options.Rename[wanted]; name != "" {
				wanted = name
			}
			n.items = append(n.items, candidate{server: s, entry: e, wanted: wanted})
			s.views = s.views || e.view != ""
		}
	}
	if c.options.Single {
		n.assignWanted()
	} else {
		n.assign()
	}
	for i := range n.items {
		d := &n.items[i]
		if d.step == stepEnd {
			c.problem(Misconfigured, d.server.Name, k, d.entry.original,
				fmt.Sprintf("another item has the public name %q", d.wanted))
			continue
		}
		if d.step > stepPrefixed && n.nameAt(d, stepPrefixed) != "" {
			c.problem(Flagged, d.server.Name, k, d.entry.original,
				fmt.Sprintf("several items have the name %q: the public one is %q", d.wanted, d.name))
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
	visible := k != Tools || c.options.ToolGlobs == nil || MatchAny(c.options.ToolGlobs, public)
	if visible && c.options.Visible != nil {
		visible = c.options.Visible(item)
	}
	if visible && s.Lists[k].Hides(e.original) {
		visible = false
		if c.kinds[k].hidden == nil {
			c.kinds[k].hidden = map[string]*Item{}
		}
		c.kinds[k].hidden[public] = item
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
	if s.Lists[k].Len() == 0 || s.Lists[k].kind != k {
		return nil
	}
	all, o := s.Lists[k].entries, s.Options
	if k != Tools || o.Allow == nil && o.Deny == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(e *entry) bool {
		return o.Allow != nil && !MatchAny(o.Allow, e.original) || MatchAny(o.Deny, e.original)
	})
}

// Problems returns the problems of the catalogue and of its lists: items that are left out, and
// items that a user should look at, but not the names that [Catalogue.Alike] returns. They include
// items that the caller must not see.
func (c *Catalogue) Problems() []Problem { return c.problems }

// Items returns the visible items of a kind in the order of the list. The caller must not change
// the slice.
func (c *Catalogue) Items(k Kind) []*Item { return c.kinds[k].items }

// Find returns the visible item with a public name, URI or template, or nil.
func (c *Catalogue) Find(k Kind, public string) *Item { return c.kinds[k].public[public] }

// Equal reports whether a client sees no difference between two lists of the kind. Then it needs no
// notification.
func (c *Catalogue) Equal(k Kind, other *Catalogue) bool {
	return slices.EqualFunc(c.kinds[k].items, other.kinds[k].items, func(a, b *Item) bool {
		return a == b || a.Public == b.Public && string(a.body) == string(b.body)
	})
}
