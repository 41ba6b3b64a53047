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
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// LoginOptions are the flags of "gateway login".
type LoginOptions struct {
	cmdutil.Invocation
	NoBrowser bool // print the page
}

// NewCmdLogin returns the command "gateway login".
func NewCmdLogin(f *cmdutil.Factory, run cmdutil.Run[*LoginOptions]) *cobra.Command {
	o := &LoginOptions{}
	cmd := cmdutil.Command(f, "login NAME", "Log in to a server of the gateway, as the local user", cobra.ExactArgs(1),
		o, cmdutil.Or(run, logIn))
	cmd.ValidArgsFunction = cmdutil.CompleteNames(f, nil)
	cmd.Flags().BoolVar(&o.NoBrowser, "no-browser", false, "print the page to open, and do not open it")
	return cmd
}

func logIn(ctx context.Context, o *LoginOptions) error {
	t, s, err := gatewayServer(ctx, o.Factory, o.Words[0])
	if err != nil {
		return err
	}
	o.Client.Current.Store(t)
	client := s.OAuth
	wanted := &login.Settings{ClientID: client.ClientID, Issuer: client.Issuer, Scopes: client.Scopes,
		InsecureUnlistedPKCE: client.InsecureUnlistedPKCE, OmitResource: client.OmitResource}
	if client.ClientSecret != "" {
		if wanted.ClientSecret = os.Getenv(client.ClientSecret); wanted.ClientSecret == "" {
			return exit.UsageError(hosting.ErrNoClientSecret(client.ClientSecret))
		}
	}
	return auth.Login(ctx, o.Factory, t, wanted, "", !o.NoBrowser)
}

// LogoutOptions are the flags of "gateway logout".
type LogoutOptions struct {
	cmdutil.Invocation
	Caller, Issuer string // of a caller of the running gateway; the local user without a Caller
}

// NewCmdLogout returns the command "gateway logout".
func NewCmdLogout(f *cmdutil.Factory, run cmdutil.Run[*LogoutOptions]) *cobra.Command {
	o := &LogoutOptions{}
	cmd := cmdutil.Command(f, "logout NAME", "Log out of a server of the gateway, as the local user",
		cobra.ExactArgs(1), o, cmdutil.Or(run, logOut))
	cmd.ValidArgsFunction = cmdutil.CompleteNames(f, nil)
	cmd.Flags().StringVar(&o.Caller, "caller", "", "log out this `SUBJECT` of a caller of the running gateway instead")
	cmd.Flags().StringVar(&o.Issuer, "issuer", gateway.KeyIssuer, "`ISSUER` of the caller")
	return cmd
}

func logOut(ctx context.Context, o *LogoutOptions) error {
	if o.Caller == "" {
		t, _, err := gatewayServer(ctx, o.Factory, o.Words[0])
		if err != nil {
			return err
		}
		o.Client.Current.Store(t)
		return auth.Logout(ctx, o.Factory, t)
	}
	c, err := gatewayclient.Require(ctx, o.Factory)
	if err != nil {
		return err
	}
	body := map[string]any{"caller": map[string]any{"subject": o.Caller, "issuer": o.Issuer}}
	if err := c.Do(ctx, http.MethodPost, gatewayclient.ServerPath(o.Words[0], ":logout"), body, nil); err != nil {
		return err
	}
	o.IO.Out.Printf("%s is logged out of %s.", term.CleanLine(o.Caller), term.CleanLine(o.Words[0]))
	return nil
}

// gatewayServer returns a configured server at which callers or the local user log in.
func gatewayServer(ctx context.Context, f *cmdutil.Factory, name string) (*target.Target, *config.ServerSettings,
	error) {
	c, err := hosting.ReadHostConfig(f, "")
	if err != nil {
		return nil, nil, exit.UsageError(err)
	}
	if c.Entries[name] == nil {
		return nil, nil, exit.NotFoundError(term.UnknownName("server", name, c.File.Names()))
	}
	all, err := gatewayconfig.Read(c.File)
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
