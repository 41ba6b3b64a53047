package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// Variables of the environment. Those of a client are how machines log in: nobody is asked, and nothing is stored.
const (
	envClientID   = "PATCHBAY_CLIENT_ID"
	envSecret     = "PATCHBAY_CLIENT_SECRET"
	envKeyFile    = "PATCHBAY_CLIENT_KEY_FILE"
	envIssuer     = "PATCHBAY_ISSUER"
	envScopes     = "PATCHBAY_SCOPES"
	envVaultDir   = "PATCHBAY_VAULT_DIR"
	envPassphrase = "PATCHBAY_VAULT_PASSPHRASE"
)

// clientName is how authorization servers show us to people.
const clientName = "Patchbay"

// settings are what a login was made with. They are kept beside its tokens, for the verbs that come after it.
type settings struct {
	ClientID     string   `json:"clientId,omitempty"`
	ClientSecret string   `json:"clientSecret,omitempty"`
	Issuer       string   `json:"issuer,omitempty"`
	MetadataURL  string   `json:"metadataUrl,omitempty"`
	Scopes       []string `json:"scopes,omitempty"`
}

func (s *settings) isEmpty() bool {
	return s.ClientID == "" && s.MetadataURL == "" && len(s.Scopes) == 0
}

// openVault returns the vault of the user.
func (p *program) openVault() (*vault.Vault, error) {
	if p.vault == nil {
		v, err := vault.New(&vault.Options{Dir: os.Getenv(envVaultDir), Passphrase: os.Getenv(envPassphrase)})
		if err != nil {
			return nil, err
		}
		p.vault = v
	}
	return p.vault, nil
}

// settingsKey returns where the settings of a server are in the vault.
func settingsKey(t *target) string {
	u, err := url.Parse(t.url)
	if err != nil {
		return "settings " + t.url
	}
	u.Scheme, u.Host, u.Fragment = strings.ToLower(u.Scheme), strings.ToLower(u.Host), ""
	return "settings " + u.String()
}

// loadSettings returns what the login at a target was made with.
func (p *program) loadSettings(ctx context.Context, t *target) (*settings, error) {
	v, err := p.openVault()
	if err != nil {
		return nil, err
	}
	text, err := v.Load(ctx, settingsKey(t))
	if err != nil || text == nil {
		return &settings{}, err
	}
	var s settings
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, errors.New("what is kept of the login cannot be read; log out, and in again")
	}
	return &s, nil
}

// saveSettings keeps what a login was made with, or forgets it if it is nothing.
func (p *program) saveSettings(ctx context.Context, t *target, s *settings) error {
	v, err := p.openVault()
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

// mayLogIn reports whether tokens may be sent to a target at all, and by us.
func (t *target) mayLogIn() error {
	if t.url == "" {
		return errors.New("a command gets what it needs from its environment (--env); logins are for servers behind a URL")
	}
	if t.header.Get("Authorization") != "" {
		return errors.New("the target has an Authorization header of its own, which is left as it is")
	}
	u, err := url.Parse(t.url)
	if err != nil || u.Scheme != "https" && !isThisMachine(u.Hostname()) {
		return errors.New("tokens are sent by https alone, but to this machine; the target is http")
	}
	return nil
}

func isThisMachine(host string) bool {
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.IsLoopback()
}

// authorize has the requests to a target authorized, if they can be.
func (p *program) authorize(ctx context.Context, t *target) error {
	if t.auth != nil || t.mayLogIn() != nil {
		return nil
	}
	if isMachineClient() {
		opts, err := p.machineOptions()
		if err != nil {
			return usage(err)
		}
		t.auth = oauth.NewTransport(t.url, opts)
		return nil
	}
	s, err := p.loadSettings(ctx, t)
	if err != nil {
		return err
	}
	var ask oauth.Authorizer
	if p.mayPrompt() {
		ask = p.browser(t, true)
	}
	t.auth, err = p.newAuth(t, s, ask)
	return err
}

// newAuth returns what authorizes the requests to a target for a person.
func (p *program) newAuth(t *target, s *settings, ask oauth.Authorizer) (*oauth.Transport, error) {
	v, err := p.openVault()
	if err != nil {
		return nil, err
	}
	opts := p.authOptions()
	opts.Store, opts.Authorizer, opts.Scopes = v, ask, s.Scopes
	opts.Client = oauth.ClientOptions{
		ID: s.ClientID, Secret: s.ClientSecret, Issuer: s.Issuer, MetadataURL: s.MetadataURL,
		Metadata: oauth.ClientMetadata{Name: clientName, ApplicationType: "native"},
	}
	return oauth.NewTransport(t.url, opts), nil
}

// authOptions are those of every login.
func (p *program) authOptions() *oauth.TransportOptions {
	return &oauth.TransportOptions{
		// What the user's environment says of proxies is for all that this program sends.
		Fetcher: oauth.NewFetcher(&oauth.FetcherOptions{Proxy: http.ProxyFromEnvironment, Logger: p.logger()}),
		// Nothing but requests of the protocol comes this way, and some of HTTP+SSE go to a path of the server's choice.
		WholeOrigin: true,
		Logger:      p.logger(),
	}
}

// isMachine reports whether the environment names a client that logs in for itself.
func isMachineClient() bool { return os.Getenv(envClientID) != "" }

// machineOptions are those of a client that logs in for itself. Its tokens are asked for again by each run of the program:
// that costs a request, and leaves nothing behind.
func (p *program) machineOptions() (*oauth.TransportOptions, error) {
	secret, keyFile := os.Getenv(envSecret), os.Getenv(envKeyFile)
	switch {
	case os.Getenv(envIssuer) == "":
		return nil, fmt.Errorf("%s is set and %s is not: a secret is shown to no other authorization server than its own", envClientID, envIssuer)
	case (secret == "") == (keyFile == ""):
		return nil, fmt.Errorf("%s is set, and wants one of %s and %s", envClientID, envSecret, envKeyFile)
	}
	opts := p.authOptions()
	opts.Grant = oauth.NewClientCredentials()
	opts.Scopes = strings.Fields(os.Getenv(envScopes))
	opts.Client = oauth.ClientOptions{ID: os.Getenv(envClientID), Secret: secret, Issuer: os.Getenv(envIssuer)}
	if keyFile != "" {
		text, err := readSecretFile(keyFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", envKeyFile, err)
		}
		key, err := oauth.ParsePrivateKey(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", envKeyFile, err)
		}
		opts.Client.Key = &oauth.ClientKey{Key: key}
	}
	return opts, nil
}

func readSecretFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f)
}

// browser returns what has the user log in in a browser, which opens by itself or, if the user does not want that, not.
func (p *program) browser(t *target, opens bool) oauth.Authorizer {
	return oauth.NewBrowser(&oauth.BrowserOptions{
		Open: func(ctx context.Context, page string) error {
			if opens {
				p.openPage(ctx, page)
			}
			return nil
		},
		Logger:  p.logger(),
		Timeout: p.loginTime,
		Show:    func(l *oauth.LoginRequest) { p.showLoginPage(t, l, opens) },
	})
}

func (p *program) showLoginPage(t *target, l *oauth.LoginRequest, opens bool) {
	scopes := scopesOf(l.URL)
	p.scopes.Store(&scopes)
	why := cleanLine(l.Server) + " wants you to log in, at " + cleanLine(l.Issuer) + "."
	if !p.loggingIn {
		if lacks := t.missingScopes(context.Background(), scopes); lacks != "" {
			why = "Your login at " + cleanLine(l.Server) + " lacks " + cleanLine(lacks) + "; " + cleanLine(l.Issuer) + " can allow it."
		}
	}
	what := "Your browser opens; if it does not, open this page yourself:"
	if !opens {
		what = "Open this page in a browser on this machine:"
	}
	p.screen.printf("%s %s\n\n  %s\n", why, what, clean(l.URL))
	p.screen.status("waiting for the login in the browser … (Ctrl-C ends it)")
}

// joined returns what is in either list, once.
func union(lists ...[]string) (all []string) {
	for _, s := range slices.Concat(lists...) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
