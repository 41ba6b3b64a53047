package console

import (
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

// Paths returns the method and path of each route with its role.
func (c *Console) Paths() map[string]page.Role {
	all := map[string]page.Role{}
	for _, routes := range c.paths {
		for _, r := range routes {
			all[r.Method()+" "+r.Path] = r.Role
		}
	}
	return all
}

// Register adds a route, as New does.
func (c *Console) Register(path string, role page.Role) error {
	return c.register(&page.Screen{Routes: []*page.Route{{Path: path, Role: role,
		View: func(*page.Request) (*page.View, error) { return &page.View{}, nil }}}})
}

// Origins returns the origin of the console for a request, and the origin of the pages of apps.
func (c *Console) Origins(r *http.Request) (console, view string) { return c.origins(r) }

// Age makes the tokens and cookies older.
func (c *Console) Age(d time.Duration) {
	c.logins.mu.Lock()
	defer c.logins.mu.Unlock()
	for _, all := range [][]login{c.logins.tokens, c.logins.browsers} {
		for i := range all {
			all[i].ends = all[i].ends.Add(-d)
		}
	}
}

// Events returns the events of a stream that shows lists with these items, one after the other.
func (c *Console) Events(lists ...[]string) (all [][]string, err error) {
	shown := sent{}
	for pass, items := range lists {
		var fragments []page.Fragment
		for _, name := range items {
			fragments = append(fragments, page.Fragment{ID: name, Body: script(name), In: "list", Place: page.Prepend})
		}
		events, err := shown.changes(c.site, fragments, pass)
		if err != nil {
			return nil, err
		}
		var names []string
		for _, e := range events {
			names = append(names, string(e.Place)+" "+e.ID)
		}
		all = append(all, names)
	}
	return all, nil
}

// Close closes the listener of a console that is not served.
func (c *Console) Close() {
	c.closeListeners()
	c.site.End()
}
