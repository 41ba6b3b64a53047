package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/follow"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/launch"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/gatewayclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/gateway/internal/minheap"
	"github.com/patchbay-mcp/patchbay/host"
)

// NewCmdRun returns the command "gateway" without its subcommands.
func NewCmdRun(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{Factory: f}
	o.cmd = &cobra.Command{
		Use:                   "gateway [TARGET] | gateway -- COMMAND…",
		Short:                 "Serve all configured servers as one, over HTTP or stdio (gateway, aggregator)",
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cmdutil.CompleteNames(f, nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Args = args
			return cmdutil.Or(run, start)(cmd.Context(), o)
		},
	}
	set := o.cmd.Flags()
	set.StringVar(&o.Addr, "addr", "", "listen at this `host:port`; default "+hosting.DefaultGatewayAddr)
	set.BoolVar(&o.Stdio, "stdio", false, "serve one client on stdio instead of HTTP")
	set.BoolVar(&o.Own, "own", false, "with --stdio, never attach to a gateway")
	set.StringVar(&o.Profile, "profile", "", "serve only this `profile` of the settings")
	set.BoolVar(&o.NoAuth, "insecure-no-auth", false, "accept local programs without a key")
	set.StringVar(&o.Ops, "ops", "", "serve metrics and health at this `host:port`")
	set.VarPF(&flags.Address{Value: &o.Console, Default: console.DefaultAddr}, "console", "",
		"serve the web console, at this `host:port`").NoOptDefVal = "true"
	set.StringVar(&o.Capture, "capture", "", "record traffic: `off`, summaries or always")
	_ = set.MarkHidden("capture") // the guide of the console explains it; the help must fit a screen
	o.Views.AddFlags(o.cmd, true)
	cmdutil.AddLogFormat(f, o.cmd)
	return o.cmd
}

func start(ctx context.Context, o *Options) error {
	o.IO.UseLogFormat()
	g := &Run{Options: *o}
	if err := prepare(o.Factory, g); err != nil {
		return exit.UsageError(err)
	}
	if g.attached != nil {
		return serveAttached(ctx, o.Factory, g.attached)
	}
	return runGateway(ctx, o.Factory, g)
}

// prepare checks the command line and reads the configuration. It does not start servers.
func prepare(p *cmdutil.Factory, g *Run) (err error) {
	f, cmd, args := p.Flags, g.cmd, g.Args
	switch {
	case len(f.Roots) > 0 || f.Answers != "":
		return errors.New("--root and --answers do not apply to gateway: the clients answer the servers")
	case g.Stdio && (g.Addr != "" || g.NoAuth):
		return errors.New("--addr and --insecure-no-auth are for HTTP: --stdio opens no port and needs no key")
	case g.Stdio && g.Ops != "":
		return observe.ErrOpsStdio
	case g.Stdio && (g.Console != "" || f.SampleWith != ""):
		return errors.New("--console and --sample-with are for HTTP: use \"patchbay console\" beside a gateway on " +
			"stdio")
	case g.Own && !g.Stdio:
		return errors.New("--own is for --stdio: a gateway over HTTP serves in its own process")
	case cmd.ArgsLenAtDash() < 0 && len(args) > 1:
		return fmt.Errorf("unexpected argument %q\nusage: %s", args[1], cmd.UseLine())
	}
	p.IO.Interactive = false // the gateway must not prompt: standard input may carry messages
	if attachStdio(p, g); g.attached != nil {
		return nil
	}
	if len(args) > 0 || cmd.ArgsLenAtDash() >= 0 {
		g.Config, err = gatewayTarget(p, cmd, args)
		g.targetWords = args
		if cmd.ArgsLenAtDash() >= 0 {
			g.targetWords = append([]string{"--"}, args...)
		}
	} else {
		if len(f.Header)+len(f.Environment) > 0 || f.Directory != "" {
			return errors.New("--header, --env and --cwd are for one TARGET: servers of a configuration have their own")
		}
		g.Config, err = hosting.ReadHostConfig(p, g.Addr)
	}
	if err != nil {
		return err
	}
	if !g.Stdio { // several gateways on stdio may have one configuration
		g.console, g.Config.Capture, err = launch.Settings(g.Config.File, g.Console, g.Capture, &g.Views)
		if err != nil {
			return err
		}
	}
	if f.SampleWith != "" && g.console == nil {
		return errors.New("--sample-with is for the runs of a console: add --console, or let the clients answer")
	}
	if g.NoAuth {
		return cmdutil.CheckNoAuth(hosting.GatewayAddr(g.Config.Settings, g.Addr))
	}
	return nil
}

// runGateway serves until ctx or, with --stdio, the client ends it. No process of a server is left.
func runGateway(ctx context.Context, f *cmdutil.Factory, g *Run) (err error) {
	ctx, g.stop = context.WithCancel(ctx)
	defer g.stop()
	if !g.Stdio {
		minheap.Set()
		g.Config.Events = gateway.NewEventLog()
	}
	if g.console != nil {
		g.sources = launch.Collect(g.Config) // clients answer the other questions of servers
		if err := g.sources.AnswerWith(ctx, f.Flags); err != nil {
			return err
		}
	}
	if err := observeGateway(ctx, f, g); err != nil {
		return err
	}
	defer g.observed.End()
	v, err := f.Vault.Open()
	if err != nil {
		return err
	}
	states, err := stateKey(ctx, v)
	if err != nil && f.Flags.Verbose {
		f.IO.Err.Printf("patchbay: the states of questions end with this process: %s", term.Clean(err.Error()))
	}
	if err := g.Config.OpenStores(ctx, f); err != nil {
		return err
	}
	if shared := g.Config.Stores.StateKeys(); shared != nil {
		states = shared
	}
	if g.Config.Fixed == nil {
		if g.Config.Pins, err = g.Config.Stores.State(); err != nil {
			return err
		}
	}
	endCluster, err := useCluster(ctx, f, g)
	if err != nil {
		return err
	}
	defer endCluster()
	if g.Host, err = hosting.OpenHost(ctx, f, g.Config, states); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Host.Close()) }()
	g.sources.SetMask(g.Host.Operator().Mask)
	if g.Profile != "" {
		if all := g.Host.Operator().Profiles(); !slices.Contains(all, g.Profile) {
			return exit.UsageError(term.UnknownName("profile", g.Profile, all))
		}
		g.route.Profile = g.Profile
	}
	defer context.AfterFunc(ctx, g.Host.Operator().EndApprovals)()
	hosting.WarnMisspelt(f, g.Config)
	defer ReportServers(ctx, f, g)()
	reload := func(ctx context.Context) *host.Diff { return reloadConfig(ctx, f, g) }
	defer follow.Follow(ctx, f, g.Config, reload)()
	if g.Stdio {
		if err := g.observed.ObserveStats(g.Host); err != nil {
			return err
		}
		err := newGateway(ctx, f, g, &gateway.Options{}).ServeStdio(ctx, cmdutil.Stdio(f), g.route)
		waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
		defer cancel()
		g.Host.Operator().WaitLists(waiting)
		return err
	}
	return serveGateway(ctx, f, g)
}

// useCluster connects a gateway over HTTP to the other gateways of its settings. A gateway on stdio is a process of
// its client, of which several may have the same settings.
func useCluster(ctx context.Context, f *cmdutil.Factory, g *Run) (end func(), err error) {
	settings, err := gatewayconfig.Read(g.Config.File)
	if err != nil {
		return nil, exit.UsageError(err)
	}
	if g.Stdio {
		settings.Cluster = nil
	}
	return g.Config.UseCluster(ctx, settings.Cluster, f.IO.Logger())
}

// attachStdio attaches a client on standard input and output to the running gateway. g.attached
// remains nil if no gateway runs or the gateway refuses the client: then this process must serve
// it.
func attachStdio(f *cmdutil.Factory, g *Run) {
	if !g.Stdio || g.Own || len(g.Args) > 0 || g.cmd.ArgsLenAtDash() >= 0 {
		return
	}
	a, err := hosting.Attach(g.cmd.Context(), f, gateway.Route{Profile: g.Profile})
	switch {
	case err == nil:
		g.attached = a
	case !gatewayclient.IsNoGateway(err):
		f.IO.Err.Printf("patchbay: does not use the running gateway: %s", term.CleanLine(err.Error()))
	}
}

var errGatewayEnded = errors.New("the gateway that served this client has ended: connect again, which serves " +

	"the client in a process of its own while no gateway is running")

// serveAttached passes messages between the client and the gateway until a side ends.
func serveAttached(ctx context.Context, f *cmdutil.Factory, a *hosting.Attachment) error {
	defer func() { _ = a.Close() }() // fails if the gateway closed the connection first
	ended, received := make(chan struct{}), make(chan error, 1)
	go func() { // ends with standard input, or the process
		_, _ = io.Copy(a.UnixConn, f.IO.In.R) // fails if the gateway has ended, which the read reports too
		close(ended)
		_ = a.CloseWrite()
	}()
	go func() { // ends with the connection
		_, err := io.Copy(f.IO.Out.W, a)
		received <- err
	}()
	releaseCode()
	select {
	case err := <-received: // if the client ended first, this comes after the last response
		select {
		case <-ended:
			return nil
		default:
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("pass messages to the client: %w", err)
		}
		return &exit.Error{Code: exit.Unreachable, Err: errGatewayEnded}
	case <-ctx.Done():
		return nil
	}
}
