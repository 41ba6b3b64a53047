package cli

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

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// Environment variables. Client credentials authorize without a user, and nothing is stored.
const (
	envClientID   = "PATCHBAY_CLIENT_ID"
	envSecret     = "PATCHBAY_CLIENT_SECRET"
	envKeyFile    = "PATCHBAY_CLIENT_KEY_FILE"
	envIssuer     = "PATCHBAY_ISSUER"
	envScopes     = "PATCHBAY_SCOPES"
	envVaultDir   = "PATCHBAY_VAULT_DIR"
	envPassphrase = "PATCHBAY_VAULT_PASSPHRASE"
)

// settings are the options of a login. They are stored for later commands.
type settings struct {
	ClientID     string   `json:"clientId,omitempty"`
	ClientSecret string   `json:"clientSecret,omitempty"`
	Issuer       string   `json:"issuer,omitempty"`
	MetadataURL  string   `json:"metadataUrl,omitempty"`
	Scopes       []string `json:"scopes,omitempty"`

	InsecureUnlistedPKCE bool `json:"insecureUnlistedPKCE,omitempty"`
	OmitResource         bool `json:"omitResource,omitempty"`
}

func (s *settings) isEmpty() bool {
	return s.ClientID == "" && s.MetadataURL == "" && len(s.Scopes) == 0 && s.Issuer == ""
}

// logins authorizes the requests of a command.
type logins struct {
	IO    *streams
	Flags *flags
	Ask   *asker
	Net   *network
	Vault *vaults

	headless   bool                     // the user does not see browsers of this machine
	inProgress bool                     // the command is a login
	timeout    time.Duration            // limits the time in which a user logs in; 0 for the default
	scopes     atomic.Pointer[[]string] // the scopes that the last login page asked for; nil before
}

func (p *vaults) openVault() (*vault.Vault, error) {
	if p.opened == nil {
		v, err := vault.New(&vault.Options{Dir: os.Getenv(envVaultDir), Passphrase: os.Getenv(envPassphrase),
			KeyFileCreated: p.warnKeyFile})
		if err != nil {
			return nil, err
		}
		p.opened = v
	}
	return p.opened, nil
}

// warnKeyFile warns, once per run, that the key of the vault is in a file beside it.
func (v *vaults) warnKeyFile(path string, reason error) {
	if v.keyFileWarned.Swap(true) {
		return
	}
	why := "the key of the stored logins is in a file"
	if reason != nil {
		why += ", because the system keyring failed (" + clean(reason.Error()) + ")"
	}
	v.IO.Err.printf("patchbay: warning: %s: programs and backups that can read\n  %s can read the logins.\n"+
		"  To avoid that, run \"patchbay auth key keyring\" or \"patchbay auth key passphrase\".", why, cleanLine(path))
}

func settingsKey(t *target) string {
	u, err := url.Parse(t.url)
	if err != nil {
		return "settings " + t.url
	}
	u.Scheme, u.Host, u.Fragment = strings.ToLower(u.Scheme), strings.ToLower(u.Host), ""
	return "settings " + u.String()
}

func (l *logins) loadSettings(ctx context.Context, t *target) (*settings, error) {
	v, err := l.Vault.openVault()
	if err != nil {
		return nil, err
	}
	text, err := v.Load(ctx, settingsKey(t))
	if err != nil || text == nil {
		return &settings{}, err
	}
	var s settings
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, errors.New("the stored settings of the login are invalid: log out, and log in again")
	}
	return &s, nil
}

// saveSettings stores the settings, or removes them if they are empty.
func (l *logins) saveSettings(ctx context.Context, t *target, s *settings) error {
	v, err := l.Vault.openVault()
	if err != nil {
		return err
	}
	old, err := v.Load(ctx, settingsKey(t))
	if err != nil || old == nil && s.isEmpty() {
		return err
	}
	return v.Update(ctx, settingsKey(t), func([]byte) ([]byte, error) {
		if s.isEmpty() {
			return nil, nil
		}
		return json.Marshal(s)
	})
}

// mayLogIn returns an error if tokens must not be sent to a target.
func (t *target) mayLogIn() error {
	if t.host != nil {
		return errors.New("login is for one server: the target @host is those that \"patchbay servers\" lists")
	}
	if t.url == "" {
		return errors.New("login is for URLs: the target is a command, which reads credentials from its " +
			"environment (--env)")
	}
	if t.header.Get("Authorization") != "" {
		return errors.New("the target has an Authorization header, which takes precedence over a login")
	}
	u, err := url.Parse(t.url)
	if err != nil || u.Scheme != "https" && !netx.IsLocalHost(u.Hostname()) {
		return fmt.Errorf("invalid target %q for a login: must be https, or http on a loopback address", t.url)
	}
	return nil
}

// authorize sets the authorization of a target, if it can have one.
func (l *logins) authorize(ctx context.Context, t *target) error {
	if t.auth != nil || t.mayLogIn() != nil {
		return nil
	}
	if isMachineClient() {
		opts, err := l.machineOptions(ctx)
		if err != nil {
			return usage(err)
		}
		t.auth = oauthclient.NewTransport(t.url, opts)
		return nil
	}
	s, err := l.loadSettings(ctx, t)
	if err != nil {
		return err
	}
	var ask oauthclient.Authorizer
	if l.IO.mayPrompt() && !t.noLogin {
		ask = l.newUserLogin(t, true)
	}
	t.auth, err = l.newAuth(t, s, ask)
	return err
}

// newAuth returns the transport that authorizes requests for a user.
func (l *logins) newAuth(t *target, s *settings, ask oauthclient.Authorizer) (*oauthclient.Transport, error) {
	v, err := l.Vault.openVault()
	if err != nil {
		return nil, err
	}
	opts := l.authOptions()
	opts.Store, opts.Authorizer, opts.Scopes = v, ask, s.Scopes
	opts.Client = oauthclient.Identity{
		ID: s.ClientID, Secret: s.ClientSecret, Issuer: s.Issuer, MetadataURL: s.MetadataURL,
		InsecureUnlistedPKCE: s.InsecureUnlistedPKCE, OmitResource: s.OmitResource,
		Metadata: oauth.ClientMetadata{Name: "Patchbay", ApplicationType: "native"},
	}
	return oauthclient.NewTransport(t.url, opts), nil
}

func (l *logins) authOptions() *oauthclient.TransportOptions {
	return &oauthclient.TransportOptions{
		Base:    l.Net.roundTripper(),
		Fetcher: l.Net.newFetcher(l.IO.logger()),
		// All requests are of MCP. The server chooses the path of some requests of HTTP+SSE.
		WholeOrigin: true,
		Logger:      l.IO.logger(),
	}
}

// isMachineClient reports whether the environment has client credentials.
func isMachineClient() bool { return os.Getenv(envClientID) != "" }

// machineOptions returns the options for client credentials. Each run requests a token, stored
// nowhere.
func (l *logins) machineOptions(ctx context.Context) (*oauthclient.TransportOptions, error) {
	secret, keyFile := os.Getenv(envSecret), os.Getenv(envKeyFile)
	switch {
	case os.Getenv(envIssuer) == "":
		return nil, fmt.Errorf("%s is set without %s: the secret is sent to that authorization server only",
			envClientID, envIssuer)
	case (secret == "") == (keyFile == ""):
		return nil, fmt.Errorf("%s requires either %s or %s", envClientID, envSecret, envKeyFile)
	}
	opts := l.authOptions()
	opts.Grant = oauthclient.NewClientCredentialsGrant()
	opts.Scopes = strings.Fields(os.Getenv(envScopes))
	opts.Client = oauthclient.Identity{ID: os.Getenv(envClientID), Secret: secret, Issuer: os.Getenv(envIssuer)}
	if keyFile != "" {
		text, err := readFile(ctx, keyFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", envKeyFile, err)
		}
		key, err := oauthclient.ParsePrivateKey(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", envKeyFile, err)
		}
		opts.Client.Key = &oauthclient.AssertionKey{Key: key}
	}
	return opts, nil
}

func (p *logins) showLoginPage(t *target, l *oauthclient.LoginRequest, opens bool) {
	scopes := scopesOf(l.URL)
	p.scopes.Store(&scopes)
	why := "Log in to " + cleanLine(l.Server) + " at " + cleanLine(l.Issuer) + "."
	if !p.inProgress {
		if missing := t.missingScopes(context.Background(), scopes); missing != "" {
			why = "The login at " + cleanLine(l.Server) + " lacks the scopes " + cleanLine(missing) +
				". Allow them at " + cleanLine(l.Issuer) + "."
		}
	}
	what := "Your browser opens this page. If it does not, open it yourself:"
	if !opens {
		what = "Open this page in a browser:"
	}
	p.IO.Err.printf("%s %s\n\n  %s\n", why, what, clean(l.URL))
	if opens {
		p.IO.Err.status("waiting for the login in the browser … (Ctrl-C cancels)")
	}
}

// union returns the distinct elements of all lists.
func union(lists ...[]string) (all []string) {
	for _, s := range slices.Concat(lists...) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
