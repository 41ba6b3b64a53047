package oauthclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// ErrLoginRequired is wrapped by the error of a request that needs a login if the Transport has no
// [Authorizer]. The error is a [*LoginRequiredError].
var ErrLoginRequired = errors.New("a login is required")

// A LoginRequiredError is a login that is needed and not possible for want of an [Authorizer].
type LoginRequiredError struct {
	Endpoint string   // the MCP server, without a query
	Scopes   []string // that the server has asked for; may be empty
}

// Error names the server and the scopes.
func (e *LoginRequiredError) Error() string {
	text := "oauth: a login is required at " + e.Endpoint
	if len(e.Scopes) > 0 {
		text += " (scopes " + strings.Join(e.Scopes, " ") + ")"
	}
	return text
}

// Unwrap returns [ErrLoginRequired].
func (e *LoginRequiredError) Unwrap() error { return ErrLoginRequired }

// A StepUpError is a server that asks for scopes for which the Transport has already logged in at
// its request. Another login would be in vain. [Transport.Login] ignores this.
type StepUpError struct {
	Scopes  []string // that the server asks for
	Granted []string // that the authorization server has granted
}

// Error names the scopes.
func (e *StepUpError) Error() string {
	return fmt.Sprintf("oauth: the server asks again for the scopes %q: the last login asked for them, and the "+
		"authorization server granted %q",
		strings.Join(e.Scopes, " "), strings.Join(e.Granted, " "))
}

// authorize obtains the tokens that a flow needs.
func (t *Transport) authorize(ctx context.Context, f *flow, n *need) (*outcome, error) {
	held, err := t.reload(ctx)
	if n.kind == needLogin && errors.Is(err, errUnreadable) {
		t.log.Warn("oauth: replacing an unreadable value in the store", "error", err)
		held, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	if n.isMet(held, time.Now()) {
		return &outcome{tokens: held}, nil // obtained by another process or an earlier flow
	}
	switch n.kind {
	case needRenewal:
		return t.renewExpiring(ctx, f, n, held)
	case needScope:
		if n.used != nil && includes(n.used.Challenged, n.scopes) {
			return nil, &StepUpError{Scopes: n.scopes, Granted: n.used.Scopes}
		}
	case needToken:
		if held != nil && held.RefreshToken != "" && !n.persists {
			return t.replaceRefused(ctx, f, n, held)
		}
	case needLogin:
	}
	return t.obtain(ctx, f, n, held)
}

// renewExpiring renews tokens that expire. If that fails because the server has moved to another
// authorization server, the outcome has no tokens: the 401 response of the server then starts a
// discovery.
func (t *Transport) renewExpiring(ctx context.Context, f *flow, n *need, held *TokenSet) (*outcome, error) {
	if held == nil {
		return &outcome{}, nil
	}
	var got *outcome
	var err error
	if held.RefreshToken == "" {
		got, err = t.grantAgain(ctx, f, held)
	} else {
		got, err = t.renew(ctx, held)
	}
	if err == nil || ctx.Err() != nil || !held.expiresBefore(time.Now()) {
		return got, err
	}
	d, failed := t.discover(ctx, &need{revision: n.revision})
	switch {
	case failed != nil:
		return nil, err
	case d.Issuer != held.Issuer:
		return &outcome{}, nil
	}
	return t.renewNearer(ctx, held, d, err)
}

// renewNearer renews tokens for a server that is nearer than at its last discovery, such as an
// internal server once the client has joined the company's network: its authorization server may be
// nearer, too. err is the reason why they could not be renewed.
func (t *Transport) renewNearer(ctx context.Context, held *TokenSet, d *discovery, err error) (*outcome, error) {
	t.mu.Lock()
	before := t.known
	isNearer := before != nil && before.Issuer == d.Issuer && before.Resource == d.Resource &&
		d.scope > max(before.Scope, oauthfetch.Public)
	if isNearer && errors.Is(err, oauth.ErrURLRefused) {
		t.known = d.record()
	}
	now := t.known
	t.mu.Unlock()
	if now == before {
		return nil, err
	}
	if failed := save(ctx, t.store, t.serverKey(), now); failed != nil {
		t.log.Error("oauth: the result of the discovery was not stored", "error", failed)
	}
	return t.renew(ctx, held)
}

// replaceRefused renews tokens that the server has refused, and obtains new ones if that does not
// help.
func (t *Transport) replaceRefused(ctx context.Context, f *flow, n *need, held *TokenSet) (*outcome, error) {
	got, err := t.renew(ctx, held)
	switch {
	case err == nil && got.tokens != nil:
		return got, nil
	case err == nil:
		return t.obtain(ctx, f, n, nil)
	case ctx.Err() != nil:
		return nil, err
	}
	d, failed := t.discover(ctx, n)
	switch {
	case failed != nil:
		return nil, err
	case d.Issuer == held.Issuer:
		return t.renewNearer(ctx, held, d, err)
	}
	return t.obtain(ctx, f, n, nil)
}

// discover finds the authorization server of the server. A refusal for want of scopes may lack
// resource_metadata; then that of the first refusal is used.
func (t *Transport) discover(ctx context.Context, n *need) (*discovery, error) {
	q := &discoveryQuery{Endpoint: t.endpoint.String(), Challenge: n.challenge, Revision: n.revision}
	if q.Challenge == nil || q.Challenge.Params["resource_metadata"] == "" {
		t.mu.Lock()
		if t.pointer != nil && n.kind != needToken {
			q.Challenge = t.pointer
		}
		t.mu.Unlock()
	} else {
		t.mu.Lock()
		t.pointer = n.challenge
		t.mu.Unlock()
	}
	if t.client.Issuer != "" {
		q.Prefer = append(q.Prefer, t.client.Issuer)
	}
	t.mu.Lock()
	if t.known != nil {
		q.Prefer = append(q.Prefer, t.known.Issuer)
	}
	t.mu.Unlock()
	return discover(ctx, t.fetcher, q)
}

// obtain obtains new tokens. held are the present ones, nil if there are none.
func (t *Transport) obtain(ctx context.Context, f *flow, n *need, held *TokenSet) (*outcome, error) {
	if t.asksPerson() && t.authorizer == nil {
		return nil, t.loginRequired(n.scopes)
	}
	logouts := t.loggedOut()
	d, err := t.discover(ctx, n)
	if err != nil {
		return nil, err
	}
	if t.client.Issuer != "" && t.client.Issuer != d.Issuer {
		return nil, &IssuerError{Want: t.client.Issuer, Got: d.Issuer}
	}
	if d.Conventional && n.kind == needLogin && !n.refused {
		return nil, errors.New("oauth: the server accepts requests without a token and publishes no authorization " +
			"metadata: no login is needed")
	}
	if t.prover == nil && d.Metadata != nil && d.Metadata.DPoPRequired {
		return nil, errors.New("oauth: the server requires DPoP: set TransportOptions.DPoP")
	}
	if held != nil && held.Issuer != d.Issuer {
		held = nil // of another authorization server
	}
	challenged := n.scopes
	if held != nil && n.kind == needScope {
		challenged = union(held.Challenged, n.scopes)
	}
	r := &grantRequest{transport: t, discovery: d, scopes: t.wanted(n, d, held), awaitUser: f.awaitUser}
	return t.requestTokens(ctx, r, challenged, logouts)
}

// grantAgain replaces expiring tokens by a grant that needs no user, from the same authorization
// server and for the same scopes.
func (t *Transport) grantAgain(ctx context.Context, f *flow, held *TokenSet) (*outcome, error) {
	t.mu.Lock()
	known, logouts := t.known, t.logouts
	t.mu.Unlock()
	if known == nil || known.Server == nil || known.Issuer != held.Issuer || t.asksPerson() {
		return &outcome{}, nil // the 401 response of the server then starts a discovery
	}
	r := &grantRequest{transport: t, discovery: known.discovery(), scopes: held.Requested, awaitUser: f.awaitUser}
	return t.requestTokens(ctx, r, held.Challenged, logouts)
}

// requestTokens obtains tokens by the grant and stores them, unless Logout was called since.
// challenged are the scopes that the server has asked for.
func (t *Transport) requestTokens(ctx context.Context, r *grantRequest, challenged []string,
	logouts int) (*outcome, error) {
	set, err := t.grant.obtain(ctx, r)
	if err != nil {
		return nil, err
	}
	d := r.discovery
	set.Issuer, set.Resource, set.Requested, set.Challenged = d.Issuer, d.Resource, r.scopes, challenged
	t.storeTokens(context.WithoutCancel(ctx), d.record(), set, logouts)
	return &outcome{tokens: set, source: fromGrant}, nil
}

// wanted returns the scopes to ask for: those that the server asks for, else all of its
// scopes_supported. To add scopes, those that were requested before are requested again. Spec:
// basic/authorization#scope-selection-strategy, #step-up-authorization-flow.
func (t *Transport) wanted(n *need, d *discovery, held *TokenSet) []string {
	scopes := union(n.scopes, t.scopes)
	if n.kind == needScope && held != nil {
		before := held.Requested
		if len(before) == 0 {
			before = held.Scopes
		}
		return union(before, scopes)
	}
	if len(scopes) == 0 {
		scopes = boundedScopes(strings.Join(d.ResourceScopes, " "))
		scopes = slices.DeleteFunc(scopes, func(s string) bool { return s == oauthwire.ScopeOffline })
	}
	return scopes
}

// asksPerson reports whether the grant involves the user.
func (t *Transport) asksPerson() bool {
	_, is := t.grant.(codeGrant)
	return is
}

func (t *Transport) loginRequired(scopes []string) error {
	return &LoginRequiredError{Endpoint: oauthfetch.ShownURL(t.endpoint), Scopes: union(scopes, t.scopes)}
}

// tokenEndpoint returns the token endpoint of an authorization server. scope is the network scope
// that the discovery has found.
func (t *Transport) tokenEndpoint(server *oauth.ServerMetadata, client *Registration, resource string,
	scope oauthfetch.NetworkScope) *tokenEndpoint {
	return &tokenEndpoint{
		fetcher: t.fetcher.Within(t.endpoint, scope), server: server, registration: client, key: t.client.Key, resource: resource,
		prover: t.prover,
	}
}
