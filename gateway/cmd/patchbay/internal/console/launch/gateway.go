package launch

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/access"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/explore"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// Settings returns the console of a gateway and the ring that records its traffic, from the flags
// --console, --capture and those of v, and the settings. Each may be nil.
func Settings(file *config.File, addr, record string, v *cmdutil.Views) (*gatewayconfig.Console, *capture.Ring, error) {
	settings, err := gatewayconfig.Read(file)
	if err != nil {
		return nil, nil, nil //nolint:nilerr // the host returns it
	}
	c := settings.Console
	if c == nil && addr != "" {
		c = &gatewayconfig.Console{Listen: console.DefaultAddr}
	}
	if err := v.Check(c != nil); err != nil {
		return nil, nil, err
	}
	if !slices.Contains([]string{"", "off", "summaries", "always"}, record) {
		return nil, nil, fmt.Errorf("invalid --capture %q: must be off, summaries or always", record)
	}
	var ring *capture.Ring
	if record = cmp.Or(record, settings.Capture); record != "off" && (record != "" || c != nil) {
		ring = capture.New(&capture.Options{Always: record == "always"})
	}
	if c == nil {
		return nil, ring, nil
	}
	c.Listen = observe.WithLoopbackHost(cmp.Or(addr, c.Listen))
	c.ViewListen, c.ViewOrigin = cmp.Or(v.Addr, c.ViewListen), cmp.Or(v.Origin, c.ViewOrigin)
	if c.PublicURL == "" && !cmdutil.IsLoopbackAddr(c.Listen) {
		return nil, nil, fmt.Errorf("invalid address %q of the console: other machines reach it, and its pages would "+
			"be sent unencrypted: want a loopback address, or the setting console.publicURL with the https URL of a "+
			"reverse proxy", c.Listen)
	}
	return c, ring, nil
}

// keyCommand creates a key for the console.
const keyCommand = `"patchbay gateway keys new NAME --console viewer|operator"`

// Gateway opens the console of a gateway, which listens until the function that serve returns is
// called. serve prints its URL: on a terminal the URL logs the local user in; elsewhere the output
// may be a log that others read.
func Gateway(
	f *cmdutil.Factory, c *gatewayconfig.Console, o *Options, auth *gateway.Options,
) (serve func(ctx context.Context) (stop func()), err error) {
	o.Addr, o.Access = c.Listen, &access.Access{URL: c.PublicURL}
	o.Views = cmdutil.Views{Addr: c.ViewListen, Origin: c.ViewOrigin}
	if auth.KeyStore != nil {
		o.Access.LogIn = access.Keys(o.Gateway)
	}
	if c.Roles != nil && auth.OAuth != nil {
		base := cmp.Or(c.PublicURL, "http://"+c.Listen)
		if o.Access.Identity, err = access.NewIdentity(auth.OAuth, c.Roles, base); err != nil {
			return nil, err
		}
	}
	o.Viewer = &explore.Viewer{Find: o.Gateway.FindCaller, Record: o.Gateway.RecordView, Explain: auth.Admin.Explain}
	if c.Proxy != nil {
		if o.Access.Proxy, err = access.NewProxy(c.Proxy, os.Getenv(c.Proxy.Secret)); err != nil {
			return nil, err
		}
	}
	web, err := New(o)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (stop func()) {
		ctx, cancel := context.WithCancel(ctx)
		var wait sync.WaitGroup
		wait.Go(func() { serveConsole(ctx, f, web) }) // ends with ctx
		if c.PublicURL != "" {
			f.IO.Err.Printf("patchbay console: %s, with a key of %s", c.PublicURL, keyCommand)
		}
		switch {
		case f.IO.Err.Terminal && term.IsTerminal(f.IO.In.R):
			f.IO.Err.Printf("patchbay console: %s\nPress Enter for a new link.", web.URL())
			wait.Go(func() { renew(ctx, f, web) })
		case f.IO.Err.Terminal:
			f.IO.Err.Printf("patchbay console: %s", web.URL())
		case c.PublicURL == "":
			f.IO.Err.Printf("patchbay console: %s, with a key of %s", web.Base(), keyCommand)
		}
		return func() {
			cancel()
			wait.Wait()
		}
	}, nil
}

// serveConsole serves a console until ctx ends, and prints its error.
func serveConsole(ctx context.Context, f *cmdutil.Factory, web *console.Console) {
	if err := web.Serve(ctx); err != nil {
		f.IO.Err.Printf("patchbay: %s", term.CleanLine(err.Error()))
	}
}
