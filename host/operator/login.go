package operator

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// Errors of logins. They are for the user that opens the page of a login, except ErrLoginUnused.
var (
	// ErrNoLogin reports a login that does not exist: it has expired, or never was.
	ErrNoLogin = errors.New("host: no such login: it has expired, or its address is incomplete")
	// ErrLoginUsed reports a login that was started before: it is for one visit.
	ErrLoginUsed = errors.New("host: login link already used: a link works once")
	// ErrOtherBrowser reports an authorization response in another browser than the browser that started
	// the login.
	ErrOtherBrowser = errors.New("host: the login was started in another browser")
	// ErrLoginUnused reports that no request would use the login, because the server takes other
	// credentials or needs no login.
	ErrLoginUnused = errors.New("host: no request would use this login")
)

// A Login is the login of a caller at a server, which waits for its user. Its ticket is a secret: any
// user that holds it can complete the login, and then the requests of the caller have the access of
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

// oauthCodes are the error codes of authorization servers that users and records see. Other texts of
// these servers are not trusted. Source: RFC 6749, sections 4.1.2.1 and 5.2; RFC 8707, section 2.
var oauthCodes = []string{"access_denied", "invalid_client", "invalid_grant", "invalid_request", "invalid_scope",
	"invalid_target", "server_error", "temporarily_unavailable", "unauthorized_client", "unsupported_response_type"}

// LoginFailure returns the reason of an error of a login, for its user: a part of a sentence, without
// text of servers.
func LoginFailure(err error) string {
	code := ""
	if e, ok := errors.AsType[*oauthclient.LoginError](err); ok {
		code = e.Code
	}
	if e, ok := errors.AsType[*oauthclient.TokenError](err); ok {
		code = e.Code
	}
	switch {
	case slices.Contains(oauthCodes, code):
		return "the authorization server has refused it: " + code
	case code != "":
		return "the authorization server has refused it"
	case errors.Is(err, oauthclient.ErrInvalidResponse):
		return "the response is not that of the authorization server"
	case errors.Is(err, oauthclient.ErrLoginTimeout):
		return "it was not completed in time"
	}
	return "it could not be completed"
}

type authorizationKey struct{}

// WithAuthorization returns a context with the header Authorization of a caller. Middleware that
// removes the header must keep it by this function for servers with "insecureForwardAuthorization"; no
// other server receives it.
func WithAuthorization(ctx context.Context, value string) context.Context {
	return context.WithValue(ctx, authorizationKey{}, value)
}

// Authorization returns the header Authorization of a caller, or an empty text; see [WithAuthorization].
func Authorization(ctx context.Context) string {
	value, _ := ctx.Value(authorizationKey{}).(string)
	return value
}
