package run

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/follow"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/values"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/gatewayclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/state"
)

// serveAdmin serves the admin API on the socket of the configuration until the returned function is
// called. Without a socket, the gateway serves HTTP all the same.
func serveAdmin(ctx context.Context, f *cmdutil.Factory, g *Run, gw *gateway.Gateway) (stop func()) {
	if g.Config.Fixed != nil {
		return func() {} // the server of the command line is no configuration
	}
	path, err := gatewayclient.SocketPath(f)
	if err == nil {
		l, failed := gatewayclient.Listen(path)
		if err = failed; err == nil {
			l.Kept = true
			f.Exit.Add(cmdutil.ExitLocks, func() { _ = l.Lock.Close() }) // or the end of the process
			ctx, cancel := context.WithCancel(ctx)
			var wait sync.WaitGroup
			wait.Go(func() { // ends with ctx
				if err := gw.ServeAdmin(ctx, l); err != nil {
					f.IO.Err.Printf("patchbay: %s", term.CleanLine(err.Error()))
				}
			})
			return func() {
				cancel()
				wait.Wait()
			}
		}
	}
	if errors.Is(err, gatewayclient.ErrGatewayRuns) {
		f.IO.Err.Printf("patchbay: %v (see \"patchbay gateway status\"): the commands that control a gateway, and "+
			"clients that attach, use the other gateway", err)
	} else {
		f.IO.Err.Printf("patchbay: commands such as \"patchbay gateway status\" do not reach this gateway: %s",
			term.CleanLine(err.Error()))
	}
	return func() {}
}

// adminOptions returns the options of the admin API of a gateway.
func adminOptions(ctx context.Context, f *cmdutil.Factory, g *Run) gateway.AdminOptions {
	g.mask = NewConfigMask()
	dir, verify := g.auditLog(ctx, f)
	var wire func(ctx context.Context) iter.Seq2[json.RawMessage, uint64]
	if g.Config.Capture != nil {
		wire = g.Config.Capture.Wire
	}
	return gateway.AdminOptions{Version: build.Version(), URL: g.url, Events: g.Config.Events,
		AuditDir: dir, AuditVerify: verify, Wire: wire,
		Stop: g.stop,
		Reload: func(ctx context.Context) (*host.Diff, error) {
			d, err := tryReload(ctx, f, g)
			if err == nil {
				state.Announce(ctx, g.Config.Pins, follow.Announced)
			}
			return d, err
		},
		Replicas: g.otherReplicas,
		Config:   func(context.Context) ([]gateway.ConfigFile, error) { return configFiles(f, g) },
		ServerConfig: func(_ context.Context, server string) ([]gateway.ServerValue, error) {
			return values.Of(g.Config, cmp.Or(g.inForce.Load(), g.Config.File), server)
		},
		ConfigError: func() string {
			if text := g.rejected.Load(); text != nil {
				return *text
			}
			return ""
		},
		SetConfig: func(_ context.Context, c *gateway.ConfigChange) (*gateway.ConfigResult, error) {
			return setConfig(f, g, c)
		},
		Settings:   g.settingsInForce,
		Policy:     g.policyInForce,
		Explain:    g.explainer,
		CheckLogin: func(ctx context.Context, server string) error { return checkPageLogin(ctx, f, g, server) },
	}
}

// auditLog returns the folder of the audit log, or "" if the gateway keeps no log, and how the log
// is verified: with the key of the vault, as by "gateway audit verify".
func (g *Run) auditLog(ctx context.Context, f *cmdutil.Factory) (dir string, o audit.VerifyOptions) {
	s, err := gatewayconfig.Read(g.Config.File)
	if err != nil || s.Audit == nil {
		return "", o
	}
	dir, heads, err := hosting.AuditDirs(s.Audit, "")
	if err != nil {
		return "", o
	}
	o.HeadDir = heads
	if key, err := hosting.AuditKey(ctx, f); err == nil { // without it, the log itself names the key
		o.Keys = []ed25519.PublicKey{key.Public().(ed25519.PublicKey)}
	}
	return dir, o
}

// checkPageLogin returns an error if connections would ignore a login on a page of the gateway:
// they use the OAuth client of the environment, or of the user's login on the command line.
func checkPageLogin(ctx context.Context, p *cmdutil.Factory, g *Run, server string) error {
	f := g.fileInForce()
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
