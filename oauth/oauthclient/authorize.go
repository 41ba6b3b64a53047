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

// ErrLoginRequired is wrapped by the error of a request that needs a login if the Transport lacks
// an [Authorizer]. The error is a [*LoginRequiredError].
var ErrLoginRequired = errors.New("a login is required")

// A LoginRequiredError reports a login that is not possible without an [Authorizer].
type LoginRequiredError struct {
	Endpoint string   // the MCP server, without a query
	Scopes   []string // that the server asked for; may be empty
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

// A StepUpError reports a server that asks for scopes that the last login requested. Another
// login would not help, so a request does not start one. [Transport.Login] does.
type StepUpError struct {
	Scopes  []string // that the server asks for
	Granted []string // that the authorization server granted
}

// Error names the scopes.
func (e *StepUpError) Error() string {
	return fmt.Sprintf("oauth: the server asks again for the scopes %q: the last login asked for them, and the "+
		"authorization server granted %q", strings.Join(e.Scopes, " "), strings.Join(e.Granted, " "))
}

func (t *Transport) authorize(ctx context.Context, f *flow, n *need) (*outcome, error) {
	current, err := t.reload(ctx)
	if n.kind == needLogin && errors.Is(err, errUnreadable) {
		t.log.Warn("oauth: replacing an unreadable value in the store", "error", err)
		current, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	if n.isMet(current, time.Now()) {
		return &outcome{tokens: current}, nil // obtained by another process or an earlier flow
	}
	switch n.kind {
	case needRenewal:
		return t.renewExpiring(ctx, f, n, current)
	case needScope:
		if n.used != nil && includes(n.used.Challenged, n.scopes) {
			return nil, &StepUpError{Scopes: n.scopes, Granted: n.used.Scopes}
		}
	case needToken:
		if current != nil && current.RefreshToken != "" && !n.renewed {
			return t.replaceRefused(ctx, f, n, current)
		}
	case needLogin:
	}
	return t.obtain(ctx, f, n, current)
}

// renewExpiring renews tokens that expire. If that fails because the server now names another
// authorization server, the outcome contains no tokens: the 401 response then starts a discovery.
func (t *Transport) renewExpiring(ctx context.Context, f *flow, n *need, current *TokenSet) (*outcome, error) {
	if current == nil {
		return &outcome{}, nil
	}
	var got *outcome
	var err error
	if current.RefreshToken == "" {
		got, err = t.grantAgain(ctx, f, current)
	} else {
		got, err = t.renew(ctx, current)
	}
	if err == nil || ctx.Err() != nil || !current.expiresBefore(time.Now()) {
		return got, err
	}
	d, failed := t.discover(ctx, &need{revision: n.revision})
	switch {
	case failed != nil:
		return nil, err
	case d.Issuer != current.Issuer:
		return &outcome{}, nil
	}
	return t.renewNearer(ctx, current, d, err)
}

// renewNearer renews tokens for a server that is nearer than at its last discovery, such as an
// internal server once the client is in the company's network: its authorization server may be
// nearer, too. err is the error of the last renewal.
func (t *Transport) renewNearer(ctx context.Context, current *TokenSet, d *discovery, err error) (*outcome, error) {
	t.mu.Lock()
	before := t.record
	isNearer := before != nil && before.Issuer == d.Issuer && before.Resource == d.Resource &&
		d.scope > max(before.Scope, oauthfetch.Public)
	if isNearer && errors.Is(err, oauth.ErrURLRefused) {
		t.record = d.record()
	}
	now := t.record
	t.mu.Unlock()
	if now == before {
		return nil, err
	}
	if failed := save(ctx, t.store, t.serverKey(), now); failed != nil {
		t.log.Error("oauth: the result of the discovery was not stored", "error", failed)
	}
	return t.renew(ctx, current)
}

// replaceRefused renews tokens that the server refused, or else obtains new tokens.
func (t *Transport) replaceRefused(ctx context.Context, f *flow, n *need, current *TokenSet) (*outcome, error) {
	got, err := t.renew(ctx, current)
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
	case d.Issuer == current.Issuer:
		return t.renewNearer(ctx, current, d, err)
	}
	return t.obtain(ctx, f, n, nil)
}

// discover finds the authorization server of the server. A challenge for more scopes may lack
// resource_metadata; then that of an earlier challenge is used.
func (t *Transport) discover(ctx context.Context, n *need) (*discovery, error) {
	q := &discoveryQuery{Endpoint: t.endpoint.String(), Challenge: n.challenge, Revision: n.revision}
	if t.client.Issuer != "" {
		q.Prefer = append(q.Prefer, t.client.Issuer)
	}
	t.mu.Lock()
	if q.Challenge != nil && q.Challenge.Params["resource_metadata"] != "" {
		t.metadataChallenge = q.Challenge
	} else if t.metadataChallenge != nil && n.kind != needToken {
		q.Challenge = t.metadataChallenge
	}
	if t.record != nil {
		q.Prefer = append(q.Prefer, t.record.Issuer)
	}
	t.mu.Unlock()
	return discover(ctx, t.fetcher, q)
}

// obtain obtains new tokens. current may be nil.
func (t *Transport) obtain(ctx context.Context, f *flow, n *need, current *TokenSet) (*outcome, error) {
	if t.needsUser() && t.authorizer == nil {
		return nil, t.loginRequired(n.scopes)
	}
	t.mu.Lock()
	logouts := t.logouts
	t.mu.Unlock()
	d, err := t.discover(ctx, n)
	if err != nil {
		return nil, err
	}
	if t.client.Issuer != "" && !oauthwire.IsSameIssuer(t.client.Issuer, d.Issuer) {
		return nil, &IssuerError{Want: t.client.Issuer, Got: d.Issuer}
	}
	if d.Conventional && n.kind == needLogin && !n.refused {
		return nil, errors.New("oauth: no login is needed: the server accepts requests without a token")
	}
	if t.prover == nil && d.Metadata != nil && d.Metadata.DPoPRequired {
		return nil, errors.New("oauth: the server requires DPoP, which is not configured")
	}
	if current != nil && current.Issuer != d.Issuer {
		current = nil // of another authorization server
	}
	challenged := n.scopes
	if current != nil && n.kind == needScope {
		challenged = union(current.Challenged, n.scopes)
	}
	r := &grantRequest{transport: t, discovery: d, scopes: t.wanted(n, d, current), awaitUser: f.awaitUser}
	return t.requestTokens(ctx, r, challenged, logouts)
}

// grantAgain replaces expiring tokens by a grant that needs no user, from the same authorization
// server and for the same scopes.
func (t *Transport) grantAgain(ctx context.Context, f *flow, current *TokenSet) (*outcome, error) {
	t.mu.Lock()
	record, logouts := t.record, t.logouts
	t.mu.Unlock()
	if record == nil || record.Server == nil || record.Issuer != current.Issuer || t.needsUser() {
		return &outcome{}, nil // the 401 response of the server then starts a discovery
	}
	r := &grantRequest{transport: t, discovery: record.discovery(), scopes: current.Requested, awaitUser: f.awaitUser}
	return t.requestTokens(ctx, r, current.Challenged, logouts)
}

// requestTokens obtains tokens by the grant and stores them, unless Logout was called since.
// challenged are the scopes that the server asked for.
func (t *Transport) requestTokens(
	ctx context.Context, r *grantRequest, challenged []string, logouts int,
) (*outcome, error) {
	set, err := t.grant.obtain(ctx, r)
	if err != nil {
		return nil, err
	}
	d := r.discovery
	set.Issuer, set.Resource, set.Requested, set.Challenged = d.Issuer, d.Resource, r.scopes, challenged
	t.storeTokens(context.WithoutCancel(ctx), d.record(), set, logouts)
	return &outcome{tokens: set, source: fromGrant}, nil
}

// wanted returns the scopes to request: the scopes that the server asks for, else all of its
// scopes_supported. To add scopes, the scopes that were requested before are requested again. Spec:
// basic/authorization#scope-selection-strategy, #step-up-authorization-flow.
func (t *Transport) wanted(n *need, d *discovery, current *TokenSet) []string {
	scopes := union(n.scopes, t.scopes)
	if n.kind == needScope && current != nil {
		if len(current.Requested) > 0 {
			return union(current.Requested, scopes)
		}
		return union(current.Scopes, scopes)
	}
	if len(scopes) == 0 {
		scopes = boundedScopes(strings.Join(d.ResourceScopes, " "))
		scopes = slices.DeleteFunc(scopes, func(s string) bool { return s == oauthwire.ScopeOffline })
	}
	return scopes
}

func (t *Transport) needsUser() bool { return t.grant == codeGrant{} }

func (t *Transport) loginRequired(scopes []string) error {
	return &LoginRequiredError{Endpoint: oauthfetch.ShownURL(t.endpoint), Scopes: union(scopes, t.scopes)}
}

// tokenEndpoint returns a token endpoint. scope is that of the discovery.
func (t *Transport) tokenEndpoint(
	server *oauth.ServerMetadata, client *Registration, resource string, scope oauthfetch.NetworkScope,
) *tokenEndpoint {
	return &tokenEndpoint{
		fetcher: t.fetcher.Within(t.endpoint, scope), server: server, registration: client,
		key: t.client.Key, resource: resource, omitsResource: t.client.OmitResource, prover: t.prover,
	}
}
