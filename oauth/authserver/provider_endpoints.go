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
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/oauth2"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth/oidcclient"
)

const providerTimeout = 25 * time.Second // for all requests of a login or a renewal

// errTokenInvalid reports that the identity provider no longer accepts a token.
var errTokenInvalid = errors.New("the identity provider no longer accepts its token")

// check checks an access token with the first method that the identity provider supports:
// introspection, userinfo, Subject.
func (p *provider) check(ctx context.Context, ends *oidcclient.Endpoints, rec *providerGrant) error {
	if ends.Introspection != "" {
		switch active, err := p.introspect(ctx, ends, rec.Access); {
		case err == nil && active:
			return nil
		case err == nil:
			return errTokenInvalid
		case oidcclient.IsTemporary(err):
			return err
		}
		// Clients are not allowed to introspect their own tokens.
	}
	if ends.Verifier != nil {
		if ends.Userinfo == "" {
			return nil // only the expiry of the token can be checked
		}
		return p.checkUserinfo(ctx, ends, rec)
	}
	subject, err := p.o.Subject(ctx, &ProviderUser{AccessToken: rec.Access, Client: p.HTTP})
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
func (p *provider) introspect(ctx context.Context, ends *oidcclient.Endpoints, token string) (active bool, err error) {
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
	body, err := p.post(ctx, ends, ends.Introspection, form)
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

func (p *provider) renew(ctx context.Context, ends *oidcclient.Endpoints, rec *providerGrant) (*oauth2.Token, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, p.HTTP)
	token, err := p.Config(ends, "").TokenSource(ctx, &oauth2.Token{RefreshToken: rec.Refresh}).Token()
	if err != nil {
		return nil, fmt.Errorf("refresh: %w", oidcclient.Bounded(err))
	}
	if ends.Verifier != nil && token.Extra("id_token") != nil {
		id, err := p.VerifyIDToken(ctx, ends, token, "")
		if err != nil {
			return nil, err
		}
		if id.Subject != rec.Sub {
			return nil, errTokenInvalid
		}
	}
	return token, nil
}

// revoke revokes a grant, if the identity provider offers a revocation endpoint. Spec: RFC 7009,
// section 2.
func (p *provider) revoke(ctx context.Context, ends *oidcclient.Endpoints, rec *providerGrant) error {
	if ends.Revocation == "" {
		return nil
	}
	form := url.Values{"token": {rec.Refresh}, "token_type_hint": {"refresh_token"}}
	if rec.Refresh == "" {
		form = url.Values{"token": {rec.Access}, "token_type_hint": {"access_token"}}
	}
	_, err := p.post(ctx, ends, ends.Revocation, form)
	return err
}

func (p *provider) post(ctx context.Context, ends *oidcclient.Endpoints, address string, form url.Values) ([]byte,
	error) {
	if ends.Style == oauth2.AuthStyleInParams {
		form.Set("client_id", p.ID)
		if p.Secret != "" {
			form.Set("client_secret", p.Secret)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, errors.New("invalid endpoint URL")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if ends.Style == oauth2.AuthStyleInHeader {
		req.SetBasicAuth(url.QueryEscape(p.ID), url.QueryEscape(p.Secret))
	}
	return p.do(req)
}

func (p *provider) do(req *http.Request) ([]byte, error) {
	req.Header.Set("Accept", "application/json")
	res, err := p.HTTP.Do(req)
	if err != nil {
		return nil, oidcclient.Bounded(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body) // the Fetcher limits its size
	if err != nil {
		return nil, oidcclient.Bounded(err)
	}
	if res.StatusCode/100 != 2 {
		var failure struct {
			Code string `json:"error"`
		}
		_ = json.Unmarshal(bytes.TrimSpace(body), &failure)
		return nil, &oidcclient.StatusError{Status: res.StatusCode, Code: oauthwire.PlainText(failure.Code)}
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
func (p *provider) userinfo(ctx context.Context, ends *oidcclient.Endpoints, access string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ends.Userinfo, nil)
	if err != nil {
		return nil, errors.New("invalid userinfo endpoint URL")
	}
	req.Header.Set("Authorization", "Bearer "+access)
	return p.do(req)
}

// addUserinfo adds the claims of the scopes profile and email that the ID token lacks: with an
// access token, providers may return them only from userinfo. No other claims are added, so that
// the claims about the login itself come only from the ID token. Spec: OpenID Connect Core 1.0,
// sections 5.3.2 and 5.4.
func (p *provider) addUserinfo(ctx context.Context, ends *oidcclient.Endpoints, user *ProviderUser) error {
	profile := slices.Contains(p.o.Scopes, "profile") && user.Claims["name"] == nil
	email := slices.Contains(p.o.Scopes, "email") && user.Claims["email"] == nil
	if ends.Userinfo == "" || !profile && !email {
		return nil
	}
	body, err := p.userinfo(ctx, ends, user.AccessToken)
	if err != nil {
		return err
	}
	var claims map[string]any
	if oauthfetch.Decode(body, &claims) != nil {
		return errNoUserinfo // such as a signed response
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
func (p *provider) checkUserinfo(ctx context.Context, ends *oidcclient.Endpoints, rec *providerGrant) error {
	body, err := p.userinfo(ctx, ends, rec.Access)
	var statusErr *oidcclient.StatusError
	switch {
	case errors.As(err, &statusErr) && (statusErr.Status == http.StatusUnauthorized ||
		statusErr.Status == http.StatusForbidden):
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
