// Package launch opens a web console over the host of a command, and announces its URL.
package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/access"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/explore"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// Options configures a console over a host.
type Options struct {
	*cmdutil.Factory
	Config  *hosting.Config
	Gateway *gateway.Gateway
	Addr    string // of the command line or the settings; empty for the default
	Views   cmdutil.Views
	Home    string // see [console.Options]
	Checks  string // see [console.Options]
	Mask    func(text string) string
	Sources *Sources        // of the pages Logs and Inbox; nil for none
	Viewer  *explore.Viewer // see [console.Options]
	// Access lets other people than the local user log in. Default: nobody else.
	Access *access.Access
}

// New returns a console, which listens. The caller must serve it.
func New(o *Options) (*console.Console, error) {
	opts := &console.Options{Admin: o.Gateway.AdminClient, Home: o.Home, Access: o.Access, Gateway: o.Access != nil,
		Checks: o.Checks,
		Mask:   o.Mask, Viewer: o.Viewer, Version: build.Version(),
		Capture: o.Config.Capture, Logger: o.IO.Logger(),
		Connect: func(_ context.Context, server string, p *mcp.Principal) (mcp.Transport, error) {
			h, err := o.Gateway.CallerEndpoint(p, gateway.Route{Server: server})
			if err != nil {
				return nil, err
			}
			return mcp.InMemory(h), nil
		},
		Opens: func(p *mcp.Principal, server string) bool {
			_, err := o.Gateway.CallerEndpoint(p, gateway.Route{Server: server})
			return err == nil
		},
		Dial: o.dial, Target: o.target, Examine: o.examine}
	if o.Sources != nil {
		opts.Logs, opts.Questions = &o.Sources.logs, &o.Sources.questions
	}
	return Listen(opts, o.Addr, o.Views)
}

// Listen returns a console at addresses, which may lack the host.
func Listen(opts *console.Options, addr string, views cmdutil.Views) (*console.Console, error) {
	if opts.Addr = addr; addr != "" {
		opts.Addr = observe.WithLoopbackHost(addr)
	}
	opts.ViewOrigin = views.Origin
	if opts.ViewAddr = views.Addr; views.Addr != "" {
		opts.ViewAddr = observe.WithLoopbackHost(views.Addr)
	}
	web, err := console.New(opts)
	if err != nil {
		return nil, &exit.Error{Code: exit.Failure, Err: fmt.Errorf("%w (use another address for the console)", err)}
	}
	return web, nil
}

// AddServer adds a server to a configuration, whose connections the program itself makes. entry
// states its type.
func AddServer(c *hosting.Config, name string, entry map[string]any) error {
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{name: entry}})
	if err != nil {
		return err
	}
	f, err := config.Parse(text)
	if err != nil {
		return err
	}
	c.Servers = append(c.Servers, config.Entry{Name: name, File: f, Server: name})
	c.File = config.Merge(c.Settings, c.Servers)
	return nil
}

// examine runs the doctor for a server that the user trusts.
func (o *Options) examine(ctx context.Context, server string, d *doctor.Options) (*doctor.Report, error) {
	if o.Config.InProcess[server] != nil {
		return nil, errors.New("the server is a part of this process: there is no connection to check")
	}
	t, err := o.trusted(ctx, server)
	if err != nil {
		return nil, err
	}
	d.Dialer = o.Client
	return doctor.Run(o.Config.Capture.WithLogin(ctx, server, nil), t, d), nil
}

// trusted returns a server that the user trusts. The caller may change it.
func (o *Options) trusted(ctx context.Context, server string) (*target.Target, error) {
	t := o.Config.Fixed[server]
	_, known := o.Config.Known(server)
	if t == nil && known == nil {
		return nil, fmt.Errorf("unknown server %q", server)
	}
	if t == nil {
		return o.Factory.Config.Named(ctx, known.Name, target.RefuseTrust)
	}
	own := *t
	return &own, nil
}

// dial returns a connection of its own to a server, whose messages are recorded. The host takes no
// part in it, so it is for the local user: the policy limits other people.
func (o *Options) dial(ctx context.Context, server string, p *mcp.Principal) (mcp.Transport, error) {
	if p != nil {
		return nil, errors.New("only the local user connects without the policy of the gateway, as a run in " +
			"another revision does")
	}
	if inProcess := o.Config.InProcess[server]; inProcess != nil {
		return o.Config.Capture.Connect(inProcess(), server, ""), nil
	}
	t, err := o.trusted(ctx, server)
	if err != nil {
		return nil, err
	}
	transport, err := hosting.DialServer(ctx, o.Factory, server, t)
	if err != nil {
		return nil, err
	}
	return o.Config.Capture.Connect(transport, server, ""), nil
}

// target returns how other programs reach a server, without secrets.
func (o *Options) target(server string) *explore.Target {
	t := &explore.Target{}
	if o.Config.InProcess[server] != nil {
		t.Command = []string{"patchbay", "serve", "--stdio"}
		return t
	}
	if s, known := o.Config.Known(server); s != nil {
		t.Name, t.URL = known.Name, s.URL
		if s.Command != "" {
			t.Command = append([]string{s.Command}, s.Args...)
		}
	}
	if fixed := o.Config.Fixed[server]; fixed != nil {
		t.URL, t.Command = fixed.URL, fixed.Command
	}
	if t.URL != "" {
		t.URL = target.PublicURL(t.URL)
	}
	t.Command = target.PublicArguments(t.Command)
	return t
}

// Browse prints the URL on standard error, and opens the browser at a terminal if opens is set. At
// a terminal, it then prints a URL with a fresh token for each line of standard input, until ctx
// ends.
func Browse(ctx context.Context, f *cmdutil.Factory, web *console.Console, opens bool) {
	page := web.URL()
	f.IO.Err.Printf("patchbay console: %s", page)
	if !f.IO.MayPrompt() {
		return
	}
	f.IO.Err.Printf("Press Enter for a new link, Ctrl-C to end.")
	if opens && !f.Login.Headless {
		browse := f.Ask.Open
		if browse == nil {
			browse = oauthclient.OpenBrowser
		}
		if err := browse(ctx, page); err != nil && ctx.Err() == nil {
			f.IO.Err.Printf("Could not open a browser: open the page yourself.")
		}
	}
	renew(ctx, f, web)
}

// renew prints a URL with a fresh token for each line of standard input, until ctx or the input
// ends.
func renew(ctx context.Context, f *cmdutil.Factory, web *console.Console) {
	for {
		if _, err := f.IO.In.ReadLine(ctx); err != nil {
			return
		}
		f.IO.Err.Printf("patchbay console: %s", web.URL())
	}
}
