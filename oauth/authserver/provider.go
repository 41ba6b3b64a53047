package authserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// maxProviders is how many third parties the page offers.
	maxProviders = 20
	// maxProviderID bounds the name of one in URLs and records.
	maxProviderID = 32
	// maxUserClaim bounds a claim that is kept with each grant of a user. No real name or address is as long.
	maxUserClaim = 1 << 10
	// defaultCheckEvery is for how long a third party's word is taken: a revocation there works within it.
	defaultCheckEvery = time.Minute
	// defaultOutage is for how long its last word counts while it does not answer.
	defaultOutage = 5 * time.Minute
)

// ErrUserRefused is the error of an [Provider]'s Subject for a user who may not come in. The client is told
// access_denied.
var ErrUserRefused = errors.New("authserver: the user may not come in")

// An Provider is a third party that knows the users: an OpenID provider, or an OAuth server with some API that tells who
// the user is. The server is registered there as a client, with the redirect URI <issuer>/login/callback/<ID>.
//
// Spec: basic/authorization (2025-03-26), Third-Party Authorization Flow.
type Provider struct {
	// ID tells third parties apart for ever, since it becomes a part of the subjects: 1 to 32 of a-z, 0-9 and hyphens.
	ID string
	// Name is for users. Default: ID.
	Name string
	// Issuer is that of an OpenID provider, exactly as in its metadata. Either Issuer or Endpoints is needed.
	Issuer string
	// Endpoints are those of an OAuth server that is no OpenID provider.
	Endpoints ProviderEndpoints
	// ClientID and ClientSecret are those of this server at the third party. Without a secret it is a public client.
	ClientID     string
	ClientSecret string
	// Scopes are asked for. Default: openid, profile and email for an OpenID provider, none otherwise. A grant without a
	// refresh token ends with its access token; many providers give one for the scope offline_access alone.
	Scopes []string
	// Parameters are added to authorization requests, such as access_type or prompt.
	Parameters map[string]string
	// Subject tells who a user is, or refuses with [ErrUserRefused]. It is called at every login; for a third party that is
	// no OpenID provider also to check that a token is valid, where [ErrProviderGrantEnded] says that it is not. Default, for
	// OpenID providers alone: the subject "<ID>|<sub>", with name, preferred_username, email and email_verified as claims,
	// each of at most 1 KiB.
	Subject func(ctx context.Context, user *ProviderUser) (Subject, error)
	// CheckEvery is how often it is checked that what the third party gave is still valid there: by introspection, by the
	// userinfo endpoint, or by Subject. Default: a minute.
	CheckEvery time.Duration
	// Outage is for how long the last such answer counts while the third party does not answer. After a restart the last
	// one that is known is that which gave the present token. Default: 5 minutes.
	Outage time.Duration
}

// ProviderEndpoints are those of an OAuth server. Authorization and Token are needed.
type ProviderEndpoints struct {
	Authorization string
	Token         string
	Revocation    string
	Introspection string
}

// An ProviderUser is somebody whom a third party has sent back.
type ProviderUser struct {
	// ID is the sub of the ID token, empty if there is none.
	ID string
	// Claims are those of the verified ID token, nil if there is none. If Scopes ask for profile or email and the ID token
	// has no name or no email, they are completed with the claims of that scope from the userinfo endpoint.
	Claims map[string]any
	// AccessToken is the user's, for the third party's API. It must go nowhere else.
	AccessToken string
	// Client keeps the rules of [oauth.Fetcher]: it is for the calls of that API.
	Client *http.Client
}

// ProviderOptions configures [NewProviderLogin].
type ProviderOptions struct {
	// Providers are the third parties, at least one. If there are several, the user picks.
	Providers []Provider
	// Fetcher makes all requests to them. Default: that of [oauth.NewFetcher]. Either way each third party may have
	// endpoints as near as its Issuer, or its token endpoint, is itself: see [oauth.Fetcher.For].
	Fetcher *oauth.Fetcher
}

// NewProviderLogin returns a [Login] by third parties, to whom the server is a client. It is a [ProviderLogin]: what the third
// party returns is kept sealed in the server's Store and never given to a client; the grants of the server end when the
// third party's do, and the other way round, but for those that nobody ends: when a code is never used, or a refresh
// token for too long, nothing is given back to the third party. A handler that acts for the user calls [Server.ProviderToken]. One such
// Login serves one Server.
func NewProviderLogin(opts *ProviderOptions) (ProviderLogin, error) {
	if opts == nil {
		opts = &ProviderOptions{}
	}
	if len(opts.Providers) == 0 || len(opts.Providers) > maxProviders {
		return nil, fmt.Errorf("authserver: ProviderOptions has %d Providers, want 1 to %d", len(opts.Providers), maxProviders)
	}
	fetcher := opts.Fetcher
	if fetcher == nil {
		fetcher = oauth.NewFetcher(nil)
	}
	u := &providerLogin{byID: map[string]*provider{}}
	for _, o := range opts.Providers {
		p, err := newProvider(o, fetcher)
		if err != nil {
			return nil, fmt.Errorf("authserver: upstream %q: %w", o.ID, err)
		}
		if u.byID[o.ID] != nil {
			return nil, fmt.Errorf("authserver: upstream %q stands twice", o.ID)
		}
		u.byID[o.ID] = p
		u.providers = append(u.providers, p)
	}
	return u, nil
}

func (o *Provider) setDefaults() {
	setDefault(&o.Name, o.ID)
	setDefault(&o.CheckEvery, defaultCheckEvery)
	setDefault(&o.Outage, defaultOutage)
	if o.Scopes == nil && o.Issuer != "" {
		o.Scopes = []string{"openid", "profile", "email"}
	}
	if o.Subject == nil && o.Issuer != "" {
		o.Subject = o.defaultSubject
	}
}

// ownParameters are those of authorization requests that are ours to set.
var ownParameters = []string{
	"response_type", "response_mode", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge",
	"code_challenge_method", "request", "request_uri",
}

func (o *Provider) check() error {
	plain := o.Endpoints != ProviderEndpoints{}
	switch {
	case o.ID == "" || len(o.ID) > maxProviderID || strings.Trim(o.ID, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return fmt.Errorf("its ID has to have 1 to %d of a-z, 0-9 and hyphens", maxProviderID)
	case o.ClientID == "":
		return errors.New("it has no ClientID")
	case (o.Issuer == "") == !plain:
		return errors.New("it needs either an Issuer or Endpoints")
	case plain && (o.Endpoints.Authorization == "" || o.Endpoints.Token == ""):
		return errors.New("its Endpoints need Authorization and Token")
	case plain && o.Subject == nil:
		return errors.New("it needs a Subject, since no ID token says who the user is")
	case o.Issuer != "" && !slices.Contains(o.Scopes, "openid"):
		return errors.New("its Scopes lack openid, without which an OpenID provider gives no ID token")
	case o.CheckEvery < 0 || o.Outage < 0:
		return errors.New("a time is negative")
	}
	for name := range o.Parameters {
		if slices.Contains(ownParameters, name) {
			return fmt.Errorf("its Parameters hold %s, which is not for them", name)
		}
	}
	return nil
}

// defaultSubject takes the user's word-for-word sub, which is unique at its provider alone.
func (o *Provider) defaultSubject(_ context.Context, user *ProviderUser) (Subject, error) {
	id := o.ID + "|" + user.ID
	if len(id) > maxSubject {
		id = o.ID + "|sha256:" + hashKey(user.ID)
	}
	s := Subject{ID: id, Claims: map[string]any{}}
	for _, name := range []string{"name", "preferred_username", "email"} {
		if text, ok := user.Claims[name].(string); ok && text != "" && len(text) <= maxUserClaim {
			s.Claims[name] = text
			setDefault(&s.Name, text)
		}
	}
	if verified, ok := user.Claims["email_verified"].(bool); ok {
		s.Claims["email_verified"] = verified
	}
	return s, nil
}

// A provider is a third party, with what was found out about it.
type provider struct {
	o     Provider
	http  *http.Client
	found foundEndpoints
}

func newProvider(o Provider, fetcher *oauth.Fetcher) (*provider, error) {
	o.setDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	near := o.Issuer
	if near == "" {
		near = o.Endpoints.Token
	}
	u, err := url.Parse(near)
	if err != nil || u.Host == "" {
		return nil, errors.New("its Issuer or token endpoint is no URL")
	}
	p := &provider{o: o, http: fetcher.For(u).HTTPClient()}
	p.found.turn = make(chan struct{}, 1)
	if o.Issuer == "" {
		if err := checkBrowserURL(o.Endpoints.Authorization); err != nil {
			return nil, err
		}
		p.found.fixed = &endpoints{
			authorization: o.Endpoints.Authorization, token: o.Endpoints.Token, revocation: o.Endpoints.Revocation,
			introspection: o.Endpoints.Introspection, style: oauth2.AuthStyleInHeader,
		}
		if o.ClientSecret == "" {
			p.found.fixed.style = oauth2.AuthStyleInParams
		}
	}
	return p, nil
}

// checkBrowserURL refuses to send a browser where no login can be.
func checkBrowserURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return errors.New("the authorization endpoint is no plain URL")
	case u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
		return errors.New("the authorization endpoint is neither https nor http at a loopback address")
	}
	return nil
}
