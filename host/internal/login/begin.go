package login

import (
	"context"
	"fmt"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Own returns the login that a caller may begin: its own login, or the login of the local user for all
// callers. The error is [operator.ErrLoginUnused] or an [*hosterr.Error].
func (s *Server) Own(ctx context.Context, c *policy.Caller) (*Credential, error) {
	cred, err := s.Of(ctx, c)
	if err != nil || cred != nil && cred.principal.Key() == c.Principal.Key() {
		return cred, err
	}
	e := s.opts.Entry()
	if e.Invalid == nil {
		if reason := s.unused(e, c); reason != "" {
			return nil, fmt.Errorf("%w: server %.64q %s", operator.ErrLoginUnused, s.name, reason)
		}
	}
	return s.at(ctx, e, nil)
}

// unused returns why requests would not use a login of a caller, or an empty string if a function of the
// program uses it.
func (s *Server) unused(e *server.Server, c *policy.Caller) string {
	switch auth := e.Settings.Auth; {
	case e.IsCommand():
		return "is a command, which reads credentials from its environment"
	case auth != "" && auth != config.AuthGateway:
		return fmt.Sprintf("has \"auth\": %q in its settings", auth)
	case auth == "" && e.HasAuthorization():
		return "has a header Authorization"
	case c.Principal != nil:
		return "has no \"auth\": \"caller\" in its settings: the login of the local user is for all callers"
	case !s.dialsWithLogin(e):
		return "has no \"auth\" in its settings"
	}
	return ""
}

// dialsWithLogin reports whether a function of the program connects with the login of the local user, for
// all callers.
func (s *Server) dialsWithLogin(e *server.Server) bool {
	if s.logins.opts.Dials || s.logins.opts.Tokens == nil || e.IsCommand() {
		return false
	}
	return e.Settings.Auth == config.AuthGateway || e.Settings.Auth == "" && !e.HasAuthorization()
}

// Authorizes reports whether the login of a principal authorizes the requests of a caller.
func (s *Server) Authorizes(p *mcp.Principal, c *policy.Caller) bool {
	e := s.opts.Entry()
	owner, ok := s.Principal(e, c)
	return ok && owner.Key() == p.Key() || p == nil && s.dialsWithLogin(e)
}

// IsForAll reports whether the requests of all callers use the login, and not only the requests of its
// principal.
func (l *Login) IsForAll() bool { return !l.credential.server.opts.Entry().UsesLoginOfCaller() }
