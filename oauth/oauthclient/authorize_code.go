package oauthclient

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/browser"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// maxCode bounds an authorization code, in bytes. It stands in a URL.
const maxCode = 8 << 10

// An Authorizer asks a person to log in, in a browser. [NewBrowser] and [NewAuthorizer] give some. It is safe for
// concurrent use.
type Authorizer interface {
	// Listen makes ready for the answer to one login. redirectURIs are those that it may come to, the preferred one
	// first: http on this machine without a port means any port. If there are none, the Authorizer chooses. The caller
	// closes the Callback.
	Listen(ctx context.Context, redirectURIs []string) (Callback, error)
}

// A Callback takes the answer to one login.
type Callback interface {
	// RedirectURI is where the answer comes to.
	RedirectURI() string
	// Authorize shows the page of a login to the person, waits for the answer and gives the parameters that it has in
	// its query. It is called at most once, and returns when ctx ends. What comes with another state than that of the
	// login is no answer to it.
	Authorize(ctx context.Context, login *LoginRequest) (url.Values, error)
	// Close ends it, and tells the person how the login went: nil that it succeeded.
	Close(outcome error)
}

// A LoginRequest is a login that a person is asked for.
type LoginRequest struct {
	// URL is the page to open. It is https, or http on this machine, and written anew from its parts.
	URL string
	// State is what the answer has to have in its state.
	State string
	// Issuer is the authorization server that asks, and Server the MCP server, without a query, that the login is for.
	Issuer, Server string
	// Program is what the program that logs in calls itself: TransportOptions.Client.Metadata.Name, or the name of its file.
	Program string
}

// An AuthorizerFunc shows the page of a login to a person, waits until the browser comes back to the redirect URI, and gives the
// parameters that it brings in the query, all of them as they are. The [Transport] checks state and iss, and makes a
// [*LoginError] of a failedAttempt, such as error=access_denied: that is an answer like any other, and no error of the function.
// Its error is for what has no answer, such as a person who does not come back, and ends the login. One whose redirect
// URI takes the answers to several logins finds the right one by [LoginRequest].State; what has another state is to be
// waited past, since anybody can send it. It returns when ctx ends, and may be called by many goroutines at once.
type AuthorizerFunc func(ctx context.Context, login *LoginRequest) (url.Values, error)

// NewAuthorizer returns an Authorizer for programs that take the answer themselves, at a redirect URI that does not change.
func NewAuthorizer(redirectURI string, ask AuthorizerFunc) Authorizer {
	return &fixedAuthorizer{redirectURI, ask}
}

type fixedAuthorizer struct {
	redirectURI string
	ask         AuthorizerFunc
}

func (a *fixedAuthorizer) Listen(_ context.Context, redirectURIs []string) (Callback, error) {
	if len(redirectURIs) > 0 && !slices.Contains(redirectURIs, a.redirectURI) {
		return nil, errors.New("oauth: the client is not registered with the redirect URI of its Authorizer")
	}
	return fixedCallback{a}, nil
}

type fixedCallback struct{ *fixedAuthorizer }

func (c fixedCallback) RedirectURI() string { return c.redirectURI }

func (c fixedCallback) Authorize(ctx context.Context, login *LoginRequest) (url.Values, error) {
	return c.ask(ctx, login)
}

func (c fixedCallback) Close(error) {}

// A LoginError is the answer of an authorization server that refuses a login: the person has declined, say
// (access_denied). Code and Description are its words, cut and without control characters; they are for people, apart from
// the codes of RFC 6749.
//
// Spec: RFC 6749, section 4.1.2.1.
type LoginError struct {
	Code        string
	Description string // may be empty
}

// Error says what the authorization server said.
func (e *LoginError) Error() string {
	return "oauth: the login was refused: " + describe(e.Code, e.Description)
}

// ErrBadAnswer is within the error of a login whose answer is not that of the authorization server which was asked, or
// which cannot be told. Nothing of the answer was used.
var ErrBadAnswer = errors.New("the answer to the login is not acceptable")

// ErrLoginTimeout is the error of a login that nobody answered in time.
var ErrLoginTimeout = errors.New("oauth: nobody answered the login in time")

// A codeGrant asks a person: the authorization code grant with PKCE.
//
// Spec: basic/authorization#authorization-flow-steps; OAuth 2.1, section 4.1.
type codeGrant struct{}

func (codeGrant) obtain(ctx context.Context, r *grantRequest) (*TokenSet, error) {
	d := r.discovery
	if err := d.checkCodeFlow(); err != nil {
		return nil, err
	}
	if r.transport.prover != nil {
		if err := r.transport.prover.CheckServer(d.Server.DPoPAlgorithms); err != nil {
			return nil, err
		}
	}
	kind, err := r.transport.clientKind(d)
	if err != nil {
		return nil, err
	}
	if kind == clientConfigured {
		if _, err := r.transport.configured(d); err != nil {
			return nil, err // before anything is listened to, or anybody asked
		}
	}
	for again := false; ; again = true {
		l := &login{grantRequest: r, kind: kind}
		set, err := l.run(ctx)
		if err == nil || kind != clientRegistered || l.client == nil {
			return set, err
		}
		unknown := isTokenError(err, oauthwire.InvalidClient)
		if unknown || errors.Is(err, ErrLoginTimeout) {
			// Who is not known is shown an error in the browser, of which no answer comes. Tokens that the client has
			// been given hold what they are renewed with.
			if failed := r.transport.forgetClient(context.WithoutCancel(ctx), l.client); failed != nil {
				return nil, errors.Join(err, failed)
			}
		}
		if !unknown || again {
			return nil, err
		}
	}
}

// A login is one authorization request, with all that its answer is held against.
//
// Spec: basic/authorization#authorization-response-validation (2026-07-28).
type login struct {
	*grantRequest
	kind        clientKind
	client      *Registration
	redirectURI string
	state       string
	verifier    string
	scopes      []string

	mu       sync.Mutex // guards the field below
	answered bool       // an answer has come
}

func (l *login) run(ctx context.Context) (set *TokenSet, err error) {
	t, d := l.transport, l.discovery
	callback, err := l.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { callback.Close(err) }()
	l.redirectURI = callback.RedirectURI()
	if err := oauth.CheckRedirectURI(l.redirectURI); err != nil {
		return nil, err
	}
	if l.client, err = t.clientFor(ctx, d, l.kind, l.redirectURI); err != nil {
		return nil, err
	}
	l.state, l.verifier, l.scopes = newSecret(), newSecret(), l.withOffline()
	page, err := l.page()
	if err != nil {
		return nil, err
	}
	done := l.awaitUser()
	answer, err := callback.Authorize(ctx, &LoginRequest{
		URL: page, State: l.state, Issuer: d.Issuer, Server: oauthfetch.ShownURL(t.endpoint), Program: t.programName(),
	})
	done()
	if err != nil {
		return nil, err
	}
	code, err := l.authorizationCode(answer)
	if err != nil {
		return nil, err
	}
	set, err = l.tokenEndpoint(l.client).request(ctx, url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {code},
		"redirect_uri":  {l.redirectURI},
		"code_verifier": {l.verifier},
	})
	if err != nil {
		return nil, err
	}
	if len(set.Scopes) == 0 {
		set.Scopes = l.scopes // what a response leaves out is as it was asked for
	}
	if l.kind == clientRegistered {
		set.Client = l.client
	}
	return set, nil
}

// listen makes ready for the answer, where the client is registered if that is possible.
func (l *login) listen(ctx context.Context) (Callback, error) {
	t := l.transport
	bound := t.redirectURIs(ctx, l.discovery, l.kind)
	callback, err := t.authorizer.Listen(ctx, bound)
	if err == nil || len(bound) == 0 || len(t.client.Metadata.RedirectURIs) > 0 || ctx.Err() != nil {
		return callback, err
	}
	return t.authorizer.Listen(ctx, nil) // the client is registered anew
}

// withOffline returns the scopes to ask for, with the one for refresh tokens where that is wanted and known.
//
// Spec: basic/authorization#refresh-tokens (2026-07-28).
func (l *login) withOffline() []string {
	grants := l.transport.client.Metadata.GrantTypes
	isWanted := len(grants) == 0 || slices.Contains(grants, grantRefresh)
	if len(l.grantRequest.scopes) == 0 || !isWanted || !slices.Contains(l.discovery.Server.ScopesSupported, oauthwire.ScopeOffline) {
		return l.grantRequest.scopes // without any scope the server chooses, which one alone would prevent
	}
	return union(l.grantRequest.scopes, []string{oauthwire.ScopeOffline})
}

// page returns the URL to open.
//
// Spec: RFC 6749, section 4.1.1; RFC 7636, section 4.3; RFC 8707, section 2.1.
func (l *login) page() (string, error) {
	u, err := browser.Check(l.discovery.Server.AuthorizationEndpoint)
	if err != nil {
		return "", fmt.Errorf("oauth: the authorization endpoint cannot be opened: %w", err)
	}
	q := u.Query()
	q.Set("response_type", "code")
	q.Set("client_id", l.client.ClientID)
	q.Set("redirect_uri", l.redirectURI)
	q.Set("state", l.state)
	q.Set("code_challenge", challengeOf(l.verifier))
	q.Set("code_challenge_method", "S256")
	if len(l.scopes) > 0 {
		q.Set("scope", strings.Join(l.scopes, " "))
	}
	if slices.Contains(l.scopes, oauthwire.ScopeOffline) {
		q.Set("prompt", "consent") // without it OpenID Connect gives no refresh token
	}
	if l.discovery.Resource != "" {
		q.Set("resource", l.discovery.Resource)
	}
	if p := l.transport.prover; p != nil {
		q.Set("dpop_jkt", p.Thumbprint())
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// take takes the one answer, and gives its code.
//
// Spec: basic/authorization#authorization-response-validation (2026-07-28); RFC 9207, section 2.4.
func (l *login) authorizationCode(answer url.Values) (string, error) {
	bad := func(why string) (string, error) { return "", fmt.Errorf("oauth: %w: %s", ErrBadAnswer, why) }
	for _, name := range []string{"state", "iss", "code", "error", "error_description"} {
		if len(answer[name]) > 1 {
			return bad("a parameter stands in it twice")
		}
	}
	if subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(l.state)) != 1 {
		return bad("it is for another login")
	}
	l.mu.Lock()
	taken := l.answered
	l.answered = true
	l.mu.Unlock()
	switch {
	case taken:
		return bad("there was one before")
	case answer.Has("iss") && answer.Get("iss") != l.discovery.Issuer:
		return bad("it is another authorization server's")
	case !answer.Has("iss") && l.discovery.Server.SendsIssuer:
		return bad("it does not say which authorization server's it is, and this one says")
	case answer.Get("error") != "":
		return "", &LoginError{
			Code:        oauthfetch.CleanTextWithout(answer.Get("error"), oauthfetch.MaxErrorCode, []string{l.state, l.verifier}),
			Description: oauthfetch.CleanTextWithout(answer.Get("error_description"), oauthfetch.MaxErrorText, []string{l.state, l.verifier}),
		}
	case answer.Get("code") == "" || len(answer.Get("code")) > maxCode:
		return bad("it has no code")
	}
	return answer.Get("code"), nil
}
