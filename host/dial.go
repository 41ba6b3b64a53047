package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
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
func (u *Upstream) expanded(ctx context.Context, e *entry, c *policy.Caller) (*config.Server, error) {
	if e.Invalid != nil {
		return nil, e.Invalid
	}
	server := *e.Config
	if u.usesWorkspace() {
		server.Workspace = c.Workspace
	}
	expanded, err := server.Expand(ctx, u.host.lookup(c))
	if err != nil {
		return nil, err
	}
	u.keepSecrets(expanded.Secrets())
	u.logins.SetEndpoint(e.Server, expanded.URL)
	return expanded, login.CheckHeaders(e.Server, expanded)
}
