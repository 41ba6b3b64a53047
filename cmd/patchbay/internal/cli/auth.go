package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const helpAuth = `Log in to servers with OAuth, show logins, and log out.

A command that reaches a server which requires login opens your browser, and continues when you
have logged in. Without a terminal, or with --no-input, it exits with 4 and prints the command
to run. Tokens are refreshed as long as the server allows. A target with an Authorization header
(from --header or a configuration file) does not use logins.

Tokens are stored encrypted in the directory that auth status shows. The key is in the system
keyring. Without a keyring it is in a file in the same directory that only you can read.
Set $PATCHBAY_VAULT_PASSPHRASE before the first login to derive the key from a passphrase, and
$PATCHBAY_VAULT_DIR to use another directory.

To authorize without a user (client credentials; nothing is stored), set

  PATCHBAY_CLIENT_ID        the client id
  PATCHBAY_CLIENT_SECRET    the client secret, or PATCHBAY_CLIENT_KEY_FILE, a private key in PEM
  PATCHBAY_ISSUER           the authorization server; the secret is sent to no other
  PATCHBAY_SCOPES           scopes to request (optional)`

func (p *program) authCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "auth",
		Short: "Log in to and out of servers (OAuth)",
		Long:  helpAuth,
		Example: `  patchbay auth login https://example.com/mcp
  patchbay auth status https://example.com/mcp
  curl -H "Authorization: Bearer $(patchbay auth token https://example.com/mcp)" …`,
		Args: knownSubcommand,
		RunE: p.showHelp,
	}
	for _, verb := range []*cobra.Command{p.loginVerb(), p.statusVerb(), p.logoutVerb(), p.tokenVerb()} {
		verb.DisableFlagsInUseLine, verb.ValidArgsFunction = true, p.completeNames(nil)
		cmd.AddCommand(verb)
	}
	return cmd
}

// authVerb returns the function of a command about the login at a server.
func (p *program) authVerb(run func(ctx context.Context, t *target) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(fmt.Errorf("missing TARGET: the URL of a server or its name in a configuration "+
				"file\nusage: %s", cmd.UseLine()))
		}
		t, words, err := p.target(cmd, args)
		if err == nil && len(words) > 0 {
			err = wrongUsage(cmd)
		}
		if err == nil {
			err = t.mayLogIn()
		}
		if err != nil {
			return usage(err)
		}
		p.current.Store(t)
		return run(cmd.Context(), t)
	}
}

func (p *program) loginVerb() *cobra.Command {
	var wanted settings
	var secretFile string
	var noBrowser bool
	cmd := &cobra.Command{
		Use:   "login TARGET",
		Short: "Log in to a server",
		Long: `Log in to a server in your browser, even if you are logged in. Scopes that you have allowed
before are requested again, together with those of --scope; log out to drop them.

Without a terminal, exit with 4, unless --no-browser is given: then print the page to open and
wait. Exit with 7 if the login is not completed in time.

Most servers need no more than their URL. If the authorization server does not support client
registration, give the id of a client registered there, and its issuer; later commands use them
too. Pass a client secret in a file: other users of the machine can read command lines.`,
		Example: `  patchbay auth login https://example.com/mcp
  patchbay auth login https://example.com/mcp --scope files:write
  patchbay auth login https://example.com/mcp --client-id abc --issuer https://auth.example.com`,
		RunE: p.authVerb(func(ctx context.Context, t *target) error {
			return p.login(ctx, t, &wanted, secretFile, !noBrowser)
		}),
	}
	f := cmd.Flags()
	f.StringArrayVar(&wanted.Scopes, "scope", nil, "request this `scope`")
	f.StringVar(&wanted.ClientID, "client-id", "", "the `id` of a registered client")
	f.StringVar(&secretFile, "client-secret-file", "", "a `file` with the client secret, - for standard input")
	f.StringVar(&wanted.Issuer, "issuer", "",
		"the `URL` of the issuer of --client-id, as in the metadata of the authorization server")
	f.StringVar(&wanted.MetadataURL, "client-metadata-url", "", "the `URL` of a client id metadata document")
	f.BoolVar(&noBrowser, "no-browser", false, "print the page to open, and do not open it")
	return cmd
}

func (p *program) login(ctx context.Context, t *target, wanted *settings, secretFile string, opens bool) error {
	p.loggingIn = true
	if isMachineClient() {
		return p.machineLogin(ctx, t)
	}
	s, err := p.newSettings(ctx, t, wanted, secretFile)
	if err != nil {
		return err
	}
	hasUser := p.interactive || secretFile == "-" && p.screen.terminal // stdin is the secret
	switch {
	case p.flags.noInput:
		return &coded{exitAuth, errors.New("cannot log in: --no-input is set")}
	case opens && !hasUser:
		return &coded{exitAuth, errors.New("cannot log in: stdin and stderr are not a terminal; use --no-browser " +
			"to print the page and wait")}
	}
	held, err := p.heldScopes(ctx, t, s)
	if err != nil {
		return err
	}
	asked := *s
	asked.Scopes = union(held, s.Scopes)
	if t.auth, err = p.newAuth(t, &asked, p.browser(t, opens)); err != nil {
		return err
	}
	if err := t.auth.Login(ctx); err != nil {
		return err
	}
	if err := p.saveSettings(ctx, t, s); err != nil {
		return err
	}
	p.screen.done()
	if now, err := t.auth.Status(ctx); err == nil && now != nil {
		if lost := difference(difference(held, now.Scopes), []string{scopeOffline}); len(lost) > 0 {
			p.screen.printf("Scopes no longer allowed: %s", cleanLine(strings.Join(lost, " ")))
		}
	}
	return p.status(ctx, t)
}

// heldScopes returns the scopes of the current login.
func (p *program) heldScopes(ctx context.Context, t *target, s *settings) ([]string, error) {
	before, err := p.newAuth(t, s, nil)
	if err != nil {
		return nil, err
	}
	now, err := before.Status(ctx)
	if err != nil || now == nil {
		return nil, err
	}
	return now.Scopes, nil
}

// machineLogin requests a token with the client credentials of the environment.
func (p *program) machineLogin(ctx context.Context, t *target) error {
	if err := p.authorize(ctx, t); err != nil {
		return err
	}
	if err := t.auth.Login(ctx); err != nil {
		return err
	}
	return p.status(ctx, t)
}

// newSettings returns the stored settings, changed by the flags.
func (p *program) newSettings(ctx context.Context, t *target, wanted *settings, secretFile string) (*settings, error) {
	switch {
	case (wanted.ClientID == "") != (wanted.Issuer == ""):
		return nil, usage(errors.New("--client-id and --issuer must be given together"))
	case wanted.ClientID == "" && secretFile != "":
		return nil, usage(errors.New("--client-secret-file requires --client-id"))
	case wanted.ClientID != "" && wanted.MetadataURL != "":
		return nil, usage(errors.New("--client-id and --client-metadata-url exclude each other"))
	}
	s, err := p.loadSettings(ctx, t)
	if err != nil {
		return nil, err
	}
	if wanted.ClientID != "" || wanted.MetadataURL != "" {
		s.ClientID, s.Issuer, s.MetadataURL, s.ClientSecret = wanted.ClientID, wanted.Issuer, wanted.MetadataURL, ""
	}
	if secretFile != "" {
		text, err := p.secretFrom(ctx, secretFile)
		if err != nil {
			return nil, usage(fmt.Errorf("--client-secret-file: %w", err))
		}
		s.ClientSecret = text
	}
	s.Scopes = union(s.Scopes, wanted.Scopes)
	return s, nil
}

func (p *program) secretFrom(ctx context.Context, name string) (string, error) {
	var text []byte
	var err error
	if name == "-" {
		text, err = p.input.readAll(ctx)
	} else {
		text, err = readSecretFile(name)
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if err == nil && secret == "" {
		err = errors.New("the secret is empty")
	}
	return secret, err
}

// A loginReport is the output of `patchbay auth status --json`.
type loginReport struct {
	Server    string     `json:"server"`
	LoggedIn  bool       `json:"loggedIn"`
	Issuer    string     `json:"issuer,omitzero"`
	ClientID  string     `json:"clientId,omitzero"`
	Scopes    []string   `json:"scopes,omitzero"`
	Expires   *time.Time `json:"expires,omitzero"`
	Renewable bool       `json:"renewable"` // without the user
	Storage   *storage   `json:"storage,omitzero"`
	// Environment reports that client credentials from the environment are used.
	Environment bool `json:"environment,omitzero"`
}

// storage is the location of the tokens.
type storage struct {
	Directory string `json:"directory"`
	Key       string `json:"key,omitzero"` // keyring, file or passphrase
}

func (p *program) statusVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "status TARGET",
		Short: "Show the login at a server",
		Long: `Show whether you are logged in to a server, the issuer, the scopes, and where tokens are stored.
It sends no requests: a login may have been revoked. Exit with 4 if you are not logged in.`,
		Example: `  patchbay auth status https://example.com/mcp
  patchbay auth status https://example.com/mcp --json`,
		RunE: p.authVerb(p.status),
	}
}

func (p *program) status(ctx context.Context, t *target) error {
	if t.auth == nil {
		if err := p.authorize(ctx, t); err != nil {
			return err
		}
	}
	now, err := t.auth.Status(ctx)
	if err != nil {
		return err
	}
	r := &loginReport{Server: t.url}
	if isMachineClient() {
		r.Environment, r.LoggedIn, r.Renewable = true, true, true
		r.Issuer, r.ClientID = os.Getenv(envIssuer), os.Getenv(envClientID)
	} else {
		v, err := p.openVault()
		if err != nil {
			return err
		}
		d, err := v.Describe()
		if err != nil {
			return err
		}
		r.Storage = &storage{d.Dir, d.Key}
	}
	if now != nil {
		r.Issuer, r.ClientID, r.Scopes = now.Issuer, now.ClientID, now.Scopes
		r.Renewable = now.Renewable || r.Environment
		r.LoggedIn = r.Renewable || now.Expires.IsZero() || now.Expires.After(time.Now())
		if !now.Expires.IsZero() {
			r.Expires = &now.Expires
		}
	}
	p.showLogin(r)
	if !r.LoggedIn {
		return &coded{exitAuth, errShown}
	}
	return nil
}

func (p *program) showLogin(r *loginReport) {
	if p.flags.json {
		p.output.value(r)
		return
	}
	line := func(name, value string) {
		if value != "" {
			p.output.println(fmt.Sprintf("%-11s %s", name, cleanLine(value)))
		}
	}
	line("server", r.Server)
	switch {
	case r.Environment:
		line("logged in", "yes, as client "+r.ClientID+" (from the environment)")
	case r.LoggedIn:
		line("logged in", "yes")
	default:
		line("logged in", "no; run patchbay auth login "+shellWord(p.current.Load().name))
	}
	line("issuer", r.Issuer)
	if !r.Environment {
		line("client", r.ClientID)
	}
	line("scopes", strings.Join(r.Scopes, " "))
	line("token", r.token(time.Now()))
	line("storage", r.Storage.String())
}

// token returns the expiry of the token in words.
func (r *loginReport) token(now time.Time) string {
	var notes []string
	switch {
	case r.Expires != nil && r.Expires.After(now):
		notes = append(notes, "expires in "+r.Expires.Sub(now).Round(time.Second).String())
	case r.Expires != nil:
		notes = append(notes, "expired")
	case r.Environment:
		return "requested by each command"
	case r.Issuer != "":
		notes = append(notes, "unknown expiry")
	}
	if r.Renewable {
		notes = append(notes, "refreshed when needed")
	}
	return strings.Join(notes, ", ")
}

func (s *storage) String() string {
	if s == nil {
		return "none (client credentials from the environment)"
	}
	switch s.Key {
	case vault.InKeyring:
		return s.Directory + ", encrypted with a key in the system keyring"
	case vault.InFile:
		return s.Directory + ", encrypted with a key in the same directory (no keyring found)"
	case vault.InPassphrase:
		return s.Directory + ", encrypted with a passphrase"
	}
	return s.Directory + ", empty"
}

func (p *program) logoutVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "logout TARGET",
		Short: "Log out of a server",
		Long: `Log out of a server: revoke the tokens, if the authorization server supports that, and delete
them and the settings of auth login.`,
		Example: `  patchbay auth logout https://example.com/mcp`,
		RunE:    p.authVerb(p.logout),
	}
}

func (p *program) logout(ctx context.Context, t *target) error {
	if isMachineClient() {
		return usage(fmt.Errorf("no stored login: %s is set; unset it to log out", envClientID))
	}
	if err := p.authorize(ctx, t); err != nil {
		return err
	}
	now, err := t.auth.Status(ctx)
	if err != nil {
		return err
	}
	failed := t.auth.Logout(ctx)
	if err := p.saveSettings(ctx, t, &settings{}); err != nil {
		return errors.Join(failed, err)
	}
	if failed != nil {
		return fmt.Errorf("the tokens were deleted, but not revoked: %w", failed)
	}
	if p.flags.json {
		p.output.value(map[string]bool{"loggedOut": now != nil})
		return nil
	}
	if now == nil {
		p.screen.printf("Not logged in to %s.", cleanLine(t.url))
		return nil
	}
	p.screen.printf("Logged out of %s.", cleanLine(t.url))
	return nil
}

func (p *program) tokenVerb() *cobra.Command {
	var show bool
	cmd := &cobra.Command{
		Use:   "token TARGET",
		Short: "Print the access token",
		Long: `Print the access token for a server, for programs such as curl. It is refreshed first if it has
expired. Exit with 4 if you are not logged in. The token gives access in your name: on a terminal
it is printed only with --show.`,
		Example: `  curl -H "Authorization: Bearer $(patchbay auth token https://example.com/mcp)" …`,
		RunE: p.authVerb(func(ctx context.Context, t *target) error {
			if p.output.terminal && !show {
				return usage(errors.New("refusing to print a token on a terminal: use a pipe, or give --show"))
			}
			return p.token(ctx, t)
		}),
	}
	cmd.Flags().BoolVar(&show, "show", false, "print the token even on a terminal")
	return cmd
}

func (p *program) token(ctx context.Context, t *target) error {
	if err := p.authorize(ctx, t); err != nil {
		return err
	}
	tokens, err := t.auth.Token(ctx)
	if err != nil {
		return err
	}
	if p.flags.json {
		out := map[string]any{"accessToken": tokens.AccessToken, "tokenType": tokens.TokenType}
		if !tokens.Expires.IsZero() {
			out["expires"] = tokens.Expires
		}
		p.output.value(out)
		return nil
	}
	p.output.println(tokens.AccessToken)
	return nil
}

var _ oauthclient.Store = (*vault.Vault)(nil)
