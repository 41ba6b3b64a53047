package upstream

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// expanded returns the entry with its variables replaced, for a caller.
func (u *Server) expanded(ctx context.Context, e *entry, c *policy.Caller) (*config.Server, error) {
	if e.Invalid != nil {
		return nil, e.Invalid
	}
	server := *e.Config
	if u.usesWorkspace() {
		server.Workspace = c.Workspace
	}
	expanded, err := server.Expand(ctx, u.servers.lookup(c))
	if err != nil {
		return nil, err
	}
	u.keepSecrets(expanded.Secrets())
	u.logins.SetEndpoint(e.Server, expanded.URL)
	return expanded, login.CheckHeaders(e.Server, expanded)
}

// newLogins returns the credentials for the server.
func (u *Server) newLogins() *login.Server {
	return u.servers.Logins.NewServer(u.name, login.ServerOptions{Entry: func() *server.Server { return u.entry().Server },
		KeepSecrets: u.keepSecrets, Changed: u.retryLogins,
		WithoutServer: func(err error) error { return withoutServer(err, u.name) }})
}

// retryLogins ends the delays of instances that lacked a login, and makes views read their lists.
func (u *Server) retryLogins(p *mcp.Principal) {
	for _, pool := range u.PoolsOf(p) {
		pool.retryLogin()
	}
}

// PoolsOf returns the pools whose requests the login of a principal authorizes.
func (u *Server) PoolsOf(p *mcp.Principal) (all []*Pool) {
	for _, pool := range u.AllPools() {
		if u.logins.Authorizes(p, pool.Caller()) {
			all = append(all, pool)
		}
	}
	return all
}

// lookup returns the variables of an instance of a caller.
func (s *Servers) lookup(c *policy.Caller) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		if name != "caller:subject" {
			return s.Lookup(name)
		}
		if c.Principal == nil {
			return "", false
		}
		return c.Principal.Subject, true
	}
}

// CheckLogin returns an error if the requests of a pool need a login that is missing: before a user is
// asked for an approval, which is for one request.
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
