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
	"github.com/patchbay-mcp/patchbay/oauth"
)

const helpAuth = `Log in to servers that want it, see what logins there are, and end them.

A verb that meets a server which wants a login opens your browser and goes on when you have
logged in. Where there is no terminal, and with --no-input, it fails with exit code 4 and
tells the command to run. Tokens are renewed as long as the server allows it. A target with
an Authorization header of its own (--header, or in a configuration file) is left alone.

Tokens are kept in the directory that auth status shows, sealed. The key to them is in the
system's keyring; where there is none it is in a file beside them, which only you can read.
$PATCHBAY_VAULT_PASSPHRASE, if it is set when the first login is made, is taken for the key
instead, and $PATCHBAY_VAULT_DIR names another directory.

Machines log in without a person, and store nothing, if the environment has all of

  PATCHBAY_CLIENT_ID        the id of the client
  PATCHBAY_CLIENT_SECRET    its secret, or PATCHBAY_CLIENT_KEY_FILE, a private key in PEM
  PATCHBAY_ISSUER           the authorization server that knows it; no other sees the secret

and PATCHBAY_SCOPES with what to ask for, if that is not for the server to say.`

func (p *program) authCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "auth",
		Short: "Log in to servers, and out",
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

// authVerb makes a verb of a function that is about the login at one server.
func (p *program) authVerb(run func(ctx context.Context, t *target) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(fmt.Errorf("which server? Say its URL or its name in a configuration file: %s, such as\n  %s https://example.com/mcp",
				cmd.UseLine(), cmd.CommandPath()))
		}
		t, words, err := p.target(cmd, args)
		if err == nil && len(words) > 0 {
			err = errors.New("wrong number of arguments, want " + cmd.UseLine())
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
		Long: `Log in to a server in your browser, whether there is a login already or not. What you have
allowed before is asked for again, beside what --scope adds; auth logout begins afresh.

Without a terminal it does not wait for anybody and fails with exit code 4, unless
--no-browser has it print the page to open and wait. A login that nobody answers ends with
exit code 7.

Most servers need no more than their URL. One that does not register programs needs the id
of a client that was made there by hand, and the issuer it belongs to; both are kept for the
verbs that come after. A secret is never given on the command line, where everybody on the
machine could read it.`,
		Example: `  patchbay auth login https://example.com/mcp
  patchbay auth login https://example.com/mcp --scope files:write
  patchbay auth login https://example.com/mcp --client-id abc --issuer https://auth.example.com`,
		RunE: p.authVerb(func(ctx context.Context, t *target) error {
			return p.login(ctx, t, &wanted, secretFile, !noBrowser)
		}),
	}
	f := cmd.Flags()
	f.StringArrayVar(&wanted.Scopes, "scope", nil, "ask for this `scope` too")
	f.StringVar(&wanted.ClientID, "client-id", "", "the `id` of a client that the authorization server knows already")
	f.StringVar(&secretFile, "client-secret-file", "", "a `file` with its secret, - for standard input")
	f.StringVar(&wanted.Issuer, "issuer", "", "the authorization server that knows it, as its metadata spells it")
	f.StringVar(&wanted.MetadataURL, "client-metadata-url", "", "the `URL` of a document that describes the client")
	f.BoolVar(&noBrowser, "no-browser", false, "print the page to open, and open nothing")
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
	isThere := p.interactive || secretFile == "-" && p.screen.terminal // the secret has taken the place of the keyboard
	switch {
	case p.flags.noInput:
		return &coded{exitAuth, errors.New("a login asks the user, and --no-input is set")}
	case opens && !isThere:
		return &coded{exitAuth, errors.New("a login asks the user, and there is no terminal; --no-browser prints the page to open, and waits")}
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
			p.screen.printf("No longer allowed: %s", cleanLine(strings.Join(lost, " ")))
		}
	}
	return p.status(ctx, t)
}

// heldScopes are those that the user has allowed before.
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

// machineLogin shows whether the client of the environment can log in.
func (p *program) machineLogin(ctx context.Context, t *target) error {
	if err := p.authorize(ctx, t); err != nil {
		return err
	}
	if err := t.auth.Login(ctx); err != nil {
		return err
	}
	return p.status(ctx, t)
}

// newSettings are those of a login that adds to what was before.
func (p *program) newSettings(ctx context.Context, t *target, wanted *settings, secretFile string) (*settings, error) {
	switch {
	case (wanted.ClientID == "") != (wanted.Issuer == ""):
		return nil, usage(errors.New("--client-id and --issuer go together: an id belongs to one authorization server"))
	case wanted.ClientID == "" && secretFile != "":
		return nil, usage(errors.New("--client-secret-file is for --client-id"))
	case wanted.ClientID != "" && wanted.MetadataURL != "":
		return nil, usage(errors.New("--client-id and --client-metadata-url are two ways to be known"))
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
		err = errors.New("it is empty")
	}
	return secret, err
}

// A loginReport is what `patchbay auth status --json` prints.
type loginReport struct {
	Server    string     `json:"server"`
	LoggedIn  bool       `json:"loggedIn"`
	Issuer    string     `json:"issuer,omitzero"`
	ClientID  string     `json:"clientId,omitzero"`
	Scopes    []string   `json:"scopes,omitzero"`
	Expires   *time.Time `json:"expires,omitzero"`
	Renewable bool       `json:"renewable"` // without a person
	Storage   *storage   `json:"storage,omitzero"`
	// Environment says that the environment has what a login needs: every command logs in with it.
	Environment bool `json:"environment,omitzero"`
}

// storage is where tokens are.
type storage struct {
	Directory string `json:"directory"`
	Key       string `json:"key,omitzero"` // keyring, file or passphrase
}

func (p *program) statusVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "status TARGET",
		Short: "Say whether there is a login",
		Long: `Say whether there is a login at a server, with whom, and where its tokens are kept. Nothing is
asked over the network: a login that is there may have been revoked. Without a login the exit
code is 4.`,
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
		line("logged in", "by the environment, as the client "+r.ClientID)
	case r.LoggedIn:
		line("logged in", "yes")
	default:
		line("logged in", "no; patchbay auth login "+shellWord(p.current.Load().name))
	}
	line("issuer", r.Issuer)
	if !r.Environment {
		line("client", r.ClientID)
	}
	line("scopes", strings.Join(r.Scopes, " "))
	line("token", r.token(time.Now()))
	line("storage", r.Storage.String())
}

// token says how long the token lasts.
func (r *loginReport) token(now time.Time) string {
	var words []string
	switch {
	case r.Expires != nil && r.Expires.After(now):
		words = append(words, "ends in "+r.Expires.Sub(now).Round(time.Second).String())
	case r.Expires != nil:
		words = append(words, "has ended")
	case r.Environment:
		return "is asked for by each command"
	case r.Issuer != "":
		words = append(words, "does not say when it ends")
	}
	if r.Renewable {
		words = append(words, "is renewed when needed")
	}
	return strings.Join(words, ", ")
}

func (s *storage) String() string {
	if s == nil {
		return "none: the environment has what a login needs"
	}
	switch s.Key {
	case vault.InKeyring:
		return s.Directory + ", sealed with a key in the system's keyring"
	case vault.InFile:
		return s.Directory + ", sealed with a key in a file there (no keyring was found)"
	case vault.InPassphrase:
		return s.Directory + ", sealed with a passphrase"
	}
	return s.Directory + ", empty"
}

func (p *program) logoutVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "logout TARGET",
		Short: "End a login",
		Long: `End the login at a server: the tokens are revoked, if the authorization server is able to do
that, and forgotten here in any case, together with what auth login was told.`,
		Example: `  patchbay auth logout https://example.com/mcp`,
		RunE:    p.authVerb(p.logout),
	}
}

func (p *program) logout(ctx context.Context, t *target) error {
	if isMachineClient() {
		return usage(fmt.Errorf("nothing is stored of a login by the environment; unset %s", envClientID))
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
		return fmt.Errorf("the tokens are forgotten, and not revoked: %w", failed)
	}
	if p.flags.json {
		p.output.value(map[string]bool{"loggedOut": now != nil})
		return nil
	}
	if now == nil {
		p.screen.printf("There was no login at %s.", cleanLine(t.url))
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
		Long: `Print the access token for a server and nothing else, for programs such as curl. It is renewed
first if it ends. Nobody is asked to log in: without a login the exit code is 4. Whoever has
the token can do what you can, so that it is not printed on a terminal unless --show is given.`,
		Example: `  curl -H "Authorization: Bearer $(patchbay auth token https://example.com/mcp)" …`,
		RunE: p.authVerb(func(ctx context.Context, t *target) error {
			if p.output.terminal && !show {
				return usage(errors.New("the token would stand on the screen: pass it on by a pipe, or give --show"))
			}
			return p.token(ctx, t)
		}),
	}
	cmd.Flags().BoolVar(&show, "show", false, "print the token on a terminal, too")
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

var _ oauth.Store = (*vault.Vault)(nil)
