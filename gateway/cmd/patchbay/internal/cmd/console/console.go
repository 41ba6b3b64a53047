// Package console opens the web console for servers.
package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/follow"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/launch"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/values"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Options are the flags of "console".
type Options struct {
	*cmdutil.Factory
	Addr      string
	Views     cmdutil.Views
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
	o.Views.AddFlags(o.cmd, false)
	o.cmd.Flags().StringVar(&o.Checks, "checks", defaultChecks, "save calls to this `file`, which \"patchbay check\" "+
		"runs")
	o.cmd.Flags().BoolVar(&o.NoBrowser, "no-browser", false, "print the URL, and do not open a browser")
	return o.cmd
}

const (
	// defaultChecks is the file for saved calls. The page names its whole path before it creates it.
	defaultChecks   = "patchbay-checks.json"
	demoName        = "demo"          // of the demo server beside the servers of the configuration
	shutdownTimeout = 5 * time.Second // bounds the wait for requests and tasks at the end
)

// open serves the console until ctx ends. No process of a server is left.
func open(ctx context.Context, o *Options) (err error) {
	f := o.Factory
	if err := o.Views.Check(true); err != nil {
		return exit.UsageError(err)
	}
	if o.cmd.ArgsLenAtDash() < 0 && slices.Equal(o.Args, []string{target.RunningName}) {
		return openRunning(ctx, o)
	}
	c, start, err := o.config(ctx)
	if err != nil {
		return exit.UsageError(err)
	}
	if c.Fixed == nil {
		d := demo.New(build.Version(), &demo.Options{Logger: f.IO.Logger()})
		defer closeDemo(d)
		if start, err = addDemo(c, d); err != nil {
			return err
		}
		if c.Pins, err = c.State(ctx, f); err != nil {
			return err
		}
	}
	c.Events, c.Capture = gateway.NewEventLog(), capture.New(nil) // the console keeps the bodies
	sources := launch.Collect(c)
	sources.AnswerAll(c) // the host has no other callers
	if err := sources.AnswerWith(ctx, f.Flags); err != nil {
		return err
	}
	h, err := hosting.OpenHost(ctx, f, c, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	gw, reload := newGateway(f, c, h)
	defer shutdown(gw)
	opts := &launch.Options{Factory: f, Config: c, Gateway: gw, Addr: o.Addr, Views: o.Views,
		Mask: h.Operator().Mask, Sources: sources}
	sources.SetMask(opts.Mask)
	if opts.Checks, err = filepath.Abs(o.Checks); err != nil {
		return err
	}
	if len(c.Fixed) == 1 {
		opts.Home = "/explore?" + url.Values{"server": start}.Encode()
	}
	web, err := launch.New(opts)
	if err != nil {
		return err
	}
	hosting.WarnMisspelt(f, c)
	defer follow.Follow(ctx, f, c, func(ctx context.Context) *host.Diff {
		d, _ := reload(ctx) // the error was printed
		return d
	})()
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	wait.Go(func() { _ = h.Start(ctx, start...) }) // the overview shows errors; ends with ctx
	wait.Go(func() { launch.Browse(ctx, f, web, !o.NoBrowser) })
	return web.Serve(ctx)
}

// newGateway returns the gateway whose admin API the console uses, and a function that reads the
// files again.
func newGateway(f *cmdutil.Factory, c *hosting.Config, h *host.Host) (
	gw *gateway.Gateway, reload func(ctx context.Context) (*host.Diff, error),
) {
	var reloading sync.Mutex
	var inForce atomic.Pointer[config.File]
	inForce.Store(c.File)
	reload = func(ctx context.Context) (*host.Diff, error) {
		reloading.Lock()
		defer reloading.Unlock()
		d, now, _, err := follow.Reload(ctx, f, c, h, "")
		if err == nil {
			inForce.Store(now)
		}
		follow.PrintReload(f, c, "console", d, err)
		return d, err
	}
	admin := gateway.AdminOptions{Version: build.Version(), Events: c.Events, Reload: reload, Wire: c.Capture.Wire,
		ServerConfig: func(_ context.Context, server string) ([]gateway.ServerValue, error) {
			return values.Of(c, inForce.Load(), server)
		}}
	if c.Fixed == nil {
		admin.Config = func(context.Context) ([]gateway.ConfigFile, error) {
			return values.Files(c, f.Flags.Config), nil
		}
	}
	return gateway.New(h, &gateway.Options{Logger: f.IO.Logger(), Admin: admin}), reload
}

// addDemo adds the demo server to a configuration, and to each configuration that is read later. It
// returns the name of the server.
func addDemo(c *hosting.Config, d *demo.Demo) (names []string, err error) {
	name := demoName
	for n := 2; c.Entries[name] != nil; n++ {
		name = fmt.Sprintf("%s-%d", demoName, n)
	}
	c.InProcess = map[string]func() mcp.Transport{name: func() mcp.Transport { return mcp.InMemory(d.Server) }}
	// The version identifies the server: the demo of another version has other definitions.
	entry := map[string]any{"command": "patchbay", "args": []string{"serve", build.Version()}}
	c.Extend = func(next *hosting.Config) error {
		if next.Entries[name] != nil {
			return fmt.Errorf("the new server %q has the name of the demo server: restart the console", name)
		}
		return launch.AddServer(next, name, entry)
	}
	return []string{name}, c.Extend(c)
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
		if err = cmp.Or(f.Config.AddToTarget(ctx, t), launch.AddServer(c, name, typeOf(t))); err != nil {
			return nil, nil, err
		}
	}
	return c, start, nil
}

// typeOf returns an entry of the type of a target.
func typeOf(t *target.Target) map[string]any {
	if t.URL != "" {
		return map[string]any{"url": "http://127.0.0.1"}
	}
	return map[string]any{"command": "patchbay"}
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

// unspecific matches names of files and folders that do not name a server.
var unspecific = regexp.MustCompile(`^(index|main|cli|__main__|dist|build|out|src|lib|bin)$`)

// nameOf returns a name for a target without a name: the host of a URL, or the last word of a
// command that is not a flag, such as server-everything for npx -y
// @modelcontextprotocol/server-everything, and weather for node weather/dist/index.js.
func nameOf(t *target.Target) string {
	name := ""
	if u, err := url.Parse(t.URL); err == nil && t.URL != "" {
		name = u.Hostname()
	}
	for _, word := range slices.Backward(t.Command) {
		if name == "" && !strings.HasPrefix(word, "-") {
			word = strings.ReplaceAll(word, `\`, "/")
			name = strings.TrimSuffix(path.Base(word), path.Ext(word))
			for dir, _ := filepath.Abs(word); unspecific.MatchString(name) && dir != "/"; name = path.Base(dir) {
				dir = path.Dir(dir)
			}
		}
	}
	return cmp.Or(strings.Trim(unusable.ReplaceAllString(name, "-"), ".-"), "server")
}
