// Package access identifies the people who log in to a console of a gateway from other machines: by
// a key with a role, by the identity provider of the gateway, or by a reverse proxy.
//
// A [Person] is checked for each request, so it ends with its key or its login. The sessions of
// browsers and the pages belong to package console.
package access

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oidcclient"
)

// An Access configures who may log in to a console besides the local user.
type Access struct {
	// URL is the URL of the console without a path for the browsers of other machines: the https
	// URL of a reverse proxy with TLS. Default: only this machine reaches the console.
	URL string
	// LogIn returns the person whom a key identifies; see [Keys]. r is the request of the browser.
	// An error refuses the login. Default: no key is accepted.
	LogIn func(r *http.Request, key string) (Person, error)
	// Identity logs people in at an identity provider. Default: there is no such login.
	Identity *Identity
	// Proxy identifies the people who use URL. Default: no header identifies anyone.
	Proxy *Proxy
}

// A Person is a person who has logged in. It is safe for concurrent use.
type Person interface {
	// Check returns the principal and its role now. An error ends the session: it says why without
	// details.
	Check() (*mcp.Principal, gateway.ConsoleRole, error)
	// Bind returns the context of a request, which also ends with the login of the person. The
	// caller must call done at the end of the request.
	Bind(ctx context.Context) (bound context.Context, done func())
}

// CallbackPath is the path of the redirect URI at the identity provider.
const CallbackPath = "/login/callback"

const (
	// identityTime is how long a login at the identity provider is valid. The provider is then
	// asked again, so a user who lost a group or the account keeps the console for at most this
	// time.
	identityTime = time.Hour
	// attemptTime is how long a person may take at the pages of the provider.
	attemptTime = 10 * time.Minute
	// maxAttempts bounds the memory. The oldest is removed.
	maxAttempts = 1000
	// requestTime bounds the requests to the provider for which a browser waits.
	requestTime = 30 * time.Second
	// maxValues limits the values of the claim, and the length of each.
	maxValues, maxValue = 1000, 1024
)

// ErrRefused is returned for a user of the identity provider without a role.
var ErrRefused = errors.New("your account has no role in this console")

// errNoAttempt is returned for a response of the provider that this browser did not ask for.
var errNoAttempt = errors.New("this login has expired, or was started in another browser")

// An Identity logs people in at the identity provider of a gateway. It is safe for concurrent use.
type Identity struct {
	roles    gatewayconfig.ConsoleRoles
	client   *oidcclient.Client
	callback string

	mu       sync.Mutex // guards the fields below
	attempts []attempt  // the oldest first
}

// An attempt represents a browser at the pages of the provider.
type attempt struct {
	oidcclient.Request
	browser, next string
	ends          time.Time
}

// NewIdentity returns the logins at the provider of a gateway, whose client ID must be set. base is
// the URL of the console without a path.
func NewIdentity(o *gateway.OAuth, roles *gatewayconfig.ConsoleRoles, base string) (*Identity, error) {
	issuer, err := url.Parse(o.AuthorizationServers[0])
	if err != nil {
		return nil, err
	}
	i := &Identity{roles: *roles, callback: base + CallbackPath}
	scopes := []string{"openid"}
	for scope := range o.Profiles { // without them, a run may use no server
		scopes = append(scopes, scope)
	}
	slices.Sort(scopes[1:])
	i.client = &oidcclient.Client{Issuer: o.AuthorizationServers[0], ID: o.ClientID, Secret: o.ClientSecret,
		Scopes: scopes, HTTP: o.Fetcher.For(issuer).HTTPClient()}
	return i, nil
}

// Start returns the URL of the provider to which a browser must go. browser is a secret of the
// browser, and next the page after the login.
func (i *Identity) Start(ctx context.Context, browser, next string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	ends, err := i.client.Endpoints(ctx)
	if err != nil {
		return "", err
	}
	a := attempt{oidcclient.NewRequest("console"), browser, next, time.Now().Add(attemptTime)}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.attempts = slices.DeleteFunc(i.attempts, func(a attempt) bool { return time.Now().After(a.ends) })
	i.attempts = append(i.attempts[max(0, len(i.attempts)+1-maxAttempts):], a)
	return i.client.AuthorizationURL(ends, i.callback, &a.Request), nil
}

// Finish returns the person whom the provider identified, and the page after the login. response is
// the query of the redirect. The error is [ErrRefused] for a user without a role.
func (i *Identity) Finish(ctx context.Context, browser string, response url.Values) (p Person, next string, err error) {
	a, err := i.take(browser, response.Get("state"))
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	ends, err := i.client.Endpoints(ctx)
	if err != nil {
		return nil, "", err
	}
	if err := i.client.CheckIssuer(ends, response["iss"]); err != nil {
		return nil, "", err
	}
	if response.Get("error") != "" || len(response["code"]) != 1 {
		return nil, "", errors.New("the identity provider refused the login")
	}
	token, err := i.client.Exchange(ctx, ends, i.callback, response.Get("code"), a.Verifier)
	if err != nil {
		return nil, "", err
	}
	id, err := i.client.VerifyIDToken(ctx, ends, token, a.Nonce)
	if err != nil {
		return nil, "", err
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return nil, "", fmt.Errorf("the ID token contains invalid claims: %w", err)
	}
	if _, has := claims[i.roles.Claim]; !has && ends.Userinfo != "" {
		more, err := i.userinfo(ctx, ends.Userinfo, token.AccessToken, id.Subject)
		if err != nil {
			return nil, "", err
		}
		claims[i.roles.Claim] = more[i.roles.Claim]
	}
	role := i.role(claims[i.roles.Claim])
	if role == "" {
		return nil, "", ErrRefused
	}
	scopes := i.client.Scopes
	if granted, ok := token.Extra("scope").(string); ok && granted != "" { // absent if all were granted
		scopes = strings.Fields(granted)
	}
	return &user{&mcp.Principal{Issuer: id.Issuer, Subject: id.Subject, Scopes: scopes,
		Claims: map[string]any{i.roles.Claim: claims[i.roles.Claim]}}, role, time.Now().Add(identityTime)}, a.next, nil
}

// take removes and returns the attempt of a browser.
func (i *Identity) take(browser, state string) (*attempt, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	at := slices.IndexFunc(i.attempts, func(a attempt) bool {
		return subtle.ConstantTimeCompare([]byte(a.State), []byte(state)) == 1
	})
	if at < 0 || browser == "" || time.Now().After(i.attempts[at].ends) ||
		subtle.ConstantTimeCompare([]byte(i.attempts[at].browser), []byte(browser)) != 1 {
		return nil, errNoAttempt
	}
	a := i.attempts[at]
	i.attempts = slices.Delete(i.attempts, at, at+1)
	return &a, nil
}

// A user contains the rights of a person whom the identity provider or a proxy identified.
type user struct {
	principal *mcp.Principal
	role      gateway.ConsoleRole
	ends      time.Time
}

// role returns the role of a user with a claim, or "".
func (i *Identity) role(claim any) gateway.ConsoleRole {
	var values []string
	switch v := claim.(type) {
	case string:
		values = []string{v}
	case []any:
		for _, one := range v[:min(len(v), maxValues)] {
			if text, ok := one.(string); ok && len(text) <= maxValue {
				values = append(values, text)
			}
		}
	}
	return roleOf(values, i.roles.Viewer, i.roles.Operator)
}

// roleOf returns the role of a person with values, or "".
func roleOf(values, viewer, operator []string) gateway.ConsoleRole {
	isIn := func(all []string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return slices.Contains(all, v) })
	}
	switch {
	case isIn(operator):
		return gateway.ConsoleOperator
	case isIn(viewer):
		return gateway.ConsoleViewer
	}
	return ""
}

// errOver is the end of a login at the identity provider.
var errOver = errors.New("the login has ended")

// Check returns the principal and its role until the login ends.
func (u *user) Check() (*mcp.Principal, gateway.ConsoleRole, error) {
	if !time.Now().Before(u.ends) {
		return nil, "", errOver
	}
	return u.principal, u.role, nil
}

// Bind returns a context that ends with the login.
func (u *user) Bind(ctx context.Context) (bound context.Context, done func()) {
	return context.WithDeadlineCause(ctx, u.ends, errOver)
}

// Keys returns a function that logs in with the keys of a gateway.
func Keys(g *gateway.Gateway) func(r *http.Request, key string) (Person, error) {
	return func(r *http.Request, key string) (Person, error) {
		u, err := g.ConsoleUser(r, key)
		if err != nil {
			return nil, err
		}
		return u, nil
	}
}
