package upstream

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// expanded returns the entry with its variables replaced, for the caller of the connection.
func (s *Conn) expanded(ctx context.Context, e *entry) (*config.Server, error) {
	u, c := s.in.pool.up, s.in.pool.caller
	if e.Invalid != nil {
		return nil, e.Invalid
	}
	server := *e.Config
	if u.usesWorkspace() {
		server.Workspace = c.Workspace
	}
	expanded, err := server.Expand(ctx, u.env.lookup(c))
	if err != nil {
		return nil, err
	}
	u.keepSecrets(expanded.Secrets())
	u.logins.SetEndpoint(e.Server, expanded.URL)
	return expanded, login.CheckHeaders(e.Server, expanded)
}

// newLogins returns the credentials for a server. A login ends the delays of instances that lacked it, and
// makes views read the lists again.
func newLogins(u *Server) *login.Server {
	return u.env.Logins.NewServer(u.name, login.ServerOptions{Entry: func() *server.Server { return u.entry().Server },
		KeepSecrets: u.keepSecrets,
		Changed: func(p *mcp.Principal) {
			for _, pool := range u.PoolsOf(p) {
				pool.retryLogin()
			}
		},
		WithoutServer: func(err error) error { return withoutServer(err, u.name) }})
}

// CheckLogin returns an error if the requests of a pool require a login that is missing. It must
// run before a user is asked for an approval, which is valid for a single request.
func (p *Pool) CheckLogin(ctx context.Context) error {
	c, err := p.Logins().Of(ctx, p.Caller())
	if err != nil || c == nil {
		return err
	}
	if err := c.Ready(ctx); err != nil {
		e := *p.Failure(ctx, err)
		e.Code, e.MayHaveRun = hosterr.CodeAuthRequired, false
		return &e
	}
	return nil
}
