package login

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A Login is the login of one caller at one server, which waits for its user. Its ticket is a secret:
// any user that has it can complete the login, and then the requests of the caller use the access of
// that user. A Login is valid for 10 minutes and one visit. It is safe for concurrent use.
type Login struct {
	logins     *Logins
	credential *Credential
	scopes     []string
	expires    time.Time
	ticket     string
	id         string // the digest of the ticket, for states and records

	pages     chan *oauthclient.LoginRequest // buffered(1)
	responses chan url.Values                // buffered(1)
	done      chan struct{}                  // closed when the login ends

	// The lock of logins guards the fields below.
	started bool
	browser [sha256.Size]byte
	state   string // of the authorization request
	over    bool
	err     error // the outcome, once done is closed
}

// end sets the outcome. The caller must hold the lock of the logins.
func (l *Login) end(err error) {
	if !l.over {
		l.over, l.err = true, err
		close(l.done)
	}
}

// URL returns the page of the login, with its ticket: a secret of the caller.
func (l *Login) URL() string { return l.logins.ConnectURL() + "/" + l.ticket }

// Server returns the name of the server in the configuration.
func (l *Login) Server() string { return l.credential.server.name }

// Endpoint returns the origin of the server, such as https://example.com.
func (l *Login) Endpoint() string {
	u, err := url.Parse(l.credential.url)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Principal returns the caller, nil for the local user.
func (l *Login) Principal() *mcp.Principal { return l.credential.principal }

// Expires returns when the login ends.
func (l *Login) Expires() time.Time { return l.expires }

// Start begins the visit of the browser that the secret browser identifies. It returns
// the page of the authorization server to open. The login cannot be started again.
func (l *Login) Start(ctx context.Context, browser string) (page string, err error) {
	s := l.logins
	s.mu.Lock()
	switch {
	case l.over:
		err = ErrUnknown
	case l.started:
		err = ErrUsed
	default:
		l.started, l.browser = true, sha256.Sum256([]byte(browser))
	}
	redirect := s.base + "/callback"
	s.mu.Unlock()
	if err != nil {
		return "", err
	}
	s.record(l.credential, "started", nil)
	s.opts.Run(func() { l.run(redirect) }) // ends with the response or the expiry of the login
	select {
	case r := <-l.pages:
		return r.URL, nil
	case <-l.done:
		return "", l.Outcome()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// ID returns the digest of the ticket.
func (l *Login) ID() string { return l.id }

// Scopes returns the scopes that the login adds.
func (l *Login) Scopes() []string { return l.scopes }

// Done returns a channel that is closed when the login ends.
func (l *Login) Done() <-chan struct{} { return l.done }

// Outcome returns the error of a login that ended.
func (l *Login) Outcome() error {
	l.logins.mu.Lock()
	defer l.logins.mu.Unlock()
	return l.err
}

// run logs in.
func (l *Login) run(redirect string) {
	c, s := l.credential, l.logins
	ctx, cancel := context.WithDeadlineCause(s.opts.Context, l.expires, oauthclient.ErrLoginTimeout)
	defer cancel()
	l.Finish(c.logIn(ctx, l.scopes, oauthclient.NewAuthorizer(redirect, l.authorize)))
}

// Finish ends the login and wakes the requests that wait for it.
func (l *Login) Finish(err error) {
	s := l.logins
	s.mu.Lock()
	defer s.mu.Unlock()
	l.end(err)
	s.remove(l)
	if err != nil {
		s.keepFailed(l)
	}
}

// authorize passes the page of the authorization server to [Login.Start], and waits for its response.
func (l *Login) authorize(ctx context.Context, r *oauthclient.LoginRequest) (url.Values, error) {
	s := l.logins
	s.mu.Lock()
	delete(s.byState, l.state) // of a registration that the authorization server removed
	l.state = r.State
	s.byState[r.State] = l
	s.mu.Unlock()
	select {
	case l.pages <- r:
	default:
		return nil, errors.New("host: the login needs another visit")
	}
	select {
	case values := <-l.responses:
		return values, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// oauthCodes are the error codes of authorization servers that users and records see. Other texts of
// these servers are not trusted. Source: RFC 6749, sections 4.1.2.1 and 5.2; RFC 8707, section 2.
var oauthCodes = []string{"access_denied", "invalid_client", "invalid_grant", "invalid_request", "invalid_scope",
	"invalid_target", "server_error", "temporarily_unavailable", "unauthorized_client", "unsupported_response_type"}

// Failure returns the reason of an error of a login, for its user: a part of a sentence, without text of
// servers.
func Failure(err error) string {
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
