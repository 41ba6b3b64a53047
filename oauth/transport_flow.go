package oauth

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// refusalMemory is how long a login that a person declined, or left alone, is the answer to further requests for the
	// same. A program has many requests, and each would open a browser. Login does not ask this memory.
	refusalMemory = 30 * time.Second
	// maxRefusals bounds how many such answers are kept: a server could think of ever new scopes.
	maxRefusals = 32
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
	used      *TokenSet  // which is not good enough; nil if there was none
	challenge *Challenge // of the server; nil if it had none of ours
	scopes    []string   // of the challenge
	persists  bool       // used comes of a renewal that the need has lasted through
	refused   bool       // the server has refused a request without a token, for needLogin
}

// newNeed gives what a response wants. It gives nil if that is nothing that OAuth is the answer to.
//
// Spec: RFC 6750, section 3; basic/authorization#error-handling.
func newNeed(res *http.Response, used *TokenSet) *need {
	if res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden {
		return nil
	}
	n := &need{kind: needToken, used: used}
	all := ParseChallenges(res.Header)
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
	if n.challenge == nil || n.challenge.Params["error"] != "insufficient_scope" || len(n.scopes) == 0 {
		return nil // more scopes would not help
	}
	return n
}

// chooseChallenge gives the challenge that says most of those that OAuth can answer.
func chooseChallenge(all []Challenge) *Challenge {
	var best *Challenge
	for i := range all {
		c := &all[i]
		if !c.Is(tokenBearer) && !c.Is(schemeDPoP) {
			continue
		}
		if best == nil || best.Params["resource_metadata"] == "" && c.Params["resource_metadata"] != "" {
			best = c
		}
	}
	return best
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
	case tokens == nil || tokens.endsBefore(now) || n.kind == needLogin:
		return false
	case n.used != nil && n.used.AccessToken == tokens.AccessToken:
		return false
	case n.kind == needScope:
		return includes(slices.Concat(tokens.Scopes, tokens.Challenged), n.scopes)
	}
	return true
}

// How tokens were come by.
type provenance uint8

const (
	loaded  provenance = iota // somebody else got them
	renewed                   // with a refresh token
	granted                   // by a login, or what stands for one
)

// An outcome is what an authorization has come to.
type outcome struct {
	tokens *TokenSet
	how    provenance
}

// A refusal is a login that a person has declined.
type refusal struct {
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

// join gives the flow in progress, which may be for something else, or begins one. The waiter is nil if the flow is about
// to end because all have left it: its end, when it has given up port and store, is the time for another.
func (t *Transport) join(ctx context.Context, n *need) (*flow, *waiter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := &waiter{ctx: ctx}
	if t.flow != nil {
		if !t.flow.enter(mine) {
			mine = nil
		}
		return t.flow, mine, nil
	}
	if r := t.refusals[n.key()]; r != nil && n.kind != needLogin && time.Now().Before(r.until) {
		return nil, nil, r.err
	}
	f := &flow{key: n.key(), done: make(chan struct{}), waiters: map[*waiter]struct{}{mine: {}}}
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	f.cancel = cancel
	t.flow = f
	go t.serve(own, f, n) // ends when it has what is needed, when it cannot get it, and when all waiters have left
	return f, mine, nil
}

// serve runs a flow.
func (t *Transport) serve(ctx context.Context, f *flow, n *need) {
	got, err := t.authorize(ctx, f, n)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	t.mu.Lock()
	t.flow = nil
	t.remember(n, err)
	t.mu.Unlock()
	f.got, f.err = got, err
	close(f.done)
	f.cancel(nil)
}

// remember keeps what a person has said to a login, or forgets it when there was one. The caller holds the lock.
func (t *Transport) remember(n *need, err error) {
	if err == nil {
		clear(t.refusals)
		return
	}
	if !isPersonal(err) {
		return
	}
	if len(t.refusals) >= maxRefusals {
		clear(t.refusals)
	}
	t.refusals[n.key()] = &refusal{err: err, until: time.Now().Add(refusalMemory)}
}

// isPersonal reports whether an error is what a person has made of a login.
func isPersonal(err error) bool {
	_, declined := errors.AsType[*LoginError](err)
	return declined || errors.Is(err, ErrLoginTimeout)
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
	f.asking = true
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
