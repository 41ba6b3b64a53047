package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// ErrLoginUnused reports that no request would use a login: the server has other credentials, or none.
var ErrLoginUnused = errors.New("host: no request would use this login")

// BeginLogin returns a login of a caller at a server whose settings have "auth": "caller". For the local
// user, whose Principal is nil, that may also be a server with "auth": "gateway", or with neither this nor a
// header Authorization: then the requests of all callers use the login, and a function [Options.Dial] has
// to use the tokens of [Options.Tokens]. A login that waits for the same is returned again. The error is
// [ErrLoginUnused], or an [*Error] with CodeLimited if too many wait.
func (h *Host) BeginLogin(ctx context.Context, server string, c *Caller, scopes ...string) (*Login, error) {
	u := h.set.Load().byName[server]
	if u == nil {
		return nil, fmt.Errorf("host: unknown server %.64q", server)
	}
	cred, err := u.ownLogin(ctx, c)
	if err != nil {
		return nil, err
	}
	return h.beginLogin(cred, scopes)
}

// ownLogin returns the login that a caller may begin.
func (u *Upstream) ownLogin(ctx context.Context, c *Caller) (*credential, error) {
	cred, err := u.login(ctx, c)
	if err != nil || cred != nil && cred.caller.Key() == c.Principal.Key() {
		return cred, err
	}
	e := u.entry()
	if e.Invalid == nil {
		if reason := u.unusedLogin(e, c); reason != "" {
			return nil, fmt.Errorf("%w: server %.64q %s", ErrLoginUnused, u.name, reason)
		}
	}
	url, err := u.endpointOf(ctx, e)
	if err != nil {
		return nil, &Error{Code: CodeConfigError, Server: u.name, Err: withoutServer(err, u.name)}
	}
	return u.credential(e, nil, url), nil
}

// unusedLogin returns why a login of a caller would not be used, "" if Options.Dial uses it.
func (u *Upstream) unusedLogin(e *entry, c *Caller) string {
	switch auth := e.Settings.Auth; {
	case e.IsCommand():
		return "is a command, which reads credentials from its environment"
	case auth != "" && auth != config.AuthGateway:
		return fmt.Sprintf("has \"auth\": %q in its settings", auth)
	case auth == "" && e.HasAuthorization():
		return "has a header Authorization"
	case c.Principal != nil:
		return "has no \"auth\": \"caller\" in its settings: the login of the local user is for all callers"
	case !u.dialsWithLogin(e):
		return "has no \"auth\" in its settings"
	}
	return ""
}

// dialsWithLogin reports whether a function of the program connects with the login of the local user, for
// all callers.
func (u *Upstream) dialsWithLogin(e *entry) bool {
	if u.host.dials || u.host.opts.Tokens == nil || e.IsCommand() {
		return false
	}
	return e.Settings.Auth == config.AuthGateway || e.Settings.Auth == "" && !e.HasAuthorization()
}

// IsForAll reports whether the requests of all callers use the login, and not only those of its principal.
func (l *Login) IsForAll() bool { return !l.credential.up.entry().UsesLoginOfCaller() }
