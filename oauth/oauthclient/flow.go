package oauthclient

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// failureLifetime is how long a failed login is the result of further requests: each would open a
// browser or ask an authorization server that refused.
const failureLifetime = 30 * time.Second

// endTimeout limits how long the last request waits for the end of a canceled login, which removes
// the registration of a client that was never accepted. An Authorizer may ignore its context.
const endTimeout = time.Second

type needKind uint8

const (
	needToken   needKind = iota // the server wants a token, or a different token
	needScope                   // the server wants a token with more scopes
	needRenewal                 // the current token expires
	needLogin                   // the program called Login
)

type need struct {
	kind      needKind
	used      *TokenSet        // the token that was refused, or nil
	challenge *oauth.Challenge // of the server; nil if it sent no challenge that OAuth can answer
	scopes    []string         // of the challenge
	renewed   bool             // used was renewed for this request, and the server never accepted it
	revision  string           // of MCP, which the client speaks; empty if it is not known
	refused   bool             // the server refuses requests without a token, for needLogin
}

// newNeed returns the need of a refused request, nil if authorization cannot help. Some servers
// omit the error insufficient_scope. Spec: RFC 6750, section 3; basic/authorization#error-handling.
func newNeed(res *http.Response, used *TokenSet) *need {
	if res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden {
		return nil
	}
	n := &need{kind: needToken, used: used}
	if res.Request != nil {
		n.revision = res.Request.Header.Get(headerRevision)
	}
	all := oauth.ParseChallenges(res.Header)
	if n.challenge = chooseChallenge(all); n.challenge != nil {
		n.scopes = boundedScopes(n.challenge.Params["scope"])
	}
	if res.StatusCode == http.StatusUnauthorized {
		if n.challenge == nil && len(all) > 0 {
			return nil // another scheme, such as Basic
		}
		return n // revision 2025-03-26 defines no challenge
	}
	n.kind = needScope
	if n.challenge == nil || len(n.scopes) == 0 {
		return nil
	}
	switch n.challenge.Params["error"] {
	case oauthwire.InsufficientScope:
		return n
	case "":
		if used == nil || !includes(used.Scopes, n.scopes) {
			return n
		}
	}
	return nil // more scopes would not help
}

// chooseChallenge returns the most specific challenge that OAuth can response.
func chooseChallenge(all []oauth.Challenge) *oauth.Challenge {
	var best *oauth.Challenge
	for i := range all {
		c := &all[i]
		isBetter := best == nil || best.Params["resource_metadata"] == "" && c.Params["resource_metadata"] != ""
		if isBetter && (c.Is(oauthwire.Bearer) || c.Is(oauthwire.DPoP)) {
			best = c
		}
	}
	return best
}

// failureKey returns the key of a failure. All needs for scopes share a key, since a server could
// ask for other scopes each time.
func (n *need) failureKey() string {
	if n.kind == needScope {
		return "scope"
	}
	return n.key()
}

// key is equal for needs that the same authorization meets.
func (n *need) key() string {
	switch n.kind {
	case needScope:
		return "scope " + strings.Join(slices.Sorted(slices.Values(n.scopes)), " ")
	case needRenewal:
		return "renewal"
	case needLogin:
		return "login"
	case needToken:
	}
	return "token"
}

// isMet reports whether newer tokens meet the need.
func (n *need) isMet(tokens *TokenSet, now time.Time) bool {
	switch {
	case tokens == nil || tokens.expiresBefore(now) || n.kind == needLogin:
		return false
	case n.used != nil && n.used.AccessToken == tokens.AccessToken:
		return false
	case n.kind == needScope:
		return includes(slices.Concat(tokens.Scopes, tokens.Challenged), n.scopes)
	}
	return true
}

// A tokenSource is how tokens were obtained.
type tokenSource uint8

const (
	fromStore   tokenSource = iota // by another request or process
	fromRefresh                    // with a refresh token
	fromGrant                      // by a login or another grant
)

type outcome struct {
	tokens *TokenSet
	source tokenSource
}

type failedAttempt struct {
	err   error
	until time.Time
}

// A flow is an authorization in progress. All requests that need it wait for it. It is cancelled
// when no request waits any more.
type flow struct {
	key    string
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it ended
	got    *outcome      // the result, once done is closed
	err    error

	mu      sync.Mutex // guards the fields below
	waiters map[*waiter]struct{}
	asking  bool // the user is logging in
	asked   bool // the user was asked
}

// A waiter is a request that waits for a flow.
type waiter struct {
	ctx  context.Context
	done func() // resumes the timeouts of the client; nil if they are not suspended
}

var errAbandoned = errors.New("oauth: authorization cancelled: no request waits for it")

// acquire obtains tokens, together with all requests with the same need.
func (t *Transport) acquire(ctx context.Context, n *need) (*outcome, error) {
	for {
		f, mine, err := t.join(ctx, n)
		if err != nil {
			return nil, err
		}
		err = f.wait(ctx, mine)
		switch {
		case mine == nil && ctx.Err() == nil:
			continue // the flow was cancelled
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case f.key == n.key():
			return f.got, err
		}
		// The flow served another need, and may have met this need: the next flow checks.
	}
}

// join returns the flow in progress, which may serve another need, or begins one. The waiter is nil
// if the flow is being cancelled: the caller waits for its end and tries again.
func (t *Transport) join(ctx context.Context, n *need) (*flow, *waiter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := &waiter{ctx: ctx}
	flowField := t.flowField(n)
	if f := *flowField; f != nil {
		if !f.enter(mine) {
			mine = nil
		}
		return f, mine, nil
	}
	if r := t.failures[n.failureKey()]; r != nil && n.kind != needLogin && time.Now().Before(r.until) {
		return nil, nil, r.err
	}
	f := &flow{key: n.key(), done: make(chan struct{}), waiters: map[*waiter]struct{}{mine: {}}}
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	f.cancel = cancel
	*flowField = f
	go t.serve(own, f, n) // ends with the authorization, or when all waiters left
	return f, mine, nil
}

// flowField returns the field of the flow in progress. Renewals use their own, so that they do not
// wait for the user. The caller holds the lock.
func (t *Transport) flowField(n *need) **flow {
	if n.kind == needRenewal {
		return &t.renewal
	}
	return &t.flow
}

func (t *Transport) serve(ctx context.Context, f *flow, n *need) {
	got, err := t.authorize(ctx, f, n)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	t.mu.Lock()
	*t.flowField(n) = nil
	t.remember(n, f, err)
	t.mu.Unlock()
	f.got, f.err = got, err
	close(f.done)
	f.cancel(nil)
}

// remember records a failed login, or clears the failures after a successful login. The caller
// holds the lock.
func (t *Transport) remember(n *need, f *flow, err error) {
	f.mu.Lock()
	asked := f.asked
	f.mu.Unlock()
	switch {
	case errors.Is(err, errAbandoned), n.kind == needRenewal && (err == nil || t.needsUser()):
	case err == nil:
		clear(t.failures)
	case asked || isPermanent(err):
		t.rememberFailure(n, err)
	}
}

// rememberFailure makes an error the result of a need for a while. The caller holds the lock.
func (t *Transport) rememberFailure(n *need, err error) {
	t.failures[n.failureKey()] = &failedAttempt{err: err, until: time.Now().Add(failureLifetime)}
}

// enter adds a waiter, unless the flow is being cancelled.
func (f *flow) enter(w *waiter) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiters) == 0 {
		return false
	}
	f.waiters[w] = struct{}{}
	if f.asking {
		w.done = driver.PauseTimeouts(w.ctx)
	}
	return true
}

func (f *flow) wait(ctx context.Context, w *waiter) error {
	if w != nil {
		defer func() { _ = f.leave(w) }()
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		if w != nil && f.leave(w) { // the flow ends, but may still update the store
			timer := time.NewTimer(endTimeout)
			defer timer.Stop()
			select {
			case <-f.done:
			case <-timer.C:
			}
		}
		return context.Cause(ctx)
	}
}

// resume resumes the timeouts of the client. The caller holds the lock of the flow.
func (w *waiter) resume() {
	if w.done != nil {
		w.done()
		w.done = nil
	}
}

// leave removes a waiter, and cancels the flow if it was the last waiter.
func (f *flow) leave(w *waiter) (isLast bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.resume()
	delete(f.waiters, w)
	if len(f.waiters) > 0 {
		return false
	}
	f.cancel(errAbandoned)
	return true
}

// awaitUser suspends the timeouts of all requests that wait for the flow, until done is called.
func (f *flow) awaitUser() (done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking, f.asked = true, true
	for w := range f.waiters {
		w.done = driver.PauseTimeouts(w.ctx)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asking = false
		for w := range f.waiters {
			w.resume()
		}
	}
}
