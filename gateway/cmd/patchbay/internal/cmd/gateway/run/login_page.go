package run

import (
	"context"
	"fmt"
	"net/http"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// checkPageLogin returns an error if connections would ignore a login on a page of the gateway:
// they use the OAuth client of the environment, or of the user's login on the command line.
func checkPageLogin(ctx context.Context, p *cmdutil.Factory, g *Run, server string) error {
	f := g.inForce.Load()
	if f == nil {
		f = g.Config.File
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
	if login.IsMachineClient() {
		return fmt.Errorf("the gateway connects to %s as the client in %s: no user logs in", server, login.EnvClientID)
	}
	address, err := s.ExpandURL(ctx, hosting.LookupFor(ctx, p, g.Config))
	if err != nil {
		return err
	}
	t := &target.Target{URL: address, Header: http.Header{}}
	if err := t.MayLogIn(); err != nil {
		return err
	}
	stored, err := p.Login.LoadSettings(ctx, t)
	if err != nil {
		return err
	}
	if stored.ClientID != own.ClientID || stored.MetadataURL != "" {
		return fmt.Errorf("the login at %s is that of a registered client: run %s", server,
			hosting.GatewayLoginLine(p, server))
	}
	return nil
}
