package host

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Errors of logins. They are for the user that opens the page of a login, except ErrLoginUnused.
var (
	// ErrNoLogin reports a login that does not exist: it has expired, or never was.
	ErrNoLogin = login.ErrUnknown
	// ErrLoginUsed reports a login that was started before: it is for one visit.
	ErrLoginUsed = login.ErrUsed
	// ErrOtherBrowser reports an authorization response in another browser than the browser that started
	// the login.
	ErrOtherBrowser = login.ErrOtherBrowser
	// ErrLoginUnused reports that no request would use the login: the server has other credentials, or
	// none.
	ErrLoginUnused = login.ErrUnused
)

// A Login is the login of one caller at one server, which waits for its user. Its ticket is a secret:
// any user that has it can complete the login, and then the requests of the caller have the access of
// that user. A Login is valid for 10 minutes and one visit. It is safe for concurrent use.
type Login interface {
	// URL returns the page of the login, with its ticket: a secret of the caller.
	URL() string
	// Server returns the name of the server in the configuration.
	Server() string
	// Endpoint returns the origin of the server, such as https://example.com.
	Endpoint() string
	// Principal returns the caller, nil for the local user.
	Principal() *mcp.Principal
	// IsForAll reports whether the requests of all callers use the login, and not only the requests of
	// its principal.
	IsForAll() bool
	// Expires returns when the login ends.
	Expires() time.Time
	// Start begins the visit of the browser that the secret browser identifies. It returns the page of
	// the authorization server to open. The login cannot be started again.
	Start(ctx context.Context, browser string) (page string, err error)
}

// SetConnectURL sets the base URL of the pages on which users log in, without a slash at its end.
// The page of a login is base, "/" and a ticket for [Host.Login]; base and "/callback" is the
// redirect URI of all logins. Until it is set, callers are not asked to log in.
//
// refuse reports why the page cannot verify that its visitor is a principal; requests of the
// principal that require a login then fail with this error. It returns nil if the page can, and
// must be safe for concurrent use. A nil refuse refuses no principal.
func (h *Host) SetConnectURL(base string, refuse func(p *mcp.Principal) error) {
	h.logins.SetConnectURL(base, refuse)
}

// Login returns the login with a ticket. The error is [ErrNoLogin], or [ErrLoginUsed] if it was
// started.
func (h *Host) Login(ticket string) (Login, error) { return asLogin(h.logins.ByTicket(ticket)) }

// asLogin returns a nil interface for a nil login.
func asLogin(l *login.Login, err error) (Login, error) {
	if l == nil {
		return nil, err
	}
	return l, err
}

// BeginLogin returns a login of a caller at a server whose settings have "auth": "caller". For the local
// user, whose Principal is nil, that may also be a server with "auth": "gateway", or with neither this nor a
// header Authorization: then the requests of all callers use the login, and a function [Options.Dial] has
// to use the tokens of [Options.Tokens]. A pending login for the same is returned again. The error is
// [ErrLoginUnused], or an [*Error] with CodeLimited if too many logins are pending.
func (h *Host) BeginLogin(ctx context.Context, server string, c *policy.Caller, scopes ...string) (Login, error) {
	u := h.servers.Current().Named(server)
	if u == nil {
		return nil, fmt.Errorf("host: unknown server %.64q", server)
	}
	cred, err := u.Logins().Own(ctx, c)
	if err != nil {
		return nil, err
	}
	return asLogin(h.logins.Begin(cred, scopes))
}

// FinishLogin passes the response of an authorization server to the login that it is for, and waits for
// its end. browser is the argument of [Login.Start]. The error is [ErrNoLogin], [ErrOtherBrowser] or an
// error of package oauthclient; see [LoginFailure]. The response of another browser does not end the
// login.
func (h *Host) FinishLogin(ctx context.Context, browser string, response url.Values) (Login, error) {
	return asLogin(h.logins.Respond(ctx, browser, response))
}

// Logout removes the tokens of a caller for a server, and revokes them if the authorization server
// supports that, and ends the connections that have used them. The tokens are removed also if there
// is an error.
func (h *Host) Logout(ctx context.Context, server string, c *policy.Caller) error {
	u := h.servers.Current().Named(server)
	if u == nil {
		return fmt.Errorf("host: unknown server %.64q", server)
	}
	cred, err := u.Logins().Of(ctx, c)
	if err != nil || cred == nil {
		return err
	}
	err = cred.Logout(ctx)
	for _, p := range u.PoolsOf(cred.Principal()) {
		p.Lists().Notify() // the tool that logs out is no longer listed
		p.Disconnect()
	}
	return err
}

// LoginFailure returns the reason of an error of a login, for its user: a part of a sentence, without
// text of servers.
func LoginFailure(err error) string { return login.Failure(err) }

// WithAuthorization returns a context with the header Authorization of a caller. Middleware that
// removes the header keeps it by this function for servers with "insecureForwardAuthorization"; no
// other server gets it.
func WithAuthorization(ctx context.Context, value string) context.Context {
	return login.WithAuthorization(ctx, value)
}

// ForwardsAuthorization reports whether a server has "insecureForwardAuthorization".
func (h *Host) ForwardsAuthorization() bool { return h.servers.Current().ForwardsAuthorization() }

// newLogins returns the logins of the host.
func (h *Host) newLogins() *login.Logins {
	return login.New(login.Options{OAuth: h.opts.OAuth, Tokens: h.opts.Tokens, Lookup: h.opts.Lookup,
		Logger: h.opts.Logger, Dials: h.dials, Context: h.ctx, Run: h.work.run, Record: h.recordLogin})
}

// recordLogin records the outcome of a login. An empty outcome means that err is the outcome.
func (h *Host) recordLogin(server string, p *mcp.Principal, outcome string, err error) {
	detail := map[string]string{"outcome": outcome}
	if outcome == "" {
		detail["outcome"] = "succeeded"
		if err != nil {
			detail["outcome"] = "failed"
		}
	}
	if err != nil {
		detail["reason"] = login.Failure(err)
	}
	h.recordChange(event.Login, &policy.Caller{Principal: p}, server, detail)
}

type clientKey struct{}

// ClientFrom returns the HTTP client for the connection that ctx of [Options.Dial] is for. It adds the
// credentials of the caller of the connection to a server with "auth": "caller" or "forward". It is nil
// for other servers. [Dial] also gets one for "gateway", which a function of the program does itself.
func ClientFrom(ctx context.Context) *http.Client {
	c, _ := ctx.Value(clientKey{}).(*http.Client)
	return c
}

// noteForwarded keeps the headers of a request for the requests of the host itself, such as for lists.
func (v *View) noteForwarded(ctx context.Context, req *mcp.Request) {
	for _, p := range v.pools() {
		p.Logins().With(ctx, p.Forwarded(), req)
	}
}
