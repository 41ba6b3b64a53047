package host

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/internal/lru"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const (
	// loginTime is how long a user may take from the request that needs the login to its end.
	loginTime = 10 * time.Minute
	// minLoginTime is how long a login that is offered again must still be valid.
	minLoginTime = 5 * time.Minute
	// maxLogins bounds the logins that wait for their users, and maxLoginsPerPrincipal those of one
	// principal: a user completes one after the other.
	maxLogins             = 10_000
	maxLoginsPerPrincipal = 16
	// maxFailedPrincipals bounds the principals whose failed logins are kept, maxLoginsPerPrincipal of each:
	// those that failed last. Without its failed login a request asks for another one.
	maxFailedPrincipals = 1000
	// maxResponse bounds an authorization response, in bytes, as servers bound the line of a request.
	maxResponse = 16 << 10
)

// Errors of logins. They are for the user that opens the page of a login.
var (
	// ErrNoLogin reports a login that does not exist: it has expired, or never was.
	ErrNoLogin = errors.New("host: no such login: it has expired, or its address is incomplete")
	// ErrLoginUsed reports a login that was started before: it is for one visit.
	ErrLoginUsed = errors.New("host: this login was started before, and is for one visit")
	// ErrOtherBrowser reports an authorization response in another browser than the one in which the
	// login was started.
	ErrOtherBrowser = errors.New("host: the login was started in another browser")
)

// A Login is the login of one caller at one server, which waits for its user. Its ticket is a secret:
// any user that has it can complete the login, and then the requests of the caller have the access of
// that user. A Login is valid for 10 minutes and one visit. It is safe for concurrent use.
type Login struct {
	host       *Host
	credential *credential
	scopes     []string
	expires    time.Time
	ticket     string
	id         string // the digest of the ticket, which states and records have

	pages     chan *oauthclient.LoginRequest // has room for one element
	responses chan url.Values                // has room for one element
	done      chan struct{}                  // closed when it has ended

	// The lock of logins guards the fields below.
	started bool
	browser [sha256.Size]byte
	state   string // of the authorization request
	over    bool
	err     error // the outcome, once done is closed
}

// logins are those that wait. They are safe for concurrent use.
type logins struct {
	mu      sync.Mutex // guards the fields below
	byID    map[string]*Login
	byState map[string]*Login
	by      map[string]map[*Login]struct{} // principals
	failed  lru.Map[string, []*Login]      // failed logins by principal, for requests that come back later
	base    string                         // see [Host.SetConnectURL]
	refuse  func(p *mcp.Principal) error   // see [Host.SetConnectURL]; may be nil
}

// SetConnectURL sets the base URL of the pages on which users log in, without a slash at its end.
// The page of a login is base, "/" and a ticket for [Host.Login]; base and "/callback" is the
// redirect URI of all logins. Until it is set, callers are not asked to log in.
//
// refuse reports why the page cannot verify that its visitor is a principal; requests of the
// principal that require a login then fail with this error. It returns nil if the page can, and
// must be safe for concurrent use. A nil refuse refuses no principal.
func (h *Host) SetConnectURL(base string, refuse func(p *mcp.Principal) error) {
	h.logins.mu.Lock()
	defer h.logins.mu.Unlock()
	h.logins.base, h.logins.refuse = base, refuse
}

// refusedLogin returns why a principal cannot log in on a page, or nil if it can.
func (h *Host) refusedLogin(p *mcp.Principal) error {
	h.logins.mu.Lock()
	refuse := h.logins.refuse
	h.logins.mu.Unlock()
	if refuse == nil {
		return nil
	}
	return refuse(p)
}

func (h *Host) connectURL() string {
	h.logins.mu.Lock()
	defer h.logins.mu.Unlock()
	return h.logins.base
}

func (h *Host) beginLogin(c *credential, scopes []string) (*Login, error) {
	if err := h.refusedLogin(c.caller); err != nil {
		return nil, c.up.errorf(CodeAuthRequired, "a login is required: %v", err)
	}
	h.logins.mu.Lock()
	defer h.logins.mu.Unlock()
	now, principal := time.Now(), c.caller.Key()
	for l := range h.logins.by[principal] {
		switch {
		case now.After(l.expires):
			h.logins.remove(l)
		case l.credential == c && !l.started && l.expires.Sub(now) > minLoginTime && includes(l.scopes, scopes):
			return l, nil
		}
	}
	h.logins.prune(now)
	if len(h.logins.by[principal]) >= maxLoginsPerPrincipal || len(h.logins.byID) >= maxLogins {
		e := c.up.errorf(CodeLimited, "too many logins wait for their users: at most %d of a caller and %d in total",
			maxLoginsPerPrincipal, maxLogins)
		e.RetryAfter = loginTime
		return nil, e
	}
	l := &Login{host: h, credential: c, scopes: slices.Clone(scopes), expires: now.Add(loginTime),
		ticket: strings.ToLower(rand.Text() + rand.Text()[:6]), pages: make(chan *oauthclient.LoginRequest, 1),
		responses: make(chan url.Values, 1), done: make(chan struct{})}
	l.id = digestOf(l.ticket)
	if h.logins.byID == nil {
		h.logins.byID, h.logins.byState = map[string]*Login{}, map[string]*Login{}
		h.logins.by = map[string]map[*Login]struct{}{}
	}
	if h.logins.by[principal] == nil {
		h.logins.by[principal] = map[*Login]struct{}{}
	}
	h.logins.byID[l.id] = l
	h.logins.by[principal][l] = struct{}{}
	return l, nil
}

// prune removes logins that have expired, if there are too many. The lock is held.
func (s *logins) prune(now time.Time) {
	if len(s.byID) < maxLogins {
		return
	}
	for _, l := range s.byID {
		if now.After(l.expires) {
			s.remove(l)
		}
	}
}

func includes(have, want []string) bool {
	return !slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(have, s) })
}

// digestOf returns the SHA-256 digest of a secret.
func digestOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// remove removes a login. The lock is held.
func (s *logins) remove(l *Login) {
	delete(s.byID, l.id)
	delete(s.byState, l.state)
	principal := l.credential.caller.Key()
	if delete(s.by[principal], l); len(s.by[principal]) == 0 {
		delete(s.by, principal)
	}
	l.end(oauthclient.ErrLoginTimeout)
}

// end sets the outcome. The lock of the logins is held.
func (l *Login) end(err error) {
	if !l.over {
		l.over, l.err = true, err
		close(l.done)
	}
}

// Login returns the login with a ticket. The error is [ErrNoLogin], or [ErrLoginUsed] if it was
// started.
func (h *Host) Login(ticket string) (*Login, error) {
	h.logins.mu.Lock()
	defer h.logins.mu.Unlock()
	l := h.logins.byID[digestOf(ticket)]
	switch {
	case l == nil || time.Now().After(l.expires):
		return nil, ErrNoLogin
	case l.started:
		return nil, ErrLoginUsed
	}
	return l, nil
}

// loginByID returns the login with an id, which is the digest of its ticket, if it waits or is a failed one of the
// principal; otherwise nil.
func (h *Host) loginByID(principal, id string) *Login {
	h.logins.mu.Lock()
	defer h.logins.mu.Unlock()
	if l := h.logins.byID[id]; l != nil {
		return l
	}
	if failed := h.logins.failed.Get(principal); failed != nil {
		for _, l := range *failed {
			if l.id == id {
				return l
			}
		}
	}
	return nil
}

// URL returns the page of the login, with its ticket: a secret of the caller.
func (l *Login) URL() string { return l.host.connectURL() + "/" + l.ticket }

// Server returns the name of the server in the configuration.
func (l *Login) Server() string { return l.credential.up.name }

// Endpoint returns the origin of the server, such as https://example.com.
func (l *Login) Endpoint() string {
	u, err := url.Parse(l.credential.url)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Principal returns the caller, nil for the local user.
func (l *Login) Principal() *mcp.Principal { return l.credential.caller }

// Expires returns when the login ends.
func (l *Login) Expires() time.Time { return l.expires }

// Start begins the visit of a browser, which browser identifies: a secret that only it has. It returns
// the page of the authorization server to open. The login cannot be started again.
func (l *Login) Start(ctx context.Context, browser string) (page string, err error) {
	h := l.host
	h.logins.mu.Lock()
	switch {
	case l.over:
		err = ErrNoLogin
	case l.started:
		err = ErrLoginUsed
	default:
		l.started, l.browser = true, sha256.Sum256([]byte(browser))
	}
	redirect := h.logins.base + "/callback"
	h.logins.mu.Unlock()
	if err != nil {
		return "", err
	}
	h.recordLogin(l.credential, "started", nil)
	h.work.run(func() { l.run(redirect) }) // ends with the response or the expiry of the login
	select {
	case r := <-l.pages:
		return r.URL, nil
	case <-l.done:
		return "", l.outcome()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// outcome returns the error of a login that has ended.
func (l *Login) outcome() error {
	l.host.logins.mu.Lock()
	defer l.host.logins.mu.Unlock()
	return l.err
}

// run logs in.
func (l *Login) run(redirect string) {
	c, h := l.credential, l.host
	ctx, cancel := context.WithDeadlineCause(h.ctx, l.expires, oauthclient.ErrLoginTimeout)
	defer cancel()
	l.finish(c.logIn(ctx, l.scopes, oauthclient.NewAuthorizer(redirect, l.authorize)))
}

// finish ends the login and wakes the requests that wait for it.
func (l *Login) finish(err error) {
	s := &l.host.logins
	s.mu.Lock()
	defer s.mu.Unlock()
	l.end(err)
	s.remove(l)
	if err != nil {
		s.keepFailed(l)
	}
}

// keepFailed keeps a login that has failed, in place of the oldest one of the principal if there are too many. The
// lock is held.
func (s *logins) keepFailed(l *Login) {
	principal := l.credential.caller.Key()
	var kept []*Login
	if failed := s.failed.Get(principal); failed != nil {
		kept = *failed
	}
	if len(kept) >= maxLoginsPerPrincipal {
		kept = slices.Delete(kept, 0, 1)
	}
	kept = append(kept, l)
	s.failed.Put(principal, &kept)
}

// logIn obtains tokens for the principal, and has its requests use them.
func (c *credential) logIn(ctx context.Context, scopes []string, a oauthclient.Authorizer) error {
	o := c.up.oauthOptions(c.up.entry())
	o.Store, o.Authorizer = c.up.host.store(c.caller.Key()), a
	o.Scopes = append(o.Scopes, scopes...)
	if now, err := c.transport.Status(ctx); err == nil && now != nil && len(scopes) > 0 {
		o.Scopes = append(o.Scopes, now.Scopes...) // to add scopes, all are requested
	}
	if o.Client.Metadata.Name == "" {
		o.Client.Metadata.Name = "Patchbay"
	}
	o.Client.Metadata.ApplicationType = "native"
	if strings.HasPrefix(c.up.host.connectURL(), "https:") {
		o.Client.Metadata.ApplicationType = "web"
	}
	err := oauthclient.NewTransport(c.url, &o).Login(ctx)
	if err == nil {
		_, err = c.transport.Status(ctx) // reads the tokens
	}
	c.up.host.recordLogin(c, "", err)
	if err == nil {
		c.loggedIn()
	}
	return err
}

// authorize passes the page of the authorization server to [Login.Start], and waits for its response.
func (l *Login) authorize(ctx context.Context, r *oauthclient.LoginRequest) (url.Values, error) {
	h := l.host
	h.logins.mu.Lock()
	delete(h.logins.byState, l.state) // of a registration that the authorization server has removed
	l.state = r.State
	h.logins.byState[r.State] = l
	h.logins.mu.Unlock()
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

// FinishLogin passes the response of an authorization server to the login that it is for, and waits for
// its end. browser is that of [Login.Start]. The error is [ErrNoLogin], [ErrOtherBrowser] or one of
// package oauthclient; see [LoginFailure]. The response of another browser does not end the login.
func (h *Host) FinishLogin(ctx context.Context, browser string, response url.Values) (*Login, error) {
	size := 0
	for name, values := range response {
		size += len(name) + len(strings.Join(values, ""))
	}
	sum := sha256.Sum256([]byte(browser))
	h.logins.mu.Lock()
	l := h.logins.byState[response.Get("state")]
	var err error
	switch {
	case l == nil || time.Now().After(l.expires) || size > maxResponse:
		l, err = nil, ErrNoLogin
	case subtle.ConstantTimeCompare(sum[:], l.browser[:]) != 1:
		l, err = nil, ErrOtherBrowser
	default:
		delete(h.logins.byState, l.state) // it has one response
	}
	h.logins.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l.responses <- response // has room
	select {
	case <-l.done:
		return l, l.outcome()
	case <-ctx.Done():
		return l, context.Cause(ctx)
	}
}

// Logout removes the tokens of a caller for a server, and revokes them if the authorization server
// supports that, and ends the connections that have used them. The tokens are removed also if there
// is an error.
func (h *Host) Logout(ctx context.Context, server string, c *Caller) error {
	u := h.set.Load().byName[server]
	if u == nil {
		return fmt.Errorf("host: unknown server %.64q", server)
	}
	cred, err := u.login(ctx, c)
	if err != nil || cred == nil {
		return err
	}
	err = cred.transport.Logout(ctx)
	cred.missing.Store(true)
	h.recordLogin(cred, "logged out", err)
	for _, p := range u.poolsOf(cred.caller) {
		p.lists.Notify() // the tool that logs out is no longer listed
		p.disconnect()
	}
	return err
}

// recordLogin records what has happened to a login. The outcome is that of err if it is empty.
func (h *Host) recordLogin(c *credential, outcome string, err error) {
	detail := map[string]string{"outcome": outcome}
	if outcome == "" {
		detail["outcome"] = "succeeded"
		if err != nil {
			detail["outcome"] = "failed"
		}
	}
	if err != nil {
		detail["reason"] = loginFailure(err)
	}
	h.recordChange(event.Login, &Caller{Principal: c.caller}, c.up.name, detail)
}

// oauthCodes are the errors of authorization servers that users and records see. Other text of them is
// not trusted. Source: RFC 6749, sections 4.1.2.1 and 5.2; RFC 8707, section 2.
var oauthCodes = []string{"access_denied", "invalid_client", "invalid_grant", "invalid_request", "invalid_scope",
	"invalid_target", "server_error", "temporarily_unavailable", "unauthorized_client", "unsupported_response_type"}

// loginFailure returns why a login has failed, without text of others.
func loginFailure(err error) string {
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

// LoginFailure returns the reason of an error of a login, for its user: a part of a sentence, without
// text of servers.
func LoginFailure(err error) string { return loginFailure(err) }
