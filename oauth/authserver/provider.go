package authserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/patchbay-mcp/patchbay/internal/lru"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oidcclient"
)

const (
	maxProviders      = 20
	maxProviderID     = 32
	maxUserClaim      = 1 << 10 // bytes of a claim that is stored with each grant of a user
	defaultCheckEvery = time.Minute
	defaultOutage     = 5 * time.Minute
)

// ErrUserRefused is an error of [Provider.Subject] for a user who may not log in. The client gets
// access_denied.
var ErrUserRefused = errors.New("authserver: the user may not log in")

// A Provider is an identity provider: an OpenID provider, or an OAuth server with an API that
// identifies the user. The server must be registered there as a client with the redirect URI
// <issuer>/login/callback/<ID>.
//
// Spec: basic/authorization (2025-03-26), Third-Party Authorization Flow.
type Provider struct {
	// ID identifies the provider. It is part of the subjects, so it must never change. It contains
	// 1 to 32 of a-z, 0-9 and hyphens.
	ID string
	// Name is the name on the login page. Default: ID.
	Name string
	// Issuer is the issuer of an OpenID provider, exactly as in its metadata. Either Issuer or
	// Endpoints is required.
	Issuer string
	// Endpoints are the endpoints of an OAuth server that is not an OpenID provider.
	Endpoints ProviderEndpoints
	// ClientID and ClientSecret identify this server at the provider. Without a secret it is a
	// public client.
	ClientID     string
	ClientSecret string
	// Scopes are the scopes to request. Default: openid, profile and email for an OpenID provider,
	// no scope otherwise. Without a refresh token the grant ends when its access token expires;
	// many providers issue a refresh token only for offline_access.
	Scopes []string
	// Parameters are added to authorization requests, such as access_type or prompt.
	Parameters map[string]string
	// Subject returns the subject of a user who logs in, or [ErrUserRefused]. Without Issuer it is
	// required, and also called to check an access token: it returns [ErrProviderGrantEnded] if the
	// token is not valid. It must be safe for concurrent use. Default with Issuer: the subject
	// "<ID>|<sub>" with the claims name, preferred_username, email and email_verified, each of at
	// most 1 KiB.
	Subject func(ctx context.Context, user *ProviderUser) (Subject, error)
	// CheckEvery is the interval at which a grant is checked at the provider, by introspection, at
	// the userinfo endpoint, or with Subject. A revocation at the provider takes effect within it.
	// Default: 1 minute.
	CheckEvery time.Duration
	// Outage is the time for which the last confirmation of a grant is accepted while the provider
	// does not answer. After a restart the last confirmation is the issue of the current token.
	// Default: 5 minutes.
	Outage time.Duration
}

// ProviderEndpoints are the endpoints of an OAuth server. Authorization and Token are required.
type ProviderEndpoints struct {
	Authorization string
	Token         string
	Revocation    string
	Introspection string
}

// A ProviderUser is a user who logged in at a [Provider].
type ProviderUser struct {
	ID string // the sub claim of the ID token, or empty
	// Claims are the claims of the verified ID token, or nil. If Scopes contains profile or email
	// and the ID token lacks the name or the email, the claims of that scope are added from the
	// userinfo endpoint.
	Claims map[string]any
	// AccessToken is the access token for the provider's API. It must not be sent to anything else.
	AccessToken string
	// Client is for calls of that API. The restrictions of the [oauth.Fetcher] apply to it.
	Client *http.Client
}

// ProviderOptions configures [NewProviderLogin].
type ProviderOptions struct {
	// Providers are the identity providers, of which there must be at least one. If there are
	// several, the user chooses.
	Providers []Provider
	// Fetcher sends all requests to them. Default: [oauth.NewFetcher] without options. A provider
	// whose issuer or token endpoint uses a private address may use other endpoints at such
	// addresses too: see [oauth.Fetcher.For].
	Fetcher *oauth.Fetcher
}

// NewProviderLogin returns a [ProviderLogin] for a Server. The tokens of the identity providers are
// sealed in the Store and never sent to a client. When a grant of the server is revoked, the
// provider's grant is revoked, and the other way round; the expiry of a grant does not revoke the
// provider's. [Server.ProviderToken] returns a token for the provider's API.
func NewProviderLogin(opts *ProviderOptions) (ProviderLogin, error) {
	if opts == nil {
		opts = &ProviderOptions{}
	}
	if len(opts.Providers) == 0 || len(opts.Providers) > maxProviders {
		return nil, fmt.Errorf("authserver: ProviderOptions has %d Providers, want 1 to %d", len(opts.Providers),
			maxProviders)
	}
	fetcher := opts.Fetcher
	if fetcher == nil {
		fetcher = oauth.NewFetcher(nil)
	}
	u := &providerLogin{byID: map[string]*provider{}, checks: providerChecks{
		checks: lru.Map[string, providerCheck]{Max: maxChecks}, unsaved: map[string]*providerGrant{},
	}}
	for _, o := range opts.Providers {
		p, err := newProvider(o, fetcher)
		if err != nil {
			return nil, fmt.Errorf("authserver: provider %q: %w", o.ID, err)
		}
		if u.byID[o.ID] != nil {
			return nil, fmt.Errorf("authserver: duplicate provider %q", o.ID)
		}
		u.byID[o.ID] = p
		u.providers = append(u.providers, p)
	}
	return u, nil
}

func (o *Provider) setDefaults() {
	o.Name = cmp.Or(o.Name, o.ID)
	o.CheckEvery = cmp.Or(o.CheckEvery, defaultCheckEvery)
	o.Outage = cmp.Or(o.Outage, defaultOutage)
	if o.Scopes == nil && o.Issuer != "" {
		o.Scopes = []string{"openid", "profile", "email"}
	}
	if o.Subject == nil && o.Issuer != "" {
		o.Subject = o.defaultSubject
	}
}

var ownParameters = []string{
	"response_type", "response_mode", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge",
	"code_challenge_method", "request", "request_uri",
}

func (o *Provider) check() error {
	plain := o.Endpoints != ProviderEndpoints{}
	switch {
	case o.ID == "" || len(o.ID) > maxProviderID || strings.Trim(o.ID, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return fmt.Errorf("invalid ID %q: must have 1 to %d of a-z, 0-9 and hyphens", o.ID, maxProviderID)
	case o.ClientID == "":
		return errors.New("ClientID is required")
	case (o.Issuer == "") == !plain:
		return errors.New("either Issuer or Endpoints is required")
	case plain && (o.Endpoints.Authorization == "" || o.Endpoints.Token == ""):
		return errors.New("Endpoints.Authorization and Endpoints.Token are required")
	case plain && o.Subject == nil:
		return errors.New("Subject is required without an OpenID provider")
	case o.Issuer != "" && !slices.Contains(o.Scopes, "openid"):
		return errors.New("Scopes must contain openid for an OpenID provider")
	case o.CheckEvery < 0 || o.Outage < 0:
		return errors.New("CheckEvery and Outage must not be negative")
	}
	for name := range o.Parameters {
		if slices.Contains(ownParameters, name) {
			return fmt.Errorf("Parameters must not contain %s", name)
		}
	}
	return nil
}

// defaultSubject returns a subject with the sub claim, which is unique only at its provider, after
// the provider's ID.
func (o *Provider) defaultSubject(_ context.Context, user *ProviderUser) (Subject, error) {
	id := o.ID + "|" + user.ID
	if len(id) > maxSubject {
		id = o.ID + "|sha256:" + hashKey(user.ID)
	}
	s := Subject{ID: id, Claims: map[string]any{}}
	for _, name := range []string{"name", "preferred_username", "email"} {
		if text, ok := user.Claims[name].(string); ok && text != "" && len(text) <= maxUserClaim {
			s.Claims[name] = text
			s.Name = cmp.Or(s.Name, text)
		}
	}
	if verified, ok := user.Claims["email_verified"].(bool); ok {
		s.Claims["email_verified"] = verified
	}
	return s, nil
}

type provider struct {
	*oidcclient.Client
	o Provider
}

func newProvider(o Provider, fetcher *oauth.Fetcher) (*provider, error) {
	o.setDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	u, err := url.Parse(cmp.Or(o.Issuer, o.Endpoints.Token))
	if err != nil || u.Host == "" {
		return nil, errors.New("invalid Issuer or Endpoints.Token: must be a URL")
	}
	p := &provider{&oidcclient.Client{Issuer: o.Issuer, ID: o.ClientID, Secret: o.ClientSecret, Scopes: o.Scopes,
		Parameters: o.Parameters, HTTP: fetcher.For(u).HTTPClient()}, o}
	if o.Issuer == "" {
		if err := oidcclient.CheckBrowserURL(o.Endpoints.Authorization); err != nil {
			return nil, err
		}
		p.Fixed = &oidcclient.Endpoints{
			Authorization: o.Endpoints.Authorization, Token: o.Endpoints.Token, Revocation: o.Endpoints.Revocation,
			Introspection: o.Endpoints.Introspection, Style: oauth2.AuthStyleInHeader,
		}
		if o.ClientSecret == "" {
			p.Fixed.Style = oauth2.AuthStyleInParams
		}
	}
	return p, nil
}
