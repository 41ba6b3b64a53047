package console

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

// Register adds a route, as New does.
func (c *Console) Register(path string, role Role) error {
	return c.register([]*route{{Path: path, Role: role, View: func(*request) (*View, error) { return &View{}, nil }}})
}

// ShowHidden is showHidden.
func ShowHidden(page string) string { return string(showHidden([]byte(page))) }
