package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Dial returns the transport to a server: a child process with its command, or Streamable HTTP to
// its URL, with HTTP+SSE as the fallback. It is the default of [Options.Dial]. The transport sends
// no credentials to an http URL of another machine, unless a [Host] calls Dial for a server with
// the setting insecureHTTP.
func Dial(ctx context.Context, s *config.Server) (mcp.Transport, error) {
	_, insecure := ctx.Value(insecureHTTPKey{}).(bool)
	return connection.Dial(s, ClientFrom(ctx), insecure), nil
}

// insecureHTTPKey is the context key for servers with the setting insecureHTTP.
type insecureHTTPKey struct{}

// expanded returns the entry with its variables replaced, for a caller.
func (u *upstreamServer) expanded(ctx context.Context, e *entry, c *policy.Caller) (*config.Server, error) {
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
func (u *upstreamServer) newLogins() *login.Server {
	return u.servers.Logins.NewServer(u.name, login.ServerOptions{Entry: func() *server.Server { return u.entry().Server },
		KeepSecrets: u.keepSecrets, Changed: u.retryLogins,
		WithoutServer: func(err error) error { return withoutServer(err, u.name) }})
}

// retryLogins ends the delays of instances that lacked a login, and makes views read their lists.
func (u *upstreamServer) retryLogins(p *mcp.Principal) {
	for _, pool := range u.PoolsOf(p) {
		pool.retryLogin()
	}
}

// PoolsOf returns the pools whose requests the login of a principal authorizes.
func (u *upstreamServer) PoolsOf(p *mcp.Principal) (all []*pool) {
	for _, pool := range u.allPools() {
		if u.logins.Authorizes(p, pool.Caller()) {
			all = append(all, pool)
		}
	}
	return all
}

// lookup returns the variables of an instance of a caller.
func (s *upstreamServers) lookup(c *policy.Caller) func(name string) (string, bool) {
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

// checkLogin returns an error if the requests of a pool need a login that is missing: before a user is
// asked for an approval, which is for one request.
func (p *pool) checkLogin(ctx context.Context) error {
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
