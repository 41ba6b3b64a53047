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
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// failureLifetime is how long a login that has come to nothing is the answer to further requests for the same. A program
	// has many requests, and each would open a browser, or ask an authorization server that has said no. Login does not
	// ask this memory.
	failureLifetime = 30 * time.Second
)

// A needKind is why tokens are wanted.
type needKind uint8

const (
	needToken   needKind = iota // the server wants one, or another one
	needScope                   // the server wants one with more scopes
	needRenewal                 // the one that is held ends
	needLogin                   // somebody said so
)

// A need is what has to be authorized, and why.
type need struct {
	kind      needKind
	used      *TokenSet        // which is not good enough; nil if there was none
	challenge *oauth.Challenge // of the server; nil if it had none of ours
	scopes    []string         // of the challenge
	persists  bool             // used comes of a renewal that the need has lasted through
	revision  string           // of MCP, which the client speaks; empty if it did not say
	refused   bool             // the server has refused a request without a token, for needLogin
}

// newNeed returns what a response wants. It gives nil if that is nothing that OAuth is the answer to. A 403 that names scopes
// and no error is taken for one that lacks them: some servers leave the error out.
//
// Spec: RFC 6750, section 3; basic/authorization#error-handling.
func newNeed(res *http.Response, used *TokenSet) *need {
	if res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden {
		return nil
	}
	n := &need{kind: needToken, used: used}
	if res.Request != nil {
		n.revision = res.Request.Header.Get(headerRevision)
	}
	all := oauth.ParseChallenges(res.Header)
	n.challenge = chooseChallenge(all)
	if n.challenge != nil {
		n.scopes = boundedScopes(n.challenge.Params["scope"])
	}
	if res.StatusCode == http.StatusUnauthorized {
		if n.challenge == nil && len(all) > 0 {
			return nil // it wants something else, such as a password
		}
		return n // revision 2025-03-26 has no challenge
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

// chooseChallenge returns the challenge that says most of those that OAuth can answer.
func chooseChallenge(all []oauth.Challenge) *oauth.Challenge {
	var best *oauth.Challenge
	for i := range all {
		c := &all[i]
		if !c.Is(oauthwire.Bearer) && !c.Is(oauthwire.DPoP) {
			continue
		}
		if best == nil || best.Params["resource_metadata"] == "" && c.Params["resource_metadata"] != "" {
			best = c
		}
	}
	return best
}

// memory names the kind of need: what has come to nothing for some scopes is not asked for others right away, since a
// server could think of ever new ones.
func (n *need) failureKey() string {
	if n.kind == needScope {
		return "scope"
	}
	return n.key()
}

// key is the same for needs that one authorization serves.
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

// isMet reports whether tokens that somebody else has got meanwhile are what is needed.
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

// How tokens were come by.
type tokenSource uint8

const (
	fromStore   tokenSource = iota // somebody else got them
	fromRefresh                    // with a refresh token
	fromGrant                      // by a login, or what stands for one
)

// An outcome is what an authorization has come to.
type outcome struct {
	tokens *TokenSet
	source tokenSource
}

// A failedAttempt is a login that has come to nothing.
type failedAttempt struct {
	err   error
	until time.Time
}

// A flow is an authorization in progress. All requests that need it wait for it, each for as long as its own context
// lasts. When nobody waits any more it ends.
type flow struct {
	key    string
	cancel context.CancelCauseFunc
	done   chan struct{} // when it has ended
	got    *outcome      // then
	err    error         // then

	mu      sync.Mutex // guards the fields below
	waiters map[*waiter]struct{}
	asking  bool // a person is waited for
	asked   bool // one was
}

// A waiter is a request that waits for a flow.
type waiter struct {
	ctx  context.Context
	done func() // ends AwaitUser; nil if that is not in effect
}

var errAbandoned = errors.New("oauth: nobody waits for the authorization any more")

// acquire gets what is needed, together with all who need the same.
func (t *Transport) acquire(ctx context.Context, n *need) (*outcome, error) {
	for {
		f, mine, err := t.join(ctx, n)
		if err != nil {
			return nil, err
		}
		err = f.wait(ctx, mine)
		switch {
		case mine == nil && ctx.Err() == nil:
			continue // it has ended for want of waiters
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case f.key == n.key():
			return f.got, err
		}
		// Another need was served, perhaps this one with it: the next flow looks.
	}
}

// join returns the flow in progress, which may be for something else, or begins one. The waiter is nil if the flow is about
// to end because all have left it: its end, when it has given up port and store, is the time for another.
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
	go t.serve(own, f, n) // ends when it has what is needed, when it cannot get it, and when all waiters have left
	return f, mine, nil
}

// flowField returns the place of the flow in progress: renewals have one of their own, so that they do not wait for a person. The
// caller holds the lock.
func (t *Transport) flowField(n *need) **flow {
	if n.kind == needRenewal {
		return &t.renewal
	}
	return &t.flow
}

// serve runs a flow.
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

// remember keeps that a login has come to nothing, or forgets it when there was one. Renewals are no logins, but where no
// person is asked they are as good as one. The caller holds the lock.
func (t *Transport) remember(n *need, f *flow, err error) {
	f.mu.Lock()
	asked := f.asked
	f.mu.Unlock()
	switch {
	case errors.Is(err, errAbandoned), n.kind == needRenewal && (err == nil || t.asksPerson()):
	case err == nil:
		clear(t.failures)
	case asked || isPermanent(err):
		t.rememberFailure(n, err)
	}
}

// rememberFailure has an error be the answer to a need for a while. The caller holds the lock.
func (t *Transport) rememberFailure(n *need, err error) {
	t.failures[n.failureKey()] = &failedAttempt{err: err, until: time.Now().Add(failureLifetime)}
}

// enter adds a waiter, unless all have left and the flow is about to end.
func (f *flow) enter(w *waiter) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiters) == 0 {
		return false
	}
	f.waiters[w] = struct{}{}
	if f.asking {
		w.done = mcp.AwaitUser(w.ctx)
	}
	return true
}

// wait waits for the end of the flow, or of the waiter's patience.
func (f *flow) wait(ctx context.Context, w *waiter) error {
	if w != nil {
		defer f.leave(w)
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *flow) leave(w *waiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.done != nil {
		w.done()
		w.done = nil
	}
	delete(f.waiters, w)
	if len(f.waiters) == 0 {
		f.cancel(errAbandoned)
	}
}

// awaitUser stops the time limits of all who wait, and of those who will, until done is called.
func (f *flow) awaitUser() (done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking, f.asked = true, true
	for w := range f.waiters {
		w.done = mcp.AwaitUser(w.ctx)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asking = false
		for w := range f.waiters {
			if w.done != nil {
				w.done()
				w.done = nil
			}
		}
	}
}
