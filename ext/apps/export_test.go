package apps

import "github.com/patchbay-mcp/patchbay/mcp"

// PageFrom is how a host takes what a server gave for a view.
func PageFrom(uri string, r *mcp.ReadResult) (*Page, error) {
	p, _, err := pageFrom(uri, r, maxView)
	if err == nil {
		p.Dropped = p.Frame.clean(false)
	}
	return p, err
}
