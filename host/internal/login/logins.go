// Package login keeps the logins of callers at servers: credentials that authorize requests, and pending
// logins that wait for their users.
//
// The package reads settings of servers, stores of tokens and options of OAuth. It reports a login to the host,
// and knows neither connections nor views.
package login

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/internal/lru"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const (
	// Time limits a login, from the request that needs it to its end.
	Time = 10 * time.Minute
	// minTime is the time that must be left of a login that is offered again.
	minTime = 5 * time.Minute
	// maxLogins limits pending logins in total, maxPerPrincipal per principal: a user completes the
	// logins one by one.
	maxLogins       = 10_000
	maxPerPrincipal = 16
	// maxFailedPrincipals limits the principals whose last failed logins are kept, maxPerPrincipal of
	// each. A request without its failed login asks for another login.
	maxFailedPrincipals = 1000
	// maxResponse limits an authorization response, in bytes, as servers limit the line of a request.
	maxResponse = 16 << 10
)

// Options configure [New].
type Options struct {
	// OAuth returns the options for logins and requests of a principal at a server. Nil means the
	// defaults.
	OAuth func(s *config.Server, p *mcp.Principal) *oauthclient.TransportOptions
	// Tokens returns the store for the tokens of a principal. Nil means a store in memory for each.
	Tokens func(principal string) oauthclient.Store
	// Lookup returns the value of a variable.
	Lookup func(name string) (string, bool)
	Logger *slog.Logger
	// Dials means that the connections of the host use the login of the local user for servers with
	// "auth": "gateway"; otherwise a function of the program uses it.
	Dials bool
	// Context ends the logins in progress.
	Context context.Context
	// Run runs a function in a goroutine that the host waits for.
	Run func(f func())
	// Record records the outcome of a login. An empty outcome means that err is the outcome.
	Record func(server string, p *mcp.Principal, outcome string, err error)
}

// Logins contains the pending logins, and the tokens in memory, of a host. It is safe for concurrent
// use.
type Logins struct {
	opts Options
	sent atomic.Bool // a token was sent

	mu      sync.Mutex // guards the fields below, pending logins, and the credentials of servers
	byID    map[string]*Login
	byState map[string]*Login
	by      map[string]map[*Login]struct{} // by principal
	failed  lru.Map[string, []*Login]      // failed logins by principal, for requests that come back later
	stores  map[string]oauthclient.Store   // by principal, without Options.Tokens
	base    string                         // see SetURL
	refuse  func(p *mcp.Principal) error   // see SetURL; may be nil
}

// New returns the logins of a host.
func New(o Options) *Logins {
	s := &Logins{opts: o, byID: map[string]*Login{}, byState: map[string]*Login{},
		by: map[string]map[*Login]struct{}{}, stores: map[string]oauthclient.Store{}}
	s.failed.Max = maxFailedPrincipals
	return s
}

// SetURL sets the base URL of the pages on which users log in, and the function that returns why
// the pages cannot verify that their visitor is a principal; it may be nil.
func (s *Logins) SetURL(base string, refuse func(p *mcp.Principal) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base, s.refuse = base, refuse
}

func (s *Logins) record(c *Credential, outcome string, err error) {
	s.opts.Record(c.server.name, c.principal, outcome, err)
}

// Refused returns why a principal cannot log in on a page, or nil if it can.
func (s *Logins) Refused(p *mcp.Principal) error {
	s.mu.Lock()
	refuse := s.refuse
	s.mu.Unlock()
	if refuse == nil {
		return nil
	}
	return refuse(p)
}

// URL returns the base URL of the pages, or an empty string until it is set.
func (s *Logins) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base
}

// Begin returns a login for the scopes. A pending login of the credential that was not started and
// includes the scopes is returned again. The error is an [*hosterr.Error].
func (s *Logins) Begin(c *Credential, scopes []string) (*Login, error) {
	if err := s.Refused(c.principal); err != nil {
		return nil, hosterr.Errorf(hosterr.CodeAuthRequired, c.server.name, "a login is required: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, principal := time.Now(), c.principal.Key()
	for l := range s.by[principal] {
		switch {
		case now.After(l.expires):
			s.removeLocked(l)
		case l.credential == c && !l.started && l.expires.Sub(now) > minTime && Includes(l.scopes, scopes):
			return l, nil
		}
	}
	if len(s.byID) >= maxLogins {
		for _, l := range s.byID {
			if now.After(l.expires) {
				s.removeLocked(l)
			}
		}
	}
	if len(s.by[principal]) >= maxPerPrincipal || len(s.byID) >= maxLogins {
		e := hosterr.Errorf(hosterr.CodeLimited, c.server.name,
			"too many logins wait for their users: at most %d of a caller and %d in total", maxPerPrincipal, maxLogins)
		e.RetryAfter = Time
		return nil, e
	}
	l := &Login{logins: s, credential: c, scopes: slices.Clone(scopes), expires: now.Add(Time),
		ticket: strings.ToLower(rand.Text() + rand.Text()[:6]), pages: make(chan *oauthclient.LoginRequest, 1),
		responses: make(chan url.Values, 1), done: make(chan struct{})}
	l.id = DigestOf(l.ticket)
	if s.by[principal] == nil {
		s.by[principal] = map[*Login]struct{}{}
	}
	s.byID[l.id] = l
	s.by[principal][l] = struct{}{}
	return l, nil
}

// Includes reports whether scopes contain the wanted scopes.
func Includes(scopes, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(s string) bool { return !slices.Contains(scopes, s) })
}

// DigestOf returns the SHA-256 digest of a secret.
func DigestOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// removeLocked removes a login.
func (s *Logins) removeLocked(l *Login) {
	delete(s.byID, l.id)
	delete(s.byState, l.state)
	principal := l.credential.principal.Key()
	if delete(s.by[principal], l); len(s.by[principal]) == 0 {
		delete(s.by, principal)
	}
	l.endLocked(oauthclient.ErrLoginTimeout)
}

// ByTicket returns the login with a ticket. The error is [operator.ErrNoLogin], or
// [operator.ErrLoginUsed] for a login that was started.
func (s *Logins) ByTicket(ticket string) (*Login, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byID[DigestOf(ticket)]
	switch {
	case l == nil || time.Now().After(l.expires):
		return nil, operator.ErrNoLogin
	case l.started:
		return nil, operator.ErrLoginUsed
	}
	return l, nil
}

// ByID returns the pending login with an ID, or the failed login of the principal with the ID; otherwise
// nil.
func (s *Logins) ByID(principal, id string) *Login {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.byID[id]; l != nil {
		return l
	}
	if failed := s.failed.Get(principal); failed != nil {
		for _, l := range *failed {
			if l.id == id {
				return l
			}
		}
	}
	return nil
}

// Respond passes the response of an authorization server to the login with its state, and waits for the
// end of the login. browser is the argument of [Login.Start]. The error is [operator.ErrNoLogin],
// [operator.ErrOtherBrowser] or an error of package oauthclient; see [operator.LoginFailure]. The
// response of another browser does not end the login.
func (s *Logins) Respond(ctx context.Context, browser string, response url.Values) (*Login, error) {
	size := 0
	for name, values := range response {
		size += len(name) + len(strings.Join(values, ""))
	}
	sum := sha256.Sum256([]byte(browser))
	s.mu.Lock()
	l := s.byState[response.Get("state")]
	var err error
	switch {
	case l == nil || time.Now().After(l.expires) || size > maxResponse:
		l, err = nil, operator.ErrNoLogin
	case subtle.ConstantTimeCompare(sum[:], l.browser[:]) != 1:
		l, err = nil, operator.ErrOtherBrowser
	default:
		delete(s.byState, l.state) // further responses are unknown
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l.responses <- response // buffered
	select {
	case <-l.done:
		return l, l.Outcome()
	case <-ctx.Done():
		return l, context.Cause(ctx)
	}
}

// A Login is a pending login of a caller at a server. Its ticket is a secret: any user who knows it
// can complete the login, and then the requests of the caller use the access of this user. A Login
// is valid for 10 minutes and a single visit. It is safe for concurrent use.
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

// endLocked sets the outcome.
func (l *Login) endLocked(err error) {
	if !l.over {
		l.over, l.err = true, err
		close(l.done)
	}
}

// URL returns the page of the login, with its ticket: a secret of the caller.
func (l *Login) URL() string { return l.logins.URL() + "/" + l.ticket }

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
		err = operator.ErrNoLogin
	case l.started:
		err = operator.ErrLoginUsed
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

// Finish ends the login and wakes the requests that wait for it. A failed login is kept, in place of the oldest
// failed login of the principal if there are too many.
func (l *Login) Finish(err error) {
	s := l.logins
	s.mu.Lock()
	defer s.mu.Unlock()
	l.endLocked(err)
	s.removeLocked(l)
	if err == nil {
		return
	}
	principal := l.credential.principal.Key()
	var kept []*Login
	if failed := s.failed.Get(principal); failed != nil {
		kept = *failed
	}
	if len(kept) >= maxPerPrincipal {
		kept = slices.Delete(kept, 0, 1)
	}
	kept = append(kept, l)
	s.failed.Put(principal, &kept)
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
