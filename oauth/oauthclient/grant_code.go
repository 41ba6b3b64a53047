package oauthclient

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/internal/browser"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// maxCode limits an authorization code, in bytes. It travels in a URL.
const maxCode = 8 << 10

// An Authorizer lets the user log in, in a browser. [NewBrowser] and [NewAuthorizer] return
// implementations. It is safe for concurrent use.
type Authorizer interface {
	// Listen prepares for the authorization response of a login. redirectURIs are the allowed
	// redirect URIs, the preferred URI first; a URI with http, a loopback host and no port allows
	// any port. If there is no URI, the Authorizer chooses. The caller closes the Callback.
	Listen(ctx context.Context, redirectURIs []string) (Callback, error)
}

// A Callback receives the authorization response of a login.
type Callback interface {
	// RedirectURI returns the redirect URI of the login.
	RedirectURI() string
	// Authorize shows the login page to the user, waits for the response and returns its query
	// parameters. It is called at most once and returns when ctx ends. It ignores responses with
	// another state than that of the login.
	Authorize(ctx context.Context, login *LoginRequest) (url.Values, error)
	// Close releases the callback and shows the user the outcome of the login: nil for success.
	Close(outcome error)
}

// A LoginRequest is a login of the user.
type LoginRequest struct {
	// URL is the page to open. It is https, or http on this machine, and re-encoded from its parts.
	URL string
	// State is the state parameter that the response must contain.
	State string
	// Issuer is the authorization server, and Server the MCP server that the login is for, without
	// its query.
	Issuer, Server string
	// Program is the name of the program that logs in: Identity.Metadata.Name, or the name of its
	// file.
	Program string
}

// An AuthorizerFunc shows a login page to the user, waits until the browser returns to the redirect
// URI, and returns all query parameters of that request. The [Transport] checks them, and turns a
// refusal, such as error=access_denied, into a [*LoginError]. An error of the function is for a
// login without a response.
//
// The function must ignore responses with another state than [LoginRequest].State, since anyone can
// send them. It returns when ctx ends and may be called concurrently.
type AuthorizerFunc func(ctx context.Context, login *LoginRequest) (url.Values, error)

// NewAuthorizer returns an Authorizer for programs that receive the response themselves, at a fixed
// redirect URI.
func NewAuthorizer(redirectURI string, ask AuthorizerFunc) Authorizer {
	return &fixedAuthorizer{redirectURI, ask}
}

type fixedAuthorizer struct {
	redirectURI string
	ask         AuthorizerFunc
}

func (a *fixedAuthorizer) Listen(_ context.Context, redirectURIs []string) (Callback, error) {
	if len(redirectURIs) > 0 && !slices.Contains(redirectURIs, a.redirectURI) {
		return nil, errors.New("oauth: the redirect URI of the Authorizer must be one of the registered ones")
	}
	return fixedCallback{a}, nil
}

type fixedCallback struct{ *fixedAuthorizer }

func (c fixedCallback) RedirectURI() string { return c.redirectURI }

func (c fixedCallback) Authorize(ctx context.Context, login *LoginRequest) (url.Values, error) {
	return c.ask(ctx, login)
}

func (c fixedCallback) Close(error) {}

// A LoginError reports a login that the authorization server refused, for example because the user
// declined (access_denied). Code and Description are its text, cut and without control characters.
// Programs compare only the codes of RFC 6749.
//
// Spec: RFC 6749, section 4.1.2.1.
type LoginError struct {
	Code        string
	Description string // may be empty
}

// Error returns the text of the authorization server.
func (e *LoginError) Error() string {
	return "oauth: the login was refused: " + describe(e.Code, e.Description, 0)
}

// ErrInvalidResponse is wrapped by the error of a login whose response cannot be attributed to the
// authorization server. The response was not used.
var ErrInvalidResponse = errors.New("invalid authorization response")

// ErrLoginTimeout is the error of a login that the user did not complete in time.
var ErrLoginTimeout = errors.New("oauth: the login was not completed in time")

// A codeGrant asks the user: the authorization code grant with PKCE. Spec:
// basic/authorization#authorization-flow-steps; OAuth 2.1, section 4.1.
type codeGrant struct{}

func (codeGrant) extension() string { return "" }

func (codeGrant) obtain(ctx context.Context, r *grantRequest) (*TokenSet, error) {
	d := r.discovery
	if err := d.checkCodeFlow(&r.transport.client); err != nil {
		return nil, err
	}
	if err := d.checkLoginPage(r.transport.endpoint, r.transport.client.Issuer); err != nil {
		return nil, err
	}
	if err := r.transport.prover.CheckServer(d.Server.DPoPAlgorithms); err != nil {
		return nil, err
	}
	kind, err := r.transport.clientKind(d)
	if err != nil {
		return nil, err
	}
	if kind == clientConfigured {
		if _, err := r.transport.configured(d); err != nil {
			return nil, err // before listening and involving the user
		}
	}
	for again := false; ; again = true {
		l := &login{grantRequest: r, kind: kind}
		set, err := l.run(ctx)
		if err == nil || kind != clientRegistered || l.client == nil {
			return set, err
		}
		unknown := isTokenError(err, oauthwire.InvalidClient) || isTokenError(err, "unauthorized_client")
		if unknown || !l.answered.Load() {
			// An authorization server shows an error page for an unknown client and sends no
			// response. Tokens that were issued to the client contain its registration.
			if failed := r.transport.forgetClient(context.WithoutCancel(ctx), l.client); failed != nil {
				return nil, errors.Join(err, failed)
			}
		}
		if !unknown || again {
			return nil, err
		}
	}
}

// A login is an authorization request, with the values that its response is checked against. Spec:
// basic/authorization#authorization-response-validation (2026-07-28).
type login struct {
	*grantRequest
	kind        clientKind
	client      *Registration
	redirectURI string
	state       string
	verifier    string
	scopes      []string

	answered atomic.Bool // set when a response has been accepted
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
	request := &LoginRequest{
		URL: page, State: l.state, Issuer: d.Issuer, Server: oauthfetch.ShownURL(t.endpoint), Program: t.programName(),
	}
	end := func(url.Values, error) {}
	if t.page != nil {
		end = t.page(request)
	}
	response, err := callback.Authorize(ctx, request)
	done()
	end(response, err)
	if err != nil {
		return nil, err
	}
	code, err := l.authorizationCode(response)
	if err != nil {
		return nil, err
	}
	set, err = l.tokenEndpoint(l.client).request(ctx, url.Values{
		"grant_type": {"authorization_code"}, "code": {code},
		"redirect_uri": {l.redirectURI}, "code_verifier": {l.verifier},
	})
	if err != nil {
		return nil, err
	}
	if len(set.Scopes) == 0 {
		set.Scopes = l.scopes // an omitted scope means as requested
	}
	if l.kind == clientRegistered {
		set.Client = l.client
	}
	return set, nil
}

// listen prepares for the response, at a registered redirect URI if possible.
func (l *login) listen(ctx context.Context) (Callback, error) {
	t := l.transport
	bound := t.redirectURIs(ctx, l.discovery, l.kind)
	callback, err := t.authorizer.Listen(ctx, bound)
	if err == nil || len(bound) == 0 || len(t.client.Metadata.RedirectURIs) > 0 || ctx.Err() != nil {
		return callback, err
	}
	return t.authorizer.Listen(ctx, nil) // the client registers again
}

// withOffline adds offline_access to the scopes if the client and the server support refresh
// tokens. Spec: basic/authorization#refresh-tokens (2026-07-28).
func (l *login) withOffline() []string {
	grants := l.transport.client.Metadata.GrantTypes
	isWanted := len(grants) == 0 || slices.Contains(grants, grantRefresh)
	if len(l.grantRequest.scopes) == 0 || !isWanted ||
		!slices.Contains(l.discovery.Server.ScopesSupported, oauthwire.ScopeOffline) {
		return l.grantRequest.scopes // without scopes the server chooses defaults
	}
	return union(l.grantRequest.scopes, []string{oauthwire.ScopeOffline})
}

// page returns the URL of the login page. Spec: RFC 6749, section 4.1.1; RFC 7636, section 4; RFC
// 8707, section 2.1.
func (l *login) page() (string, error) {
	u, err := browser.Check(l.discovery.Server.AuthorizationEndpoint)
	if err != nil {
		return "", fmt.Errorf("oauth: invalid authorization_endpoint: %w", err)
	}
	challenge := sha256.Sum256([]byte(l.verifier))
	q := u.Query()
	q.Set("response_type", "code")
	q.Set("client_id", l.client.ClientID)
	q.Set("redirect_uri", l.redirectURI)
	q.Set("state", l.state)
	q.Set("code_challenge", base64.RawURLEncoding.EncodeToString(challenge[:]))
	q.Set("code_challenge_method", "S256")
	if len(l.scopes) > 0 {
		q.Set("scope", strings.Join(l.scopes, " "))
	}
	if slices.Contains(l.scopes, oauthwire.ScopeOffline) {
		q.Set("prompt", "consent") // OpenID Connect requires it for a refresh token
	}
	if l.discovery.Resource != "" && !l.transport.client.OmitResource {
		q.Set("resource", l.discovery.Resource)
	}
	if p := l.transport.prover; p != nil {
		q.Set("dpop_jkt", p.Thumbprint())
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// authorizationCode validates the response and returns its code. It accepts a single response.
// Spec: basic/authorization#authorization-response-validation (2026-07-28); RFC 9207, section 2.4.
func (l *login) authorizationCode(response url.Values) (string, error) {
	bad := func(why string) (string, error) { return "", fmt.Errorf("oauth: %w: %s", ErrInvalidResponse, why) }
	for _, name := range []string{"state", "iss", "code", "error", "error_description"} {
		if len(response[name]) > 1 {
			return bad(name + " appears twice")
		}
	}
	if subtle.ConstantTimeCompare([]byte(response.Get("state")), []byte(l.state)) != 1 {
		return bad("state must be that of the login")
	}
	switch {
	case l.answered.Swap(true):
		return bad("the login has had a response before")
	case response.Has("iss") && response.Get("iss") != l.discovery.Issuer:
		return bad("iss must be the authorization server that was asked")
	case !response.Has("iss") && l.discovery.Server.SupportsIssuerParameter:
		return bad("iss is missing, which the authorization server always sends")
	case response.Get("error") != "":
		secrets, description := []string{l.state, l.verifier}, response.Get("error_description")
		return "", &LoginError{
			Code:        oauthfetch.CleanTextWithout(response.Get("error"), oauthfetch.MaxErrorCode, secrets),
			Description: oauthfetch.CleanTextWithout(description, oauthfetch.MaxErrorText, secrets),
		}
	case response.Get("code") == "" || len(response.Get("code")) > maxCode:
		return bad(fmt.Sprintf("code must have 1 to %d bytes", maxCode))
	}
	return response.Get("code"), nil
}

// newSecret returns 256 random bits in base64url.
func newSecret() string {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(secret[:])
}
