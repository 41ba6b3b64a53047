// Package oidcclient logs users in at OpenID providers, and at OAuth servers with configured
// endpoints, by the authorization code flow.
package oidcclient

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/internal/singleflight"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	metadataTime  = 12 * time.Hour   // lifetime of metadata; an unknown signing key is fetched at once
	metadataRetry = 5 * time.Second  // delay after a failed fetch
	discoveryTime = 10 * time.Second // time limit of a fetch, for which other requests wait
)

// A Client is an OAuth client of a provider. It is safe for concurrent use; its exported fields
// must not change after the first use.
type Client struct {
	Issuer     string     // of an OpenID provider
	Fixed      *Endpoints // of an OAuth server that is not an OpenID provider; must not be modified
	ID, Secret string     // an empty secret means a public client
	Scopes     []string
	Parameters map[string]string // further parameters of authorization requests
	HTTP       *http.Client

	found foundEndpoints
}

// A Request holds the parameters of an authorization request that are required to check its
// response.
type Request struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
}

// NewRequest returns a request with a state that begins with id and a dot.
func NewRequest(id string) Request {
	return Request{State: id + "." + rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
}

// Endpoints are the endpoints of a provider.
type Endpoints struct {
	Authorization, Token, Revocation, Introspection, Userinfo string

	Style       oauth2.AuthStyle
	Verifier    *oidc.IDTokenVerifier // nil for an OAuth server that is not an OpenID provider
	SendsIssuer bool                  // authorization responses contain iss
}

type foundEndpoints struct {
	fetches singleflight.Group[struct{}, *Endpoints]

	mu    sync.Mutex // guards the fields below
	last  *Endpoints // nil before the first success
	err   error      // of the last attempt
	fresh time.Time  // when the next fetch is due
}

// Endpoints returns the endpoints. It fetches the metadata of an OpenID provider if they are not
// cached.
func (c *Client) Endpoints(ctx context.Context) (*Endpoints, error) {
	f := &c.found
	if c.Fixed != nil {
		return c.Fixed, nil
	}
	if ends, err, ok := f.known(); ok {
		return ends, err
	}
	return f.fetches.Do(ctx, struct{}{}, c.refreshEndpoints)
}

func (c *Client) refreshEndpoints(ctx context.Context) (*Endpoints, error) {
	f := &c.found
	if ends, err, ok := f.known(); ok { // fetched since the caller looked
		return ends, err
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTime)
	defer cancel()
	ends, err := c.discover(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.last, f.err, f.fresh = ends, nil, time.Now().Add(metadataTime)
	case f.last != nil && IsTemporary(err):
		f.fresh = time.Now().Add(metadataRetry) // continue to use the old endpoints
	default:
		f.last, f.err, f.fresh = nil, err, time.Now().Add(metadataRetry)
	}
	return f.last, f.err
}

func (f *foundEndpoints) known() (ends *Endpoints, err error, ok bool) { //nolint:revive // err is what is known
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.err, time.Now().Before(f.fresh)
}

// discover fetches the metadata of an OpenID provider. Package oidc checks the issuer.
func (c *Client) discover(ctx context.Context) (*Endpoints, error) {
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, c.HTTP), c.Issuer)
	var other *oidc.IssuerMismatchError
	switch {
	case errors.As(err, &other):
		return nil, errors.New("the metadata contains another issuer")
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNoMetadata, Bounded(err))
	}
	var more struct {
		Revocation    string   `json:"revocation_endpoint"`
		Introspection string   `json:"introspection_endpoint"`
		AuthMethods   []string `json:"token_endpoint_auth_methods_supported"`
		SendsIssuer   bool     `json:"authorization_response_iss_parameter_supported"`
	}
	if err := found.Claims(&more); err != nil {
		return nil, errors.New("the metadata contains a member of the wrong type")
	}
	ends := &Endpoints{
		Authorization: found.Endpoint().AuthURL, Token: found.Endpoint().TokenURL, Revocation: more.Revocation,
		Introspection: more.Introspection, Userinfo: found.UserInfoEndpoint(), SendsIssuer: more.SendsIssuer,
		Verifier: found.Verifier(&oidc.Config{ClientID: c.ID}), Style: oauth2.AuthStyleInHeader,
	}
	if c.Secret == "" || len(more.AuthMethods) > 0 && !slices.Contains(more.AuthMethods, "client_secret_basic") {
		ends.Style = oauth2.AuthStyleInParams
	}
	if ends.Token == "" {
		return nil, errors.New("the metadata contains no token_endpoint")
	}
	return ends, CheckBrowserURL(ends.Authorization)
}

// ErrNoMetadata reports that the metadata of a provider could not be fetched.
var ErrNoMetadata = errors.New("fetching the metadata of the identity provider failed")

const maxErrorText = 300 // bytes of the text of a library error, which may quote a response

// Bounded returns an error of a library with a limited text. [IsTemporary] recognizes the result.
func Bounded(err error) error {
	var fetchErr *oauth.FetchError
	var failed *oauth2.RetrieveError
	switch {
	case errors.As(err, &fetchErr):
		return fetchErr
	case errors.As(err, &failed):
		e := &StatusError{Code: oauthwire.PlainText(failed.ErrorCode)}
		if failed.Response != nil {
			e.Status = failed.Response.StatusCode
		}
		return e
	}
	text := err.Error()
	return fmt.Errorf("%q", text[:min(len(text), maxErrorText)])
}

// A StatusError is a response of a provider with an error status.
type StatusError struct {
	Status int
	Code   string // the OAuth error code; may be empty
}

// Error returns the status and the code.
func (e *StatusError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("the identity provider returned HTTP %d", e.Status)
	}
	return fmt.Sprintf("the identity provider returned HTTP %d, %s", e.Status, e.Code)
}

// IsTemporary reports whether an identity provider did not answer or reported a temporary failure.
func IsTemporary(err error) bool {
	var statusErr *StatusError
	var fetchErr *oauth.FetchError
	switch {
	case errors.As(err, &statusErr):
		return statusErr.Status >= http.StatusInternalServerError || statusErr.Status == http.StatusTooManyRequests ||
			statusErr.Status == http.StatusRequestTimeout || statusErr.Code == "temporarily_unavailable" ||
			statusErr.Code == "server_error"
	case errors.As(err, &fetchErr):
		return true
	}
	return errors.Is(err, ErrNoMetadata) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Config returns the configuration of package oauth2.
func (c *Client) Config(ends *Endpoints, callback string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: c.ID, ClientSecret: c.Secret, RedirectURL: callback, Scopes: c.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: ends.Authorization, TokenURL: ends.Token, AuthStyle: ends.Style},
	}
}

// AuthorizationURL returns the page of an authorization request, with PKCE and a nonce.
func (c *Client) AuthorizationURL(ends *Endpoints, callback string, r *Request) string {
	opts := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(r.Verifier)}
	if ends.Verifier != nil {
		opts = append(opts, oidc.Nonce(r.Nonce))
	}
	for name, value := range c.Parameters {
		opts = append(opts, oauth2.SetAuthURLParam(name, value))
	}
	return c.Config(ends, callback).AuthCodeURL(r.State, opts...)
}

// CheckIssuer refuses an authorization response of another identity provider. It must be called
// before any other use of the response. Spec: RFC 9207, section 2.4.
func (c *Client) CheckIssuer(ends *Endpoints, iss []string) error {
	switch {
	case !ends.SendsIssuer && (len(iss) == 0 || c.Issuer == ""): // an OAuth server may have no known issuer
		return nil
	case len(iss) != 1 || iss[0] != c.Issuer:
		return errors.New("the response contains the wrong issuer")
	}
	return nil
}

// Exchange exchanges the code of an authorization response for tokens.
func (c *Client) Exchange(ctx context.Context, ends *Endpoints, callback, code, verifier string) (*oauth2.Token,
	error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, c.HTTP)
	token, err := c.Config(ends, callback).Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return nil, fmt.Errorf("exchange the code: %w", Bounded(err))
	}
	return token, nil
}

// VerifyIDToken verifies the ID token of a login. An empty nonce means a renewal, whose ID token
// contains no nonce. Spec: OpenID Connect Core 1.0, section 3.1.3.7.
func (c *Client) VerifyIDToken(ctx context.Context, ends *Endpoints, token *oauth2.Token,
	nonce string) (*oidc.IDToken, error) {
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return nil, errors.New("the token response contains no ID token")
	}
	id, err := ends.Verifier.Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("verify the ID token: %w", Bounded(err))
	}
	var more struct {
		Party string `json:"azp"`
	}
	if err := id.Claims(&more); err != nil {
		return nil, errors.New("the ID token contains a claim of the wrong type")
	}
	switch {
	case id.Subject == "":
		return nil, errors.New("the ID token contains no sub")
	case nonce != "" && id.Nonce != nonce:
		return nil, errors.New("the ID token contains the wrong nonce")
	case len(id.Audience) > 1 && more.Party == "" || more.Party != "" && more.Party != c.ID:
		return nil, errors.New("the ID token is for another client")
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(token.AccessToken); err != nil {
			return nil, errors.New("the ID token is for another access token")
		}
	}
	return id, nil
}

// CheckBrowserURL returns an error unless a browser may be sent to address: an https URL, or an
// http URL with a loopback address.
func CheckBrowserURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return errors.New("invalid authorization endpoint: must be a URL without user information")
	case u.Scheme != "https" && (u.Scheme != "http" || !netx.IsLoopback(u.Hostname())):
		return errors.New("invalid authorization endpoint: must be https, or http with a loopback address")
	}
	return nil
}
