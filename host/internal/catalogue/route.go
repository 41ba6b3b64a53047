package catalogue

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/uritemplate"
)

// A Route is where a request for a URI goes.
type Route struct {
	Server string // the name in the configuration
	URI    string // the URI as the server knows it
	Item   *Item  // the resource or template; nil for a mapped URI that belongs to neither
}

// routes find the server of a URI.
type routes struct {
	owners    [2]map[string]*member // of listed resources and templates, visible or not, by public URI
	templates []*routeTemplate      // the templates that the caller may see, the most specific first
	byID      map[string]*member    // servers
}

// A routeTemplate is a template whose pattern is compiled on first use.
type routeTemplate struct {
	item    *Item
	literal int                          // bytes outside expressions
	prefix  string                       // with which all its URIs begin
	matches func() func(uri string) bool // compiles the pattern
}

func (c *Catalogue) addRoutes() {
	r := &c.routes
	r.byID = make(map[string]*member, len(c.servers))
	for _, s := range c.servers {
		r.byID[s.ID] = s
	}
	for _, item := range c.kinds[Templates].items {
		t, err := uritemplate.Parse(item.Original)
		if err != nil {
			continue // check has parsed it
		}
		r.templates = append(r.templates, &routeTemplate{item, t.LiteralLen(), t.LiteralPrefix(),
			sync.OnceValue(func() func(string) bool { return matcher(t) })})
	}
	slices.SortStableFunc(r.templates, func(a, b *routeTemplate) int { return cmp.Compare(b.literal, a.literal) })
}

// matcher returns a function that reports whether a URI is an expansion of the template. A template
// whose pattern is too complex matches no URI.
func matcher(t *uritemplate.Template) func(uri string) bool {
	lists := map[string]bool{}
	for _, expression := range strings.Split(t.String(), "{")[1:] {
		expression, _, _ = strings.Cut(expression, "}")
		for spec := range strings.SplitSeq(strings.TrimLeft(expression, "+#./;?&"), ",") {
			if name, exploded := strings.CutSuffix(spec, "*"); exploded {
				lists[name] = true
			}
		}
	}
	m, err := t.Matcher(lists)
	if err != nil {
		return func(string) bool { return false }
	}
	return func(uri string) bool {
		_, ok := m.Match(uri)
		return ok
	}
}

// matchBudget limits the bytes that are compared with templates for a request or result: a URI of
// usual length with thousands of templates, or the longest URI with 32 templates. A hostile
// template takes about 300 ns for a byte.
const matchBudget = 256 << 10

// template returns the most specific template for a URI, among the templates of a server, or among
// all templates with their own text if s is nil. The budget holds the rest of matchBudget.
func (r *routes) template(uri string, s *member, budget *int) *Item {
	if len(uri) > uritemplate.MaxLength {
		return nil
	}
	for _, t := range r.templates {
		if s == nil && t.item.Public != t.item.Original || s != nil && t.item.Server != s.Name {
			continue
		}
		if !strings.HasPrefix(uri, t.prefix) {
			continue
		}
		if *budget -= len(uri); *budget < 0 {
			return nil
		}
		if t.matches()(uri) {
			return t.item
		}
	}
	return nil
}

// Route returns the server of a public URI: the server of the resource with the URI, of a URI that
// was mapped, or of the most specific template that matches. It reports false if no server is known
// or the caller must not see the resource; then the caller of Route may know a server that named
// the URI in a result.
func (c *Catalogue) Route(uri string) (Route, bool) {
	if len(uri) > uritemplate.MaxLength*4 { // percent-encoding may triple the length
		return Route{}, false
	}
	if item := c.Find(Resources, uri); item != nil {
		return Route{item.Server, item.Original, item}, true
	}
	if c.routes.owners[0][uri] != nil {
		return Route{}, false // hidden, so that a template must not reach it
	}
	if id, original, ok := unmapURI(uri); ok && !c.options.Single {
		return c.routeMapped(id, original)
	}
	budget := matchBudget
	if item := c.routes.template(uri, nil, &budget); item != nil {
		return Route{item.Server, uri, item}, true
	}
	return Route{}, false
}

// routeMapped returns the route of a mapped URI.
func (c *Catalogue) routeMapped(id, original string) (Route, bool) {
	s := c.routes.byID[id]
	if s == nil || s.hides(Resources, original) {
		return Route{}, false
	}
	if item := c.Original(Resources, s.Name, original); item != nil {
		return Route{s.Name, original, item}, true
	}
	budget := matchBudget
	if item := c.routes.template(original, s, &budget); item != nil {
		return Route{s.Name, original, item}, true
	}
	if len(original) > uritemplate.MaxLength || budget < 0 || hidesURI(s.hidden[Templates], original, &budget) {
		return Route{}, false
	}
	return Route{s.Name, original, nil}, true
}

func (s *member) hides(k Kind, original string) bool {
	_, hidden := s.hidden[k][original]
	return hidden
}

// Original returns the visible item that a server knows by a name, URI or template, or nil.
func (c *Catalogue) Original(k Kind, server, original string) *Item {
	s := c.byName[server]
	if s == nil {
		return nil
	}
	items := c.kinds[k].items
	i := sort.Search(len(items), func(i int) bool {
		order := cmp.Compare(c.byName[items[i].Server].position, s.position)
		return cmp.Or(order, cmp.Compare(items[i].Original, original)) >= 0
	})
	if i < len(items) && items[i].Server == server && items[i].Original == original {
		return items[i]
	}
	return nil
}

// PublicURI returns the URI by which callers know a URI that a server has named. It returns the
// same URI, unless it would lead to another server.
func (c *Catalogue) PublicURI(server, uri string) string {
	s := c.byName[server]
	if s == nil {
		return uri
	}
	budget := matchBudget
	return c.publicURI(s, uri, &budget)
}

// publicURI is PublicURI with a budget. When it is used up, every URI is mapped that no list
// contains, because a mapped URI always leads to its server.
func (c *Catalogue) publicURI(s *member, uri string, budget *int) string {
	if public, ok := s.mapped[uri]; ok {
		return public
	}
	if c.options.Single {
		return uri
	}
	owner := c.routes.owners[0][uri]
	if owner == nil && !isMapped(uri) {
		item := c.routes.template(uri, nil, budget)
		switch {
		case item != nil:
			owner = c.byName[item.Server]
		case *budget >= 0:
			return uri
		}
	}
	if owner == s {
		return uri
	}
	return mapURI(s.ID, uri, false)
}

// Reference resolves the ref of a completion request: it returns the server, and the ref in the
// server's own names. It reports false for a ref that is malformed or names no item that the caller
// may see.
//
// Spec: server/utilities/completion, Reference Types.
func (c *Catalogue) Reference(ref []byte) (server string, own []byte, ok bool) {
	if jsonscan.Valid(ref, jsonscan.Limits{}) != nil {
		return "", nil, false
	}
	text := func(key string) string {
		value := jsonscan.GetString(ref, key)
		return value
	}
	member, original := "", ""
	switch text("type") {
	case "ref/prompt":
		if item := c.Find(Prompts, text("name")); item != nil {
			server, member, original = item.Server, "name", item.Original
		}
	case "ref/resource":
		member = "uri"
		if item := c.Find(Templates, text("uri")); item != nil {
			server, original = item.Server, item.Original
		} else if r, ok := c.Route(text("uri")); ok {
			server, original = r.Server, r.URI
		}
	}
	if server == "" {
		return "", nil, false
	}
	return server, rewrite(ref, func(key string, value []byte) []byte {
		if key == member {
			return jsonscan.AppendQuote(nil, original)
		}
		return value
	}), true
}

// AppTool returns the tool that a page of an app calls by its original name, because a page does
// not know public names. The tool must belong to a server with views, and must not be hidden from
// apps. If several tools qualify, AppTool returns the only tool that names apps in its visibility,
// or nil.
//
// Spec: extensions/apps, Tool Visibility.
func (c *Catalogue) AppTool(name string) *Item {
	var found, named []*Item
	for _, s := range c.servers {
		if !s.views {
			continue
		}
		item := c.Original(Tools, s.Name, name)
		if item == nil {
			continue
		}
		visible, explicit := item.visibleToApps()
		if visible {
			found = append(found, item)
		}
		if explicit {
			named = append(named, item)
		}
	}
	switch {
	case len(found) == 1:
		return found[0]
	case len(named) == 1:
		return named[0]
	}
	return nil
}

// visibleToApps reports whether pages may call a tool, and whether its visibility says so.
func (i *Item) visibleToApps() (visible, explicit bool) {
	meta, _ := jsonscan.Get(i.Raw, "_meta")
	ui, _ := jsonscan.Get(meta, metaUI)
	visibility, ok := jsonscan.Get(ui, metaVisible)
	if !ok {
		return true, false
	}
	for v := range jsonscan.Elements(visibility) {
		if kind, _ := jsonscan.Unquote(v); kind == "app" {
			return true, true
		}
	}
	return false, false
}
