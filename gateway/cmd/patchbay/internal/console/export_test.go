package console

import "time"

// Paths returns the method and path of each route with its role.
func (c *Console) Paths() map[string]Role {
	all := map[string]Role{}
	for _, routes := range c.paths {
		for _, r := range routes {
			all[r.method()+" "+r.Path] = r.Role
		}
	}
	return all
}

// RoleAnyone is the role of paths that need no login.
const RoleAnyone = roleAnyone

// Register adds a route, as New does.
func (c *Console) Register(path string, role Role) error {
	return c.register([]*route{{Path: path, Role: role, View: func(*request) (*View, error) { return &View{}, nil }}})
}

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
		var fragments []Fragment
		for _, name := range items {
			fragments = append(fragments, Fragment{ID: name, Part: "server", Data: &serverRow{ID: name}, In: "list",
				Place: PlacePrepend})
		}
		events, err := shown.changes(c.pages, fragments, pass)
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

// ShowHidden is showHidden.
func ShowHidden(page string) string { return string(showHidden([]byte(page))) }

// Close closes the listener of a console that is not served.
func (c *Console) Close() {
	_ = c.listener.Close()
	c.end()
}

// Diff returns the lines of diffLines after their marks.
func Diff(old, now []string) (all []string) {
	for _, l := range diffLines(old, now) {
		all = append(all, l.Mark+l.Text)
	}
	return all
}
