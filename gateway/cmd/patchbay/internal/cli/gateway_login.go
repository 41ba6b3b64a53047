package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// callerPrefix begins the keys of the tokens of callers in the vault. The digest of the principal
// follows, and the key of the local user for the same.
const callerPrefix = "caller "

// callerTokens returns the tokens of a caller of the gateway. The local user has those of `patchbay
// auth login`.
func callerTokens(f *factory, principal string) oauthclient.Store {
	if principal == "" {
		return f.Vault.opened // openHost has opened it
	}
	sum := sha256.Sum256([]byte(principal))
	return &prefixedStore{f.Vault.opened, callerPrefix + hex.EncodeToString(sum[:]) + " "}
}

// A prefixedStore is the part of a store whose keys have a prefix.
type prefixedStore struct {
	oauthclient.Store
	prefix string
}

// Load returns the value of a key.
func (s *prefixedStore) Load(ctx context.Context, key string) ([]byte, error) {
	return s.Store.Load(ctx, s.prefix+key)
}

// Update replaces the value of a key.
func (s *prefixedStore) Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error {
	return s.Store.Update(ctx, s.prefix+key, change)
}

// callerOAuth returns how callers log in to servers.
func callerOAuth(f *factory, _ *config.Server) *oauthclient.TransportOptions {
	opts := f.Login.authOptions()
	opts.Client.Metadata = oauth.ClientMetadata{Name: "Patchbay"}
	return opts
}

// gatewayLoginLine returns the command with which the local user logs in to a server.
func gatewayLoginLine(f *factory, server string) string {
	line := "patchbay gateway login " + shellWord(server)
	if f.Flags.config != "" {
		line += " --config " + shellWord(f.Flags.config)
	}
	return line
}

func gatewayLoginCommand(f *factory) *cobra.Command {
	var noBrowser bool
	cmd := gatewayServerCommand(f, "login NAME", "Log in to a server of the gateway, as the local user",
		func(ctx context.Context, t *target, s *config.ServerSettings) error {
			o := s.OAuth
			wanted := &settings{ClientID: o.ClientID, Issuer: o.Issuer, Scopes: o.Scopes,
				InsecureUnlistedPKCE: o.InsecureUnlistedPKCE, OmitResource: o.OmitResource}
			if o.ClientSecret != "" {
				if wanted.ClientSecret = os.Getenv(o.ClientSecret); wanted.ClientSecret == "" {
					return usage(errNoClientSecret(o.ClientSecret))
				}
			}
			return login(ctx, f, t, wanted, "", !noBrowser)
		})
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "print the page to open, and do not open it")
	return cmd
}

func gatewayLogoutCommand(f *factory) *cobra.Command {
	var subject, issuer string
	cmd := gatewayServerCommand(f, "logout NAME", "Log out of a server of the gateway, as the local user",
		func(ctx context.Context, t *target, _ *config.ServerSettings) error { return logout(ctx, f, t) })
	own := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if subject == "" {
			return own(cmd, args)
		}
		c, err := requireGateway(cmd.Context(), f)
		if err != nil {
			return err
		}
		body := map[string]any{"caller": map[string]any{"subject": subject, "issuer": issuer}}
		if err := c.do(cmd.Context(), http.MethodPost, serverPath(args[0], ":logout"), body, nil); err != nil {
			return err
		}
		f.IO.Out.printf("%s is logged out of %s.", cleanLine(subject), cleanLine(args[0]))
		return nil
	}
	cmd.Flags().StringVar(&subject, "caller", "", "log out this `SUBJECT` of a caller of the running gateway instead")
	cmd.Flags().StringVar(&issuer, "issuer", gateway.KeyIssuer, "`ISSUER` of the caller")
	return cmd
}

// gatewayServerCommand returns a command about the login at a server of the gateway's configuration.
func gatewayServerCommand(
	f *factory, use, short string, run func(ctx context.Context, t *target, s *config.ServerSettings) error,
) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, DisableFlagsInUseLine: true, Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeNames(f, nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, s, err := gatewayServer(cmd.Context(), f, args[0])
			if err != nil {
				return err
			}
			f.Client.current.Store(t)
			return run(cmd.Context(), t, s)
		}}
}

// gatewayServer returns a server of the gateway's configuration whose callers or whose local user log
// in.
func gatewayServer(ctx context.Context, f *factory, name string) (*target, *config.ServerSettings, error) {
	c, err := readHostConfig(f, "")
	if err != nil {
		return nil, nil, usage(err)
	}
	if c.entries[name] == nil {
		return nil, nil, notFound(unknownName("server", name, c.file.Names()))
	}
	all, err := c.file.Settings()
	if err != nil {
		return nil, nil, usage(err)
	}
	s := all.Servers[name]
	switch s.Auth {
	case config.AuthNone, config.AuthStatic, config.AuthForward:
		return nil, nil, usage(fmt.Errorf("server %s has \"auth\": %q in its settings: a login is for \"caller\" and "+
			"\"gateway\"", cleanLine(name), s.Auth))
	}
	t, err := f.Config.named(ctx, c.targets[name].name, f.Config.askTrust)
	if err == nil && t.host != nil {
		err = errors.New("the name is not that of one server")
	}
	if err == nil {
		t.name = name
		err = t.mayLogIn()
	}
	if err != nil {
		return nil, nil, usage(err)
	}
	return t, s, nil
}

// checkPageLogin returns an error if the gateway would not use a login that the local user makes on a page of
// it: its connections have the client of the environment, or the one with which the user has logged in on
// the command line.
func checkPageLogin(ctx context.Context, p *factory, g *gatewayRun, server string) error {
	f := g.inForce.Load()
	if f == nil {
		f = g.config.file
	}
	s, err := f.Server(server)
	if err != nil {
		return err
	}
	all, err := f.Settings()
	if err != nil {
		return err
	}
	own := &config.OAuthClient{}
	if set := all.Servers[server]; set != nil {
		if own = &set.OAuth; set.Auth == config.AuthCaller {
			return nil // the host connects with the login itself
		}
	}
	if isMachineClient() {
		return fmt.Errorf("the gateway connects to %s as the client in %s: no user logs in", server, envClientID)
	}
	address, err := s.ExpandURL(ctx, lookupFor(ctx, p, g.config))
	if err != nil {
		return err
	}
	t := &target{url: address, header: http.Header{}}
	if err := t.mayLogIn(); err != nil {
		return err
	}
	stored, err := p.Login.loadSettings(ctx, t)
	if err != nil {
		return err
	}
	if stored.ClientID != own.ClientID || stored.MetadataURL != "" {
		return fmt.Errorf("the login at %s is that of a registered client: run %s", server, gatewayLoginLine(p, server))
	}
	return nil
}
