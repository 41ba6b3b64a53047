package authserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
	"golang.org/x/oauth2"

	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// providerTimeout bounds what one login or renewal does at a third party, which is several requests.
	providerTimeout = 25 * time.Second
	// metadataTime is how long the metadata of a third party is kept; keys are fetched whenever one is missing.
	metadataTime = 12 * time.Hour
	// metadataRetry is how long a failure to fetch it is remembered.
	metadataRetry = 5 * time.Second
	// discoveryTime bounds one attempt to fetch it, which goes on when whoever caused it is gone: others wait for it.
	discoveryTime = 10 * time.Second
)

// endpoints are what is known of a third party.
type endpoints struct {
	authorization, token, revocation, introspection, userinfo string

	style       oauth2.AuthStyle
	verifier    *oidc.IDTokenVerifier // nil if it is no OpenID provider
	sendsIssuer bool
}

// foundEndpoints keeps the endpoints of a third party.
type foundEndpoints struct {
	fixed *endpoints    // of the configuration, never changed
	turn  chan struct{} // holds a token while they are fetched

	mu    sync.Mutex // guards the fields below
	last  *endpoints // nil until they were found
	err   error      // of the last attempt
	fresh time.Time  // until when all this holds
}

// endpoints returns the endpoints of the third party, from its metadata.
func (p *provider) endpoints(ctx context.Context) (*endpoints, error) {
	f := &p.found
	if f.fixed != nil {
		return f.fixed, nil
	}
	if ends, err, ok := f.known(); ok {
		return ends, err
	}
	select { // one fetches, the others wait for it
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if ends, err, ok := f.known(); ok {
		return ends, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discoveryTime)
	defer cancel()
	ends, err := p.discover(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.last, f.err, f.fresh = ends, nil, time.Now().Add(metadataTime)
	case f.last != nil && isTemporary(err):
		f.fresh = time.Now().Add(metadataRetry) // what was true yesterday is better than nothing
	default:
		f.last, f.err, f.fresh = nil, err, time.Now().Add(metadataRetry)
	}
	return f.last, f.err
}

func (f *foundEndpoints) known() (ends *endpoints, err error, ok bool) { //nolint:revive // err is what is known
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.err, time.Now().Before(f.fresh)
}

// discover reads the metadata of an OpenID provider. That its issuer is the one that was configured is checked by oidc.
func (p *provider) discover(ctx context.Context) (*endpoints, error) {
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.http), p.o.Issuer)
	var other *oidc.IssuerMismatchError
	switch {
	case errors.As(err, &other):
		return nil, errors.New("the metadata of the provider is that of another issuer")
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNoMetadata, bounded(err))
	}
	var more struct {
		Revocation    string   `json:"revocation_endpoint"`
		Introspection string   `json:"introspection_endpoint"`
		AuthMethods   []string `json:"token_endpoint_auth_methods_supported"`
		SendsIssuer   bool     `json:"authorization_response_iss_parameter_supported"`
	}
	if err := found.Claims(&more); err != nil {
		return nil, errors.New("the metadata of the provider has a member of a wrong type")
	}
	ends := &endpoints{
		authorization: found.Endpoint().AuthURL, token: found.Endpoint().TokenURL, revocation: more.Revocation,
		introspection: more.Introspection, userinfo: found.UserInfoEndpoint(), sendsIssuer: more.SendsIssuer,
		verifier: found.Verifier(&oidc.Config{ClientID: p.o.ClientID}), style: oauth2.AuthStyleInHeader,
	}
	if p.o.ClientSecret == "" || len(more.AuthMethods) > 0 && !slices.Contains(more.AuthMethods, authBasic) {
		ends.style = oauth2.AuthStyleInParams
	}
	if ends.token == "" {
		return nil, errors.New("the metadata of the provider has no token_endpoint")
	}
	return ends, checkBrowserURL(ends.authorization)
}

// errNoMetadata is within the error for metadata that did not come.
var errNoMetadata = errors.New("the metadata of the provider cannot be had")

// maxErrorText is how much is kept of the text of an error of the libraries, which may quote a peer.
const maxErrorText = 300

// bounded leaves of an error what says that it is temporary, or else the beginning of its text.
func bounded(err error) error {
	var unfetched *oauth.FetchError
	var failed *oauth2.RetrieveError
	switch {
	case errors.As(err, &unfetched):
		return unfetched
	case errors.As(err, &failed):
		e := &statusError{code: plainText(failed.ErrorCode)}
		if failed.Response != nil {
			e.status = failed.Response.StatusCode
		}
		return e
	}
	text := err.Error()
	return fmt.Errorf("%q", text[:min(len(text), maxErrorText)])
}

// A statusError is an answer of a third party's endpoint other than the one that was hoped for.
type statusError struct {
	status int
	code   string // that of OAuth, empty if it said none
}

func (e *statusError) Error() string {
	if e.code == "" {
		return fmt.Sprintf("the third party answered with HTTP %d", e.status)
	}
	return fmt.Sprintf("the third party answered with HTTP %d, %s", e.status, e.code)
}

// isTemporary reports whether the third party did not answer, or said that it cannot for now.
func isTemporary(err error) bool {
	var said *statusError
	var unfetched *oauth.FetchError
	switch {
	case errors.As(err, &said):
		return said.status >= http.StatusInternalServerError || said.status == http.StatusTooManyRequests ||
			said.status == http.StatusRequestTimeout || said.code == codeUnavailable || said.code == codeServerError
	case errors.As(err, &unfetched):
		return true
	}
	return errors.Is(err, errNoMetadata) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func (p *provider) config(ends *endpoints, callback string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.o.ClientID, ClientSecret: p.o.ClientSecret, RedirectURL: callback, Scopes: p.o.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: ends.authorization, TokenURL: ends.token, AuthStyle: ends.style},
	}
}

func (p *provider) authorizationURL(ends *endpoints, callback string, kept *pendingLogin) string {
	opts := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(kept.Verifier)}
	if ends.verifier != nil {
		opts = append(opts, oidc.Nonce(kept.Nonce))
	}
	for name, value := range p.o.Parameters {
		opts = append(opts, oauth2.SetAuthURLParam(name, value))
	}
	return p.config(ends, callback).AuthCodeURL(kept.State, opts...)
}

// checkIssuer refuses an answer of another provider, before anything else in it is looked at.
//
// Spec: RFC 9207, section 2.4.
func (p *provider) checkIssuer(ends *endpoints, iss []string) error {
	switch {
	case len(iss) == 0 && !ends.sendsIssuer:
		return nil
	case p.o.Issuer == "" && !ends.sendsIssuer:
		return nil // an OAuth server of which no issuer is known
	case len(iss) != 1 || iss[0] != p.o.Issuer:
		return errors.New("the answer is not that of the provider which was asked")
	}
	return nil
}

func (p *provider) exchange(ctx context.Context, ends *endpoints, callback, code, verifier string) (*oauth2.Token, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, p.http)
	token, err := p.config(ends, callback).Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return nil, fmt.Errorf("the code of the third party: %w", bounded(err))
	}
	return token, nil
}

// verifyIDToken checks the ID token that came with a login, or with a renewal, which has no nonce.
//
// Spec: OpenID Connect Core 1.0, section 3.1.3.7.
func (p *provider) verifyIDToken(ctx context.Context, ends *endpoints, token *oauth2.Token, nonce string) (*oidc.IDToken, error) {
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return nil, errors.New("the third party gave no ID token")
	}
	id, err := ends.verifier.Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("the ID token: %w", bounded(err))
	}
	var more struct {
		Party string `json:"azp"`
	}
	if err := id.Claims(&more); err != nil {
		return nil, errors.New("the ID token has a claim of a wrong type")
	}
	switch {
	case id.Subject == "":
		return nil, errors.New("the ID token has no sub")
	case nonce != "" && id.Nonce != nonce:
		return nil, errors.New("the ID token is for another login: its nonce is not ours")
	case len(id.Audience) > 1 && more.Party == "" || more.Party != "" && more.Party != p.o.ClientID:
		return nil, errors.New("the ID token was made for another client")
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(token.AccessToken); err != nil {
			return nil, errors.New("the ID token came with another access token than it was made with")
		}
	}
	return id, nil
}

// errTokenInvalid is what check gives for a token that the third party does not take any more.
var errTokenInvalid = errors.New("the third party does not take its token any more")

// check asks whether an access token is still valid, in the first way that the third party has.
func (p *provider) check(ctx context.Context, ends *endpoints, rec *providerGrant) error {
	if ends.introspection != "" {
		switch active, err := p.introspect(ctx, ends, rec.Access); {
		case err == nil && active:
			return nil
		case err == nil:
			return errTokenInvalid
		case isTemporary(err):
			return err
		}
		// It does not let clients ask about their tokens.
	}
	if ends.verifier != nil {
		if ends.userinfo == "" {
			return nil // the time of the token is all that there is
		}
		return p.askUserinfo(ctx, ends, rec)
	}
	subject, err := p.o.Subject(ctx, &ProviderUser{AccessToken: rec.Access, Client: p.http})
	switch {
	case errors.Is(err, ErrProviderGrantEnded), errors.Is(err, ErrUserRefused):
		return errTokenInvalid
	case err != nil:
		return fmt.Errorf("the user of the third party: %w", err)
	case subject.ID != rec.Subject:
		return errTokenInvalid
	}
	return nil
}

// introspect asks whether a token is active.
//
// Spec: RFC 7662, section 2.
func (p *provider) introspect(ctx context.Context, ends *endpoints, token string) (active bool, err error) {
	body, err := p.post(ctx, ends, ends.introspection, url.Values{"token": {token}, "token_type_hint": {"access_token"}})
	if err != nil {
		return false, err
	}
	var answer struct {
		Active bool `json:"active"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return false, errors.New("the introspection endpoint of the third party did not answer in JSON")
	}
	return answer.Active, nil
}

// renew returns new tokens for a refresh token.
func (p *provider) renew(ctx context.Context, ends *endpoints, rec *providerGrant) (*oauth2.Token, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, p.http)
	token, err := p.config(ends, "").TokenSource(ctx, &oauth2.Token{RefreshToken: rec.Refresh}).Token()
	if err != nil {
		return nil, fmt.Errorf("the refresh token of the third party: %w", bounded(err))
	}
	if ends.verifier != nil && token.Extra("id_token") != nil {
		id, err := p.verifyIDToken(ctx, ends, token, "")
		if err != nil {
			return nil, err
		}
		if id.Subject != rec.Sub {
			return nil, errTokenInvalid
		}
	}
	return token, nil
}

// revoke returns back what the third party gave, if it has a way to.
//
// Spec: RFC 7009, section 2.
func (p *provider) revoke(ctx context.Context, ends *endpoints, rec *providerGrant) error {
	if ends.revocation == "" {
		return nil
	}
	form := url.Values{"token": {rec.Refresh}, "token_type_hint": {"refresh_token"}}
	if rec.Refresh == "" {
		form = url.Values{"token": {rec.Access}, "token_type_hint": {"access_token"}}
	}
	_, err := p.post(ctx, ends, ends.revocation, form)
	return err
}

// post sends a form as the client that the server is.
func (p *provider) post(ctx context.Context, ends *endpoints, address string, form url.Values) ([]byte, error) {
	if ends.style == oauth2.AuthStyleInParams {
		form.Set("client_id", p.o.ClientID)
		if p.o.ClientSecret != "" {
			form.Set("client_secret", p.o.ClientSecret)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, errors.New("an endpoint of the third party is no URL")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if ends.style == oauth2.AuthStyleInHeader {
		req.SetBasicAuth(url.QueryEscape(p.o.ClientID), url.QueryEscape(p.o.ClientSecret))
	}
	return p.do(req)
}

// do sends a request, and gives the body of a response that is no failure.
func (p *provider) do(req *http.Request) ([]byte, error) {
	req.Header.Set("Accept", "application/json")
	res, err := p.http.Do(req)
	if err != nil {
		return nil, bounded(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body) // the Fetcher bounds it
	if err != nil {
		return nil, bounded(err)
	}
	if res.StatusCode/100 != 2 {
		var said struct {
			Code string `json:"error"`
		}
		_ = json.Unmarshal(bytes.TrimSpace(body), &said)
		return nil, &statusError{res.StatusCode, plainText(said.Code)}
	}
	return body, nil
}
