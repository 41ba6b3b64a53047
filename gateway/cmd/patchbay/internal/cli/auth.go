package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

func loginCommand(p *factory) *cobra.Command {
	var wanted settings
	var secretFile string
	var noBrowser bool
	cmd := authCommand(p, "login", "Log in to a server", func(ctx context.Context, t *target) error {
		return login(ctx, p, t, &wanted, secretFile, !noBrowser)
	})
	f := cmd.Flags()
	f.StringArrayVar(&wanted.Scopes, "scope", nil, "request this `scope`")
	f.StringVar(&wanted.ClientID, "client-id", "", "the `id` of a registered client")
	f.StringVar(&secretFile, "client-secret-file", "", "a `file` with the client secret, - for standard input")
	f.StringVar(&wanted.Issuer, "issuer", "",
		"the `URL` of the only authorization server to use, required by the flags about it")
	f.BoolVar(&wanted.InsecureUnlistedPKCE, "insecure-unlisted-pkce", false,
		"log in at --issuer although it lists no PKCE methods (Cognito, Entra ID)")
	f.BoolVar(&wanted.OmitResource, "omit-resource", false, "leave out the parameter resource, which --issuer refuses")
	f.StringVar(&wanted.MetadataURL, "client-metadata-url", "", "the `URL` of a client id metadata document")
	f.BoolVar(&noBrowser, "no-browser", false, "print the page to open, and do not open it")
	return cmd
}

func login(ctx context.Context, f *factory, t *target, wanted *settings, secretFile string, opens bool) error {
	f.Login.inProgress = true
	if isMachineClient() {
		if err := f.Login.authorize(ctx, t); err != nil {
			return err
		}
		if err := t.auth.Login(ctx); err != nil {
			return err
		}
		return status(ctx, f, t)
	}
	s, err := newSettings(ctx, f, t, wanted, secretFile)
	if err != nil {
		return err
	}
	hasUser := f.IO.Interactive || secretFile == "-" && f.IO.Err.terminal // stdin is the secret
	switch {
	case f.Flags.noInput:
		return &coded{exitAuth, errors.New("cannot log in: --no-input is set")}
	case opens && !hasUser:
		return &coded{exitAuth, errors.New("cannot log in: stdin and stderr are not a terminal; use --no-browser " +
			"to print the page and wait")}
	}
	held, err := heldScopes(ctx, f, t, s)
	if err != nil {
		return err
	}
	asked := *s
	asked.Scopes = union(held, s.Scopes)
	if t.auth, err = f.Login.newAuth(t, &asked, f.Login.newUserLogin(t, opens)); err != nil {
		return err
	}
	if err := t.auth.Login(ctx); err != nil {
		return err
	}
	if err := f.Login.saveSettings(ctx, t, s); err != nil {
		return err
	}
	f.IO.Err.done()
	if d, err := f.Vault.opened.Describe(); err == nil && d.Key == vault.InFile {
		f.Vault.warnKeyFile(f.Vault.opened.KeyFile(), nil)
	}
	if now, err := t.auth.Status(ctx); err == nil && now != nil {
		if lost := difference(difference(held, now.Scopes), []string{scopeOffline}); len(lost) > 0 {
			f.IO.Err.printf("Scopes no longer allowed: %s", cleanLine(strings.Join(lost, " ")))
		}
	}
	return status(ctx, f, t)
}

func heldScopes(ctx context.Context, f *factory, t *target, s *settings) ([]string, error) {
	before, err := f.Login.newAuth(t, s, nil)
	if err != nil {
		return nil, err
	}
	now, err := before.Status(ctx)
	if err != nil || now == nil {
		return nil, err
	}
	return now.Scopes, nil
}

// newSettings returns the stored settings, changed by the flags.
func newSettings(ctx context.Context, f *factory, t *target, wanted *settings, secretFile string) (*settings, error) {
	switch {
	case wanted.Issuer == "" && (wanted.ClientID != "" || wanted.InsecureUnlistedPKCE || wanted.OmitResource):
		return nil, usage(errors.New("--client-id, --insecure-unlisted-pkce and --omit-resource require --issuer: " +
			"they are for one authorization server"))
	case wanted.ClientID == "" && secretFile != "":
		return nil, usage(errors.New("--client-secret-file requires --client-id"))
	case wanted.ClientID != "" && wanted.MetadataURL != "":
		return nil, usage(errors.New("--client-id and --client-metadata-url exclude each other"))
	}
	s, err := f.Login.loadSettings(ctx, t)
	if err != nil {
		return nil, err
	}
	if wanted.ClientID != "" || wanted.MetadataURL != "" || wanted.Issuer != "" {
		scopes := s.Scopes
		*s = *wanted
		s.Scopes = scopes
	}
	if secretFile != "" {
		text, err := f.IO.In.readSource(ctx, secretFile)
		s.ClientSecret = strings.TrimRight(string(text), "\r\n")
		if err == nil && s.ClientSecret == "" {
			err = errors.New("the secret is empty")
		}
		if err != nil {
			return nil, usage(fmt.Errorf("--client-secret-file: %w", err))
		}
	}
	s.Scopes = union(s.Scopes, wanted.Scopes)
	return s, nil
}

// A loginReport is the output of `patchbay auth status --json`.
type loginReport struct {
	Server    string    `json:"server"`
	LoggedIn  bool      `json:"loggedIn"`
	Issuer    string    `json:"issuer,omitzero"`
	ClientID  string    `json:"clientId,omitzero"`
	Scopes    []string  `json:"scopes,omitzero"`
	Expires   time.Time `json:"expires,omitzero"`
	Renewable bool      `json:"renewable"` // without the user
	Storage   *storage  `json:"storage,omitzero"`
	// Environment reports that client credentials from the environment are used.
	Environment bool `json:"environment,omitzero"`
}

// storage is the location of the tokens.
type storage vault.Description

func status(ctx context.Context, f *factory, t *target) error {
	if err := f.Login.authorize(ctx, t); err != nil {
		return err
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
		v, err := f.Vault.openVault()
		if err != nil {
			return err
		}
		d, err := v.Describe()
		if err != nil {
			return err
		}
		r.Storage = (*storage)(&d)
	}
	if now != nil {
		r.Issuer, r.ClientID, r.Scopes = now.Issuer, now.ClientID, now.Scopes
		r.Renewable = now.Renewable || r.Environment
		r.LoggedIn = r.Renewable || now.Expires.IsZero() || now.Expires.After(time.Now())
		r.Expires = now.Expires
	}
	showLogin(f, r)
	if !r.LoggedIn {
		return &coded{exitAuth, errShown}
	}
	return nil
}

func showLogin(f *factory, r *loginReport) {
	if f.Flags.json {
		f.IO.Out.value(r)
		return
	}
	line := func(name, value string) { f.IO.Out.field(11, name, value) }
	line("server", r.Server)
	switch {
	case r.Environment:
		line("logged in", "yes, as client "+r.ClientID+" (from the environment)")
	case r.LoggedIn:
		line("logged in", "yes")
	default:
		line("logged in", "no; run patchbay auth login "+shellWord(f.Client.current.Load().name))
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
	case r.Expires.After(now):
		notes = append(notes, "expires in "+r.Expires.Sub(now).Round(time.Second).String())
	case !r.Expires.IsZero():
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
		return s.Dir + ", encrypted with a key in the system keyring"
	case vault.InFile:
		return s.Dir + ", encrypted with a key in the same directory (no keyring found)"
	case vault.InPassphrase:
		return s.Dir + ", encrypted with a passphrase"
	}
	return s.Dir + ", empty"
}

func logout(ctx context.Context, f *factory, t *target) error {
	if isMachineClient() {
		return usage(fmt.Errorf("no stored login: %s is set; unset it to log out", envClientID))
	}
	if err := f.Login.authorize(ctx, t); err != nil {
		return err
	}
	now, err := t.auth.Status(ctx)
	if err != nil {
		return err
	}
	failed := t.auth.Logout(ctx)
	if err := f.Login.saveSettings(ctx, t, &settings{}); err != nil {
		return errors.Join(failed, err)
	}
	if failed != nil {
		return fmt.Errorf("the tokens were deleted, but not revoked: %w", failed)
	}
	if f.Flags.json {
		f.IO.Out.value(map[string]bool{"loggedOut": now != nil})
		return nil
	}
	if now == nil {
		f.IO.Err.printf("Not logged in to %s.", cleanLine(t.url))
		return nil
	}
	f.IO.Err.printf("Logged out of %s.", cleanLine(t.url))
	return nil
}

func tokenCommand(f *factory) *cobra.Command {
	var show bool
	cmd := authCommand(f, "token", "Print the access token", func(ctx context.Context, t *target) error {
		if f.IO.Out.terminal && !show {
			return usage(errors.New("refusing to print a token on a terminal: use a pipe, or give --show"))
		}
		return token(ctx, f, t)
	})
	cmd.Flags().BoolVar(&show, "show", false, "print the token even on a terminal")
	return cmd
}

func token(ctx context.Context, f *factory, t *target) error {
	if err := f.Login.authorize(ctx, t); err != nil {
		return err
	}
	tokens, err := t.auth.Token(ctx)
	if err != nil {
		return err
	}
	if f.Flags.json {
		out := map[string]any{"accessToken": tokens.AccessToken, "tokenType": tokens.TokenType}
		if !tokens.Expires.IsZero() {
			out["expires"] = tokens.Expires
		}
		f.IO.Out.value(out)
		return nil
	}
	f.IO.Out.println(tokens.AccessToken)
	return nil
}

var _ oauthclient.Store = (*vault.Vault)(nil)
