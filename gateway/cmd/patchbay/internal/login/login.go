// Package login authorizes requests with OAuth, and logs users in.
package login

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/network"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const (

	// ScopeOffline is the scope for a refresh token. It is always requested, and not shown.
	ScopeOffline = "offline_access"
)

func scopesOf(page string) []string {
	u, err := url.Parse(page)
	if err != nil {
		return nil
	}
	return target.Difference(strings.Fields(u.Query().Get("scope")), []string{ScopeOffline})
}

const (
	// EnvClientID identifies the client; it needs EnvIssuer.
	EnvClientID = "PATCHBAY_CLIENT_ID"
	// EnvSecret holds the secret of the client.
	EnvSecret = "PATCHBAY_CLIENT_SECRET"
	// EnvKeyFile names the file with the private key of the client.
	EnvKeyFile = "PATCHBAY_CLIENT_KEY_FILE"
	// EnvIssuer identifies the authorization server that issued the client credentials.
	EnvIssuer = "PATCHBAY_ISSUER"
	envScopes = "PATCHBAY_SCOPES"
)

// Settings are the options of a login. They are stored for later commands.
type Settings struct {
	ClientID     string   `json:"clientId,omitempty"`
	ClientSecret string   `json:"clientSecret,omitempty"`
	Issuer       string   `json:"issuer,omitempty"`
	MetadataURL  string   `json:"metadataUrl,omitempty"`
	Scopes       []string `json:"scopes,omitempty"`

	InsecureUnlistedPKCE bool `json:"insecureUnlistedPKCE,omitempty"`
	OmitResource         bool `json:"omitResource,omitempty"`
}

// IsEmpty reports whether there is no setting to store.
func (s *Settings) IsEmpty() bool {
	return s.ClientID == "" && s.MetadataURL == "" && len(s.Scopes) == 0 && s.Issuer == ""
}

// Logins authorizes the requests of a command.
type Logins struct {
	IO    *term.Streams
	Flags *flags.Flags
	Ask   *question.Asker
	Net   *network.Client
	Vault *secrets.Store

	Headless   bool                     // the user does not see browsers of this machine
	InProgress bool                     // the command is a login
	Timeout    time.Duration            // limits the time in which a user logs in; 0 for the default
	Scopes     atomic.Pointer[[]string] // the scopes that the last login page asked for; nil before
}

func settingsKey(t *target.Target) string {
	u, err := url.Parse(t.URL)
	if err != nil {
		return "settings " + t.URL
	}
	u.Scheme, u.Host, u.Fragment = strings.ToLower(u.Scheme), strings.ToLower(u.Host), ""
	return "settings " + u.String()
}

// LoadSettings returns the stored settings of the login at a target.
func (p *Logins) LoadSettings(ctx context.Context, t *target.Target) (*Settings, error) {
	v, err := p.Vault.Open()
	if err != nil {
		return nil, err
	}
	text, err := v.Load(ctx, settingsKey(t))
	if err != nil || text == nil {
		return &Settings{}, err
	}
	var s Settings
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, errors.New("the stored settings of the login are invalid: log out, and log in again")
	}
	return &s, nil
}

// SaveSettings stores the settings, or removes them if they are empty.
func (p *Logins) SaveSettings(ctx context.Context, t *target.Target, s *Settings) error {
	v, err := p.Vault.Open()
	if err != nil {
		return err
	}
	old, err := v.Load(ctx, settingsKey(t))
	if err != nil || old == nil && s.IsEmpty() {
		return err
	}
	return v.Update(ctx, settingsKey(t), func([]byte) ([]byte, error) {
		if s.IsEmpty() {
			return nil, nil
		}
		return json.Marshal(s)
	})
}

// NewAuth returns the transport that authorizes requests for a user.
func (p *Logins) NewAuth(
	ctx context.Context, t *target.Target, s *Settings, ask oauthclient.Authorizer,
) (*oauthclient.Transport, error) {
	v, err := p.Vault.Open()
	if err != nil {
		return nil, err
	}
	opts := p.AuthOptions(ctx)
	opts.Store, opts.Authorizer, opts.Scopes = v, ask, s.Scopes
	opts.Client = oauthclient.Identity{
		ID: s.ClientID, Secret: s.ClientSecret, Issuer: s.Issuer, MetadataURL: s.MetadataURL,
		InsecureUnlistedPKCE: s.InsecureUnlistedPKCE, OmitResource: s.OmitResource,
		Metadata: oauth.ClientMetadata{Name: "Patchbay", ApplicationType: "native"},
	}
	return oauthclient.NewTransport(t.URL, opts), nil
}

// AuthOptions returns the options that every transport with authorization uses.
func (p *Logins) AuthOptions(ctx context.Context) *oauthclient.TransportOptions {
	return &oauthclient.TransportOptions{
		Base:    p.Net.RoundTripper(),
		Fetcher: p.Net.NewFetcher(p.IO.Logger(), capture.Fetches(ctx)),
		Page:    capture.LoginPage(ctx),
		// All requests are of MCP. The server chooses the path of some requests of HTTP+SSE.
		WholeOrigin: true,
		Logger:      p.IO.Logger(),
	}
}

// IsMachineClient reports whether the environment has client credentials.
func IsMachineClient() bool { return os.Getenv(EnvClientID) != "" }

// machineOptions returns options for client credentials. Each run requests and forgets a token.
func (p *Logins) machineOptions(ctx context.Context) (*oauthclient.TransportOptions, error) {
	secret, keyFile := os.Getenv(EnvSecret), os.Getenv(EnvKeyFile)
	switch {
	case os.Getenv(EnvIssuer) == "":
		return nil, fmt.Errorf("%s is set without %s: the secret is sent to that authorization server only",
			EnvClientID, EnvIssuer)
	case (secret == "") == (keyFile == ""):
		return nil, fmt.Errorf("%s requires either %s or %s", EnvClientID, EnvSecret, EnvKeyFile)
	}
	opts := p.AuthOptions(ctx)
	opts.Grant = oauthclient.NewClientCredentialsGrant()
	opts.Scopes = strings.Fields(os.Getenv(envScopes))
	opts.Client = oauthclient.Identity{ID: os.Getenv(EnvClientID), Secret: secret, Issuer: os.Getenv(EnvIssuer)}
	if keyFile != "" {
		text, err := term.ReadFile(ctx, keyFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", EnvKeyFile, err)
		}
		key, err := oauthclient.ParsePrivateKey(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", EnvKeyFile, err)
		}
		opts.Client.Key = &oauthclient.AssertionKey{Key: key}
	}
	return opts, nil
}

func (p *Logins) showLoginPage(t *target.Target, l *oauthclient.LoginRequest, opens bool) {
	scopes := scopesOf(l.URL)
	p.Scopes.Store(&scopes)
	why := "Log in to " + term.CleanLine(l.Server) + " at " + term.CleanLine(l.Issuer) + "."
	if !p.InProgress {
		if missing := t.MissingScopes(context.Background(), scopes); missing != "" {
			why = "The login at " + term.CleanLine(l.Server) + " lacks the scopes " + term.CleanLine(missing) +
				". Allow them at " + term.CleanLine(l.Issuer) + "."
		}
	}
	what := "Your browser opens this page. If it does not, open it yourself:"
	if !opens {
		what = "Open this page in a browser:"
	}
	p.IO.Err.Printf("%s %s\n\n  %s\n", why, what, term.Clean(l.URL))
	if opens {
		p.IO.Err.Status("waiting for the login in the browser … (Ctrl-C cancels)")
	}
}

// Union returns the distinct elements of all lists.
func Union(lists ...[]string) (all []string) {
	for _, s := range slices.Concat(lists...) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
