package apps

import "github.com/patchbay-mcp/patchbay/mcp"

// PageFrom returns the page that a host makes of a result of resources/read.
func PageFrom(uri string, r *mcp.ReadResourceResult) (*Page, error) {
	p, _, err := pageFrom(uri, r, maxView)
	if err == nil {
		p.Dropped = p.Frame.clean(false)
	}
	return p, err
}
