package gateway

import "slices"

// AdminRoutes returns the method and the path of each operation of the admin API, sorted.
func AdminRoutes(g *Gateway) (all []string) {
	for _, routes := range g.admin.Load().paths {
		for _, r := range routes {
			path := r.path
			if r.verb != "" {
				path += ":" + r.verb
			}
			all = append(all, r.method+" "+path)
		}
	}
	slices.Sort(all)
	return all
}
