package cli

import (
	"context"
	"errors"
	"sync"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
)

// serveAdmin serves the admin API on the socket of the configuration until the returned function is
// called. Without a socket, the gateway serves HTTP all the same.
func serveAdmin(ctx context.Context, f *factory, g *gatewayRun, gw *gateway.Gateway) (stop func()) {
	if g.config.fixed != nil {
		return func() {} // the server of the command line is no configuration
	}
	path, err := socketPath(f)
	if err == nil {
		l, failed := listenGateway(path)
		if err = failed; err == nil {
			l.kept = true
			f.locks = append(f.locks, l.lock)
			ctx, cancel := context.WithCancel(ctx)
			var wait sync.WaitGroup
			wait.Go(func() { // ends with ctx
				if err := gw.ServeAdmin(ctx, l); err != nil {
					f.IO.Err.printf("patchbay: %s", cleanLine(err.Error()))
				}
			})
			return func() {
				cancel()
				wait.Wait()
			}
		}
	}
	if errors.Is(err, errGatewayRuns) {
		f.IO.Err.printf("patchbay: %v (see \"patchbay gateway status\"): the commands that control a gateway, and "+
			"clients that attach, use that one", err)
	} else {
		f.IO.Err.printf("patchbay: commands such as \"patchbay gateway status\" do not reach this gateway: %s",
			cleanLine(err.Error()))
	}
	return func() {}
}

// adminOptions returns the options of the admin API of a gateway.
func adminOptions(f *factory, g *gatewayRun) gateway.AdminOptions {
	g.mask = newConfigMask()
	return gateway.AdminOptions{Version: version(), URL: g.url, Events: g.config.events, AuditDir: g.auditDir(),
		Stop:   g.stop,
		Reload: func(ctx context.Context) (*host.Diff, error) { return tryReload(ctx, f, g) },
		Config: func(context.Context) ([]gateway.ConfigFile, error) { return configFiles(f, g) },
		ConfigError: func() string {
			if text := g.rejected.Load(); text != nil {
				return *text
			}
			return ""
		},
		SetConfig: func(_ context.Context, c *gateway.ConfigChange) (*gateway.ConfigResult, error) {
			return setConfig(f, g, c)
		},
		Explain:    g.explainRule,
		CheckLogin: func(ctx context.Context, server string) error { return checkPageLogin(ctx, f, g, server) },
	}
}

// auditDir returns the folder of the audit log, "" if there is none.
func (g *gatewayRun) auditDir() string {
	s, err := g.config.file.Settings()
	if err != nil || s.Audit == nil {
		return ""
	}
	dir, _, err := auditDirs(s.Audit, "")
	if err != nil {
		return ""
	}
	return dir
}
