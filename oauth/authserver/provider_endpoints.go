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

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/singleflight"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	providerTimeout = 25 * time.Second // for all requests of a login or a renewal
	metadataTime    = 12 * time.Hour   // keys are fetched when one is missing
	metadataRetry   = 5 * time.Second  // after a failed fetch
	discoveryTime   = 10 * time.Second // time limit of a fetch, which other requests wait for
)

type endpoints struct {
	authorization, token, revocation, introspection, userinfo string

	style       oauth2.AuthStyle
	verifier    *oidc.IDTokenVerifier // nil without OpenID Connect
	sendsIssuer bool
}

type foundEndpoints struct {
	fixed   *endpoints // from the configuration; immutable
	fetches singleflight.Group[struct{}, *endpoints]

	mu    sync.Mutex // guards the fields below
	last  *endpoints // nil before the first success
	err   error      // of the last attempt
	fresh time.Time  // when the next fetch is due
}

func (p *provider) endpoints(ctx context.Context) (*endpoints, error) {
	f := &p.found
	if f.fixed != nil {
		return f.fixed, nil
	}
	if ends, err, ok := f.known(); ok {
		return ends, err
	}
	return f.fetches.Do(ctx, struct{}{}, p.refreshEndpoints)
}

func (p *provider) refreshEndpoints(ctx context.Context) (*endpoints, error) {
	f := &p.found
	if ends, err, ok := f.known(); ok { // fetched since the caller looked
		return ends, err
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTime)
	defer cancel()
	ends, err := p.discover(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.last, f.err, f.fresh = ends, nil, time.Now().Add(metadataTime)
	case f.last != nil && isTemporary(err):
		f.fresh = time.Now().Add(metadataRetry) // use the old ones
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

// discover fetches the metadata of an OpenID provider. Package oidc checks the issuer.
func (p *provider) discover(ctx context.Context) (*endpoints, error) {
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.http), p.o.Issuer)
	var other *oidc.IssuerMismatchError
	switch {
	case errors.As(err, &other):
		return nil, errors.New("the metadata has another issuer")
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
		return nil, errors.New("the metadata has a member of a wrong type")
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
		return nil, errors.New("the metadata has no token_endpoint")
	}
	return ends, checkBrowserURL(ends.authorization)
}

var errNoMetadata = errors.New("fetching the metadata of the identity provider failed")

const maxErrorText = 300 // bytes of the text of a library error, which may quote a response

// bounded returns an error of a library with a limited text, so that isTemporary still recognizes
// it.
func bounded(err error) error {
	var fetchErr *oauth.FetchError
	var failed *oauth2.RetrieveError
	switch {
	case errors.As(err, &fetchErr):
		return fetchErr
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

type statusError struct {
	status int
	code   string // the OAuth error code; may be empty
}

func (e *statusError) Error() string {
	if e.code == "" {
		return fmt.Sprintf("the identity provider returned HTTP %d", e.status)
	}
	return fmt.Sprintf("the identity provider returned HTTP %d, %s", e.status, e.code)
}

// isTemporary reports whether an identity provider did not answer or reported a temporary failure.
func isTemporary(err error) bool {
	var statusErr *statusError
	var fetchErr *oauth.FetchError
	switch {
	case errors.As(err, &statusErr):
		return statusErr.status >= http.StatusInternalServerError || statusErr.status == http.StatusTooManyRequests ||
			statusErr.status == http.StatusRequestTimeout || statusErr.code == codeUnavailable ||
			statusErr.code == codeServerError
	case errors.As(err, &fetchErr):
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

// checkIssuer refuses an authorization response of another identity provider. It is called before
// any other use of the response. Spec: RFC 9207, section 2.4.
func (p *provider) checkIssuer(ends *endpoints, iss []string) error {
	switch {
	case !ends.sendsIssuer && (len(iss) == 0 || p.o.Issuer == ""): // the issuer of an OAuth server is not known
		return nil
	case len(iss) != 1 || iss[0] != p.o.Issuer:
		return errors.New("the response has a wrong issuer")
	}
	return nil
}

func (p *provider) exchange(ctx context.Context, ends *endpoints, callback, code, verifier string) (*oauth2.Token,
	error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, p.http)
	token, err := p.config(ends, callback).Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return nil, fmt.Errorf("exchange the code: %w", bounded(err))
	}
	return token, nil
}

// verifyIDToken verifies the ID token of a login, or of a renewal, which has no nonce. Spec: OpenID
// Connect Core 1.0, section 3.1.3.7.
func (p *provider) verifyIDToken(ctx context.Context, ends *endpoints, token *oauth2.Token,
	nonce string) (*oidc.IDToken, error) {
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return nil, errors.New("the token response has no ID token")
	}
	id, err := ends.verifier.Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("verify the ID token: %w", bounded(err))
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
		return nil, errors.New("the ID token has a wrong nonce")
	case len(id.Audience) > 1 && more.Party == "" || more.Party != "" && more.Party != p.o.ClientID:
		return nil, errors.New("the ID token is for another client")
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(token.AccessToken); err != nil {
			return nil, errors.New("the ID token is for another access token")
		}
	}
	return id, nil
}

// errTokenInvalid reports that the identity provider no longer accepts a token.
var errTokenInvalid = errors.New("the identity provider no longer accepts its token")

// check checks an access token with the first method that the identity provider supports:
// introspection, userinfo, Subject.
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
		// Clients are not allowed to introspect their own tokens.
	}
	if ends.verifier != nil {
		if ends.userinfo == "" {
			return nil // only the expiry of the token can be checked
		}
		return p.checkUserinfo(ctx, ends, rec)
	}
	subject, err := p.o.Subject(ctx, &ProviderUser{AccessToken: rec.Access, Client: p.http})
	switch {
	case errors.Is(err, ErrProviderGrantEnded), errors.Is(err, ErrUserRefused):
		return errTokenInvalid
	case err != nil:
		return fmt.Errorf("identify the user: %w", err)
	case subject.ID != rec.Subject:
		return errTokenInvalid
	}
	return nil
}

// Spec: RFC 7662, section 2.
func (p *provider) introspect(ctx context.Context, ends *endpoints, token string) (active bool, err error) {
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
	body, err := p.post(ctx, ends, ends.introspection, form)
	if err != nil {
		return false, err
	}
	var response struct {
		Active bool `json:"active"`
	}
	if err := json.Unmarshal(body, &response); err != nil {
		return false, errors.New("the introspection response is not JSON")
	}
	return response.Active, nil
}

func (p *provider) renew(ctx context.Context, ends *endpoints, rec *providerGrant) (*oauth2.Token, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, p.http)
	token, err := p.config(ends, "").TokenSource(ctx, &oauth2.Token{RefreshToken: rec.Refresh}).Token()
	if err != nil {
		return nil, fmt.Errorf("refresh: %w", bounded(err))
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

// revoke revokes a grant, if the identity provider has a revocation endpoint. Spec: RFC 7009,
// section 2.
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

func (p *provider) post(ctx context.Context, ends *endpoints, address string, form url.Values) ([]byte, error) {
	if ends.style == oauth2.AuthStyleInParams {
		form.Set("client_id", p.o.ClientID)
		if p.o.ClientSecret != "" {
			form.Set("client_secret", p.o.ClientSecret)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, errors.New("invalid endpoint URL")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if ends.style == oauth2.AuthStyleInHeader {
		req.SetBasicAuth(url.QueryEscape(p.o.ClientID), url.QueryEscape(p.o.ClientSecret))
	}
	return p.do(req)
}

func (p *provider) do(req *http.Request) ([]byte, error) {
	req.Header.Set("Accept", "application/json")
	res, err := p.http.Do(req)
	if err != nil {
		return nil, bounded(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body) // the Fetcher limits its size
	if err != nil {
		return nil, bounded(err)
	}
	if res.StatusCode/100 != 2 {
		var failure struct {
			Code string `json:"error"`
		}
		_ = json.Unmarshal(bytes.TrimSpace(body), &failure)
		return nil, &statusError{res.StatusCode, plainText(failure.Code)}
	}
	return body, nil
}

// Spec: OpenID Connect Core 1.0, section 5.4.
var (
	profileClaims = []string{
		"name", "family_name", "given_name", "middle_name", "nickname", "preferred_username", "profile", "picture",
		"website", "gender", "birthdate", "zoneinfo", "locale", "updated_at",
	}
	emailClaims = []string{"email", "email_verified"}
)

var (
	errOtherUserinfo = errors.New("the userinfo response is for another user")
	errNoUserinfo    = errors.New("the userinfo response is not a JSON object")
)

// Spec: OpenID Connect Core 1.0, section 5.3.
func (p *provider) userinfo(ctx context.Context, ends *endpoints, access string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ends.userinfo, nil)
	if err != nil {
		return nil, errors.New("invalid userinfo endpoint URL")
	}
	req.Header.Set("Authorization", "Bearer "+access)
	return p.do(req)
}

// addUserinfo adds the claims of the scopes profile and email that the ID token does not have: with
// an access token, providers may return them only from userinfo. No other claims are added, so that
// those about the login itself come only from the ID token. Spec: OpenID Connect Core 1.0, sections
// 5.3.2 and 5.4.
func (p *provider) addUserinfo(ctx context.Context, ends *endpoints, user *ProviderUser) error {
	profile := slices.Contains(p.o.Scopes, "profile") && user.Claims["name"] == nil
	email := slices.Contains(p.o.Scopes, "email") && user.Claims["email"] == nil
	if ends.userinfo == "" || !profile && !email {
		return nil
	}
	body, err := p.userinfo(ctx, ends, user.AccessToken)
	if err != nil {
		return err
	}
	var claims map[string]any
	if oauthfetch.Decode(body, &claims) != nil {
		return errNoUserinfo // such as a signed one
	}
	if claims["sub"] != user.ID {
		return errOtherUserinfo
	}
	if profile {
		for _, name := range profileClaims {
			if user.Claims[name] == nil && claims[name] != nil {
				user.Claims[name] = claims[name]
			}
		}
	}
	if email { // both from the same response: email_verified is about that email
		for _, name := range emailClaims {
			delete(user.Claims, name)
			if claims[name] != nil {
				user.Claims[name] = claims[name]
			}
		}
	}
	return nil
}

// checkUserinfo checks an access token at the userinfo endpoint, which must return the user of the
// login.
func (p *provider) checkUserinfo(ctx context.Context, ends *endpoints, rec *providerGrant) error {
	body, err := p.userinfo(ctx, ends, rec.Access)
	var statusErr *statusError
	switch {
	case errors.As(err, &statusErr) && (statusErr.status == http.StatusUnauthorized ||
		statusErr.status == http.StatusForbidden):
		// Some providers return 403 for a disabled user. If there is a refresh token, a renewal
		// decides.
		return errTokenInvalid
	case err != nil:
		return err
	}
	var response struct {
		Sub string `json:"sub"`
	}
	// A signed response is not JSON. Its status is sufficient.
	if oauthfetch.Decode(body, &response) == nil && response.Sub != "" && response.Sub != rec.Sub {
		return errTokenInvalid
	}
	return nil
}
