// Package auth logs in to and out of servers.
package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// NewCmdAuth returns the command "auth" with its subcommands.
func NewCmdAuth(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.WithSubcommands(f, "auth", "Log in to and out of servers (OAuth)", NewCmdLogin(f, nil),
		newCmdStatus(f), newCmdLogout(f), NewCmdToken(f, nil), NewCmdKey(f, nil))
}

// LoginOptions are the flags of "auth login".
type LoginOptions struct {
	cmdutil.Invocation
	Settings   login.Settings
	SecretFile string // with the client secret
	NoBrowser  bool   // print the page
}

// NewCmdLogin returns the command "auth login".
func NewCmdLogin(p *cmdutil.Factory, run cmdutil.Run[*LoginOptions]) *cobra.Command {
	o := &LoginOptions{}
	cmd := cmdutil.AuthCommand(p, "login", "Log in to a server", o, cmdutil.Or(run,
		func(ctx context.Context, o *LoginOptions) error {
			return Login(ctx, p, o.Target, &o.Settings, o.SecretFile, !o.NoBrowser)
		}))
	f, settings := cmd.Flags(), &o.Settings
	f.StringArrayVar(&settings.Scopes, "scope", nil, "request this `scope`")
	f.StringVar(&settings.ClientID, "client-id", "", "the `id` of a registered client")
	f.StringVar(&o.SecretFile, "client-secret-file", "", "a `file` with the client secret, - for standard input")
	f.StringVar(&settings.Issuer, "issuer", "",
		"the `URL` of the only authorization server to use, required by the flags about it")
	f.BoolVar(&settings.InsecureUnlistedPKCE, "insecure-unlisted-pkce", false,
		"log in at --issuer although it lists no PKCE methods (Cognito, Entra ID)")
	f.BoolVar(&settings.OmitResource, "omit-resource", false, "omit the parameter resource, which --issuer refuses")
	f.StringVar(&settings.MetadataURL, "client-metadata-url", "", "the `URL` of a client id metadata document")
	f.BoolVar(&o.NoBrowser, "no-browser", false, "print the page to open, and do not open it")
	return cmd
}

func newCmdLogout(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.AuthCommand(f, "logout", "Log out of a server", &cmdutil.Invocation{},
		func(ctx context.Context, o *cmdutil.Invocation) error { return Logout(ctx, f, o.Target) })
}

// Login logs the user in to a server, and stores the settings of the login.
func Login(ctx context.Context, f *cmdutil.Factory, t *target.Target, wanted *login.Settings, secretFile string,
	opens bool) error {
	f.Login.InProgress = true
	if login.IsMachineClient() {
		if err := f.Login.Authorize(ctx, t); err != nil {
			return err
		}
		if err := t.Auth.Login(ctx); err != nil {
			return err
		}
		return status(ctx, f, t)
	}
	s, err := newSettings(ctx, f, t, wanted, secretFile)
	if err != nil {
		return err
	}
	hasUser := f.IO.Interactive || secretFile == "-" && f.IO.Err.Terminal // stdin is the secret
	switch {
	case f.Flags.NoInput:
		return &exit.Error{Code: exit.Auth, Err: errors.New("cannot log in: --no-input is set")}
	case opens && !hasUser:
		return &exit.Error{Code: exit.Auth,
			Err: errors.New("cannot log in: stdin and stderr are not a terminal; use --no-browser " +
				"to print the page and wait")}
	}
	held, err := heldScopes(ctx, f, t, s)
	if err != nil {
		return err
	}
	asked := *s
	asked.Scopes = login.Union(held, s.Scopes)
	if t.Auth, err = f.Login.NewAuth(ctx, t, &asked, f.Login.NewUserLogin(t, opens)); err != nil {
		return err
	}
	if err := t.Auth.Login(ctx); err != nil {
		return err
	}
	if err := f.Login.SaveSettings(ctx, t, s); err != nil {
		return err
	}
	f.IO.Err.Done()
	if d, err := f.Vault.Opened.Describe(); err == nil && d.Key == vault.InFile {
		f.Vault.WarnKeyFile(f.Vault.Opened.KeyFile(), nil)
	}
	if now, err := t.Auth.Status(ctx); err == nil && now != nil {
		if lost := target.Difference(target.Difference(held, now.Scopes), []string{login.ScopeOffline}); len(lost) > 0 {
			f.IO.Err.Printf("Scopes no longer allowed: %s", term.CleanLine(strings.Join(lost, " ")))
		}
	}
	return status(ctx, f, t)
}

func heldScopes(ctx context.Context, f *cmdutil.Factory, t *target.Target, s *login.Settings) ([]string, error) {
	before, err := f.Login.NewAuth(ctx, t, s, nil)
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
func newSettings(ctx context.Context, f *cmdutil.Factory, t *target.Target, wanted *login.Settings,
	secretFile string) (*login.Settings, error) {
	switch {
	case wanted.Issuer == "" && (wanted.ClientID != "" || wanted.InsecureUnlistedPKCE || wanted.OmitResource):
		return nil,
			exit.UsageError(errors.New("--client-id, --insecure-unlisted-pkce and --omit-resource require --issuer: " +
				"they are for one authorization server"))
	case wanted.ClientID == "" && secretFile != "":
		return nil, exit.UsageError(errors.New("--client-secret-file requires --client-id"))
	case wanted.ClientID != "" && wanted.MetadataURL != "":
		return nil, exit.UsageError(errors.New("--client-id and --client-metadata-url exclude each other"))
	}
	s, err := f.Login.LoadSettings(ctx, t)
	if err != nil {
		return nil, err
	}
	if wanted.ClientID != "" || wanted.MetadataURL != "" || wanted.Issuer != "" {
		scopes := s.Scopes
		*s = *wanted
		s.Scopes = scopes
	}
	if secretFile != "" {
		text, err := f.IO.In.ReadSource(ctx, secretFile)
		s.ClientSecret = strings.TrimRight(string(text), "\r\n")
		if err == nil && s.ClientSecret == "" {
			err = errors.New("the secret is empty")
		}
		if err != nil {
			return nil, exit.UsageError(fmt.Errorf("--client-secret-file: %w", err))
		}
	}
	s.Scopes = login.Union(s.Scopes, wanted.Scopes)
	return s, nil
}

// Logout removes the login at a server, and revokes its tokens.
func Logout(ctx context.Context, f *cmdutil.Factory, t *target.Target) error {
	if login.IsMachineClient() {
		return exit.UsageError(fmt.Errorf("no stored login: %s is set; unset it to log out", login.EnvClientID))
	}
	if err := f.Login.Authorize(ctx, t); err != nil {
		return err
	}
	now, err := t.Auth.Status(ctx)
	if err != nil {
		return err
	}
	failed := t.Auth.Logout(ctx)
	if err := f.Login.SaveSettings(ctx, t, &login.Settings{}); err != nil {
		return errors.Join(failed, err)
	}
	if failed != nil {
		return fmt.Errorf("the tokens were deleted, but not revoked: %w", failed)
	}
	if f.PrintedJSON(map[string]bool{"loggedOut": now != nil}) {
		return nil
	}
	if now == nil {
		f.IO.Err.Printf("Not logged in to %s.", term.CleanLine(t.URL))
		return nil
	}
	f.IO.Err.Printf("Logged out of %s.", term.CleanLine(t.URL))
	return nil
}

// TokenOptions are the flags of "auth token".
type TokenOptions struct {
	cmdutil.Invocation
	Show bool // also on a terminal
}

// NewCmdToken returns the command "auth token".
func NewCmdToken(f *cmdutil.Factory, run cmdutil.Run[*TokenOptions]) *cobra.Command {
	o := &TokenOptions{}
	cmd := cmdutil.AuthCommand(f, "token", "Print the access token", o, cmdutil.Or(run, token))
	cmd.Flags().BoolVar(&o.Show, "show", false, "print the token even on a terminal")
	return cmd
}

func token(ctx context.Context, o *TokenOptions) error {
	if o.IO.Out.Terminal && !o.Show {
		return exit.UsageError(errors.New("refusing to print a token on a terminal: use a pipe, or give --show"))
	}
	if err := o.Login.Authorize(ctx, o.Target); err != nil {
		return err
	}
	tokens, err := o.Target.Auth.Token(ctx)
	if err != nil {
		return err
	}
	if o.Flags.JSON {
		out := map[string]any{"accessToken": tokens.AccessToken, "tokenType": tokens.TokenType}
		if !tokens.Expires.IsZero() {
			out["expires"] = tokens.Expires
		}
		o.IO.Out.Value(out)
		return nil
	}
	o.IO.Out.Println(tokens.AccessToken)
	return nil
}

var _ oauthclient.Store = (*vault.Vault)(nil)
