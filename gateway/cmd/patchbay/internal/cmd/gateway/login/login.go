// Package login logs the callers of a gateway in to servers.
package login

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/auth"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/gatewayclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// NewCmdLogin returns the command "gateway login".
func NewCmdLogin(f *cmdutil.Factory) *cobra.Command {
	var noBrowser bool
	cmd := gatewayServerCommand(f, "login NAME", "Log in to a server of the gateway, as the local user",
		func(ctx context.Context, t *target.Target, s *config.ServerSettings) error {
			o := s.OAuth
			wanted := &login.Settings{ClientID: o.ClientID, Issuer: o.Issuer, Scopes: o.Scopes,
				InsecureUnlistedPKCE: o.InsecureUnlistedPKCE, OmitResource: o.OmitResource}
			if o.ClientSecret != "" {
				if wanted.ClientSecret = os.Getenv(o.ClientSecret); wanted.ClientSecret == "" {
					return exit.UsageError(hosting.ErrNoClientSecret(o.ClientSecret))
				}
			}
			return auth.Login(ctx, f, t, wanted, "", !noBrowser)
		})
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "print the page to open, and do not open it")
	return cmd
}

// NewCmdLogout returns the command "gateway logout".
func NewCmdLogout(f *cmdutil.Factory) *cobra.Command {
	var subject, issuer string
	cmd := gatewayServerCommand(f, "logout NAME", "Log out of a server of the gateway, as the local user",
		func(ctx context.Context, t *target.Target, _ *config.ServerSettings) error {
			return auth.Logout(ctx, f, t)
		})
	own := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if subject == "" {
			return own(cmd, args)
		}
		c, err := gatewayclient.Require(cmd.Context(), f)
		if err != nil {
			return err
		}
		body := map[string]any{"caller": map[string]any{"subject": subject, "issuer": issuer}}
		if err := c.Do(cmd.Context(), http.MethodPost, gatewayclient.ServerPath(args[0], ":logout"), body,
			nil); err != nil {
			return err
		}
		f.IO.Out.Printf("%s is logged out of %s.", term.CleanLine(subject), term.CleanLine(args[0]))
		return nil
	}
	cmd.Flags().StringVar(&subject, "caller", "", "log out this `SUBJECT` of a caller of the running gateway instead")
	cmd.Flags().StringVar(&issuer, "issuer", gateway.KeyIssuer, "`ISSUER` of the caller")
	return cmd
}

// gatewayServerCommand returns a command about the login at a server of the gateway's configuration.
func gatewayServerCommand(
	f *cmdutil.Factory, use, short string, run func(ctx context.Context, t *target.Target,
		s *config.ServerSettings) error,
) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, DisableFlagsInUseLine: true, Args: cobra.ExactArgs(1),
		ValidArgsFunction: cmdutil.CompleteNames(f, nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, s, err := gatewayServer(cmd.Context(), f, args[0])
			if err != nil {
				return err
			}
			f.Client.Current.Store(t)
			return run(cmd.Context(), t, s)
		}}
}

// gatewayServer returns a configured server of the gateway at which callers or the local user log
// in.
func gatewayServer(ctx context.Context, f *cmdutil.Factory, name string) (*target.Target, *config.ServerSettings,
	error) {
	c, err := hosting.ReadHostConfig(f, "")
	if err != nil {
		return nil, nil, exit.UsageError(err)
	}
	if c.Entries[name] == nil {
		return nil, nil, exit.NotFoundError(term.UnknownName("server", name, c.File.Names()))
	}
	all, err := c.File.Settings()
	if err != nil {
		return nil, nil, exit.UsageError(err)
	}
	s := all.Servers[name]
	switch s.Auth {
	case config.AuthNone, config.AuthStatic, config.AuthForward:
		return nil, nil,
			exit.UsageError(fmt.Errorf("server %s has \"auth\": %q in its settings: a login is for \"caller\" and "+
				"\"gateway\"", term.CleanLine(name), s.Auth))
	}
	t, err := f.Config.Named(ctx, c.Targets[name].Name, f.Config.AskTrust)
	if err == nil && t.Host != nil {
		err = errors.New("the name does not identify a single server")
	}
	if err == nil {
		t.Name = name
		err = t.MayLogIn()
	}
	if err != nil {
		return nil, nil, exit.UsageError(err)
	}
	return t, s, nil
}
