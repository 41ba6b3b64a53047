// Package console opens the web console for servers.
package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/explore"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/logs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/values"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// Options are the flags of "console".
type Options struct {
	*cmdutil.Factory
	Addr      string
	Checks    string // the file for saved calls
	NoBrowser bool
	Args      []string // the targets; empty for the configuration

	cmd *cobra.Command
}

// NewCmdConsole returns the command "console".
func NewCmdConsole(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{Factory: f}
	o.cmd = &cobra.Command{
		Use:                   "console [TARGET…] | console -- COMMAND…",
		Short:                 "Open a web console for servers: see, try and decide in a browser (inspector, UI)",
		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return f.Config.TargetNames(typed), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Args = args
			return cmdutil.Or(run, open)(cmd.Context(), o)
		},
	}
	o.cmd.Flags().StringVar(&o.Addr, "addr", "", "listen at this `host:port` of this machine; default "+
		console.DefaultAddr+", or a free port")
	o.cmd.Flags().StringVar(&o.Checks, "checks", defaultChecks, "save calls to this `file`, which \"patchbay check\" "+
		"runs")
	o.cmd.Flags().BoolVar(&o.NoBrowser, "no-browser", false, "print the URL, and do not open a browser")
	return o.cmd
}

// defaultChecks is the file for saved calls. The page names its whole path before it creates it.
const defaultChecks = "patchbay-checks.json"

// demoName is the name of the demo server beside the servers of the configuration.
const demoName = "demo"

// shutdownTimeout bounds the wait for requests and tasks at the end.
const shutdownTimeout = 5 * time.Second

// open serves the console until ctx ends. No process of a server is left.
func open(ctx context.Context, o *Options) (err error) {
	f := o.Factory
	c, start, err := o.config(ctx)
	if err != nil {
		return exit.UsageError(err)
	}
	if len(c.Fixed) == 0 {
		d := demo.New(build.Version(), &demo.Options{Logger: f.IO.Logger()})
		defer closeDemo(d)
		name := demoName
		for n := 2; c.Entries[name] != nil; n++ {
			name = fmt.Sprintf("%s-%d", demoName, n)
		}
		start = []string{name}
		c.InProcess = map[string]func() mcp.Transport{name: func() mcp.Transport { return mcp.InMemory(d.Server) }}
		if err := addServer(c, name, ""); err != nil {
			return err
		}
	}
	c.Events, c.Capture = gateway.NewEventLog(), capture.New(nil) // the console keeps the bodies
	lines, questions := &logs.Book{}, &question.Desk{}
	c.Capture.SetLog(lines.Line)
	c.Prepare = func(opts *host.Options) {
		opts.Logger = slog.New(lines.Handler(opts.Logger.Handler()))
		questions.Answer(&opts.Client)
	}
	h, err := hosting.OpenHost(ctx, f, c, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	gw := gateway.New(h, &gateway.Options{Logger: f.IO.Logger(),
		Admin: gateway.AdminOptions{Version: build.Version(), Events: c.Events,
			ServerConfig: func(_ context.Context, server string) ([]gateway.ServerValue, error) {
				return values.Of(c, c.File, server)
			}}})
	defer shutdown(gw)
	opts := o.consoleOptions(h, gw, c)
	opts.Capture, opts.Mask = c.Capture, h.Operator().Mask
	opts.Logs, opts.Questions = lines, questions
	lines.SetMask(opts.Mask)
	if opts.Checks, err = filepath.Abs(o.Checks); err != nil {
		return err
	}
	if len(c.Fixed) == 1 {
		opts.Home = "/explore?" + url.Values{"server": start}.Encode()
	}
	web, err := console.New(opts)
	if err != nil {
		return &exit.Error{Code: exit.Failure, Err: fmt.Errorf("%w (use --addr for another address)", err)}
	}
	hosting.WarnMisspelt(f, c)
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	wait.Go(func() { _ = h.Start(ctx, start...) }) // the overview shows errors; ends with ctx
	wait.Go(func() { o.announce(ctx, web) })
	return web.Serve(ctx)
}

func (o *Options) consoleOptions(h *host.Host, gw *gateway.Gateway, c *hosting.Config) *console.Options {
	addr := o.Addr
	if addr != "" {
		addr = observe.WithLoopbackHost(addr)
	}
	return &console.Options{Admin: gw.AdminClient, Addr: addr, Version: build.Version(), Logger: o.IO.Logger(),
		Connect: func(_ context.Context, server string, p *mcp.Principal) (mcp.Transport, error) {
			return mcp.InMemory(h.For(&policy.Caller{Principal: p, Server: server})), nil
		},
		Dial: func(ctx context.Context, server string, _ *mcp.Principal) (mcp.Transport, error) {
			return o.dial(ctx, c, server)
		},
		Target: func(server string) *explore.Target { return targetOf(c, server) },
		Examine: func(ctx context.Context, server string, d *doctor.Options) (*doctor.Report, error) {
			return o.examine(ctx, c, server, d)
		}}
}

// examine runs the doctor for a server that the user trusts.
func (o *Options) examine(
	ctx context.Context, c *hosting.Config, server string, d *doctor.Options,
) (*doctor.Report, error) {
	if c.InProcess[server] != nil {
		return nil, errors.New("the server is a part of this process: there is no connection to check")
	}
	t, err := o.trusted(ctx, c, server)
	if err != nil {
		return nil, err
	}
	d.Dialer = o.Client
	return doctor.Run(ctx, t, d), nil
}

// trusted returns a server that the user trusts. The caller may change it.
func (o *Options) trusted(ctx context.Context, c *hosting.Config, server string) (*target.Target, error) {
	t, known := c.Fixed[server], c.Targets[server]
	if t == nil && known == nil {
		return nil, fmt.Errorf("unknown server %q", server)
	}
	if t == nil {
		return o.Config.Named(ctx, known.Name, target.RefuseTrust)
	}
	own := *t
	return &own, nil
}

// dial returns a connection of its own to a server, whose messages are recorded.
func (o *Options) dial(ctx context.Context, c *hosting.Config, server string) (mcp.Transport, error) {
	if inProcess := c.InProcess[server]; inProcess != nil {
		return c.Capture.Connect(inProcess(), server, ""), nil
	}
	t, err := o.trusted(ctx, c, server)
	if err != nil {
		return nil, err
	}
	transport, err := hosting.DialServer(ctx, o.Factory, server, t)
	if err != nil {
		return nil, err
	}
	return c.Capture.Connect(transport, server, ""), nil
}

// targetOf returns how other programs reach a server, without secrets.
func targetOf(c *hosting.Config, server string) *explore.Target {
	t := &explore.Target{}
	if c.InProcess[server] != nil {
		t.Command = []string{"patchbay", "serve", "--stdio"}
		return t
	}
	if s := c.Entries[server]; s != nil {
		t.Name, t.URL = c.Targets[server].Name, s.URL
		if s.Command != "" {
			t.Command = append([]string{s.Command}, s.Args...)
		}
	}
	if fixed := c.Fixed[server]; fixed != nil {
		t.URL, t.Command = fixed.URL, fixed.Command
	}
	if t.URL != "" {
		t.URL = target.PublicURL(t.URL)
	}
	t.Command = target.PublicArguments(t.Command)
	return t
}

// announce prints the URL on standard error and opens the browser. On a terminal, each line of
// standard input prints a URL with a fresh token.
func (o *Options) announce(ctx context.Context, web *console.Console) {
	f := o.Factory
	page := web.URL()
	f.IO.Err.Printf("patchbay console: %s", page)
	if !f.IO.MayPrompt() {
		return
	}
	f.IO.Err.Printf("Press Enter for a new link, Ctrl-C to end.")
	if !o.NoBrowser && !f.Login.Headless {
		browse := f.Ask.Open
		if browse == nil {
			browse = oauthclient.OpenBrowser
		}
		if err := browse(ctx, page); err != nil && ctx.Err() == nil {
			f.IO.Err.Printf("Could not open a browser: open the page yourself.")
		}
	}
	for {
		if _, err := f.IO.In.ReadLine(ctx); err != nil {
			return
		}
		f.IO.Err.Printf("patchbay console: %s", web.URL())
	}
}

func closeDemo(d *demo.Demo) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	_ = d.Tasks.Close(ctx) // its tasks are in memory
}

func shutdown(gw *gateway.Gateway) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	_ = gw.Shutdown(ctx) // it serves no clients
}

// config returns the configuration for the targets of the command line, and the servers that start
// at once. Without targets it contains the servers of the configuration files.
func (o *Options) config(ctx context.Context) (c *hosting.Config, start []string, err error) {
	f, dash := o.Factory, o.cmd.ArgsLenAtDash()
	switch {
	case dash > 0:
		return nil, nil, fmt.Errorf("unexpected argument %q\nusage: %s", o.Args[0], o.cmd.UseLine())
	case dash == 0 && len(o.Args) == 0:
		return nil, nil, errors.New("missing command after --")
	case dash < 0 && len(o.Args) != 1 && (len(f.Flags.Header)+len(f.Flags.Environment) > 0 || f.Flags.Directory != ""):
		return nil, nil, errors.New("--header, --env and --cwd are for one TARGET: servers of a configuration have " +
			"their own")
	case dash < 0 && len(o.Args) == 0:
		c, err = readFiles(f)
		return c, nil, err
	}
	c = &hosting.Config{Fixed: map[string]*target.Target{}}
	targets := []*target.Target{{Command: o.Args}}
	if dash < 0 {
		if targets, err = o.targets(ctx); err != nil {
			return nil, nil, err
		}
	}
	for _, t := range targets {
		name := cmp.Or(t.Name, nameOf(t))
		for n := 2; c.Fixed[name] != nil; n++ {
			name = fmt.Sprintf("%s-%d", cmp.Or(t.Name, nameOf(t)), n)
		}
		c.Fixed[name] = t
		start = append(start, name)
		if err = cmp.Or(f.Config.AddToTarget(ctx, t), addServer(c, name, t.URL)); err != nil {
			return nil, nil, err
		}
	}
	return c, start, nil
}

// addServer adds a server whose connections c itself makes. The entry only states its type.
func addServer(c *hosting.Config, name, address string) error {
	entry := map[string]string{"command": "patchbay"}
	if address != "" {
		entry = map[string]string{"url": "http://127.0.0.1"}
	}
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

// targets returns the targets of the command line: URLs, or servers of the configuration files.
func (o *Options) targets(ctx context.Context) (all []*target.Target, err error) {
	for _, word := range o.Args {
		t, err := o.Config.Named(ctx, word, o.Config.AskTrust)
		switch {
		case err != nil:
			return nil, err
		case t.Host != nil:
			return nil, fmt.Errorf("invalid TARGET %q: must be the URL or name of one server; without TARGET the "+
				"console shows all configured servers", word)
		case t.From != "":
			t.Name = word
		}
		all = append(all, t)
	}
	return all, nil
}

// readFiles returns the configuration of the files. The files may contain no servers.
func readFiles(f *cmdutil.Factory) (*hosting.Config, error) {
	c, invalid, err := hosting.ReadConfig(f, "")
	if err != nil {
		return nil, err
	}
	for _, err := range invalid {
		if f.Config.NamesConfig() {
			return nil, err
		}
		f.IO.Err.Printf("patchbay: ignored a configuration file: %s", term.CleanLine(err.Error()))
	}
	return c, nil
}

var unusable = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// nameOf returns a name for a target without a name: the host of a URL, or the last word of a command
// that is not a flag, such as server-everything for npx -y @modelcontextprotocol/server-everything.
func nameOf(t *target.Target) string {
	name := ""
	if u, err := url.Parse(t.URL); err == nil && t.URL != "" {
		name = u.Hostname()
	}
	for _, word := range slices.Backward(t.Command) {
		if name == "" && !strings.HasPrefix(word, "-") {
			name = strings.TrimSuffix(path.Base(strings.ReplaceAll(word, `\`, "/")), path.Ext(word))
		}
	}
	return cmp.Or(strings.Trim(unusable.ReplaceAllString(name, "-"), ".-"), "server")
}
