package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// other serves a method of an extension. With several servers, the configuration maps methods to
// one of them; see [config.ServerSettings].
func (v *View) other(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	var p *pool
	if len(v.pools) == 1 {
		p = v.pools[0]
	}
	for _, candidate := range v.pools {
		if p == nil && config.Match(candidate.up.settings.Methods, req.Method) {
			p = candidate
		}
	}
	if p == nil {
		return nil, mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %s", req.Method)
	}
	return v.send(ctx, req, &route{kind: ActionOther, pool: p})
}
