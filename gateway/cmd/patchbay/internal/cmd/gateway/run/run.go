// Package run runs the gateway.
package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/internal/minheap"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// Options are the flags of "gateway".
type Options struct {
	*cmdutil.Factory
	Addr, Profile string
	Ops           string // the address of the ops listener
	Stdio, NoAuth bool
	Own           bool     // never uses the running gateway
	Args          []string // the target; empty for the configuration

	cmd *cobra.Command
}

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
	flags := o.cmd.Flags()
	flags.StringVar(&o.Addr, "addr", "", "listen at this `host:port`; default "+hosting.DefaultGatewayAddr)
	flags.BoolVar(&o.Stdio, "stdio", false, "serve one client on stdio instead of HTTP")
	flags.BoolVar(&o.Own, "own", false, "with --stdio, never attach to a gateway")
	flags.StringVar(&o.Profile, "profile", "", "serve only this `profile` of the settings")
	flags.BoolVar(&o.NoAuth, "insecure-no-auth", false, "accept local programs without a key")
	flags.StringVar(&o.Ops, "ops", "", "serve metrics and health at this `host:port`")
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

// A Run holds the state of a `patchbay gateway` process.
type Run struct {
	Options
	Config      *hosting.Config
	targetWords []string // of the command line
	Host        *host.Host
	route       gateway.Route
	url         string // where HTTP is served
	stop        func() // ends the run
	reloading   sync.Mutex
	mask        *configMask                 // of the admin API
	inForce     atomic.Pointer[config.File] // the file of the last reload; nil before the first reload
	rejected    atomic.Pointer[string]      // why the files are not in force; nil if they are
	attached    *hosting.Attachment         // to the running gateway; nil if this process serves the client
	observed    *observe.Observation        // of requests
}

// prepare checks the command line and reads the configuration. It does not start servers.
func prepare(p *cmdutil.Factory, g *Run) (err error) {
	f, cmd, args := p.Flags, g.cmd, g.Args
	switch {
	case len(f.Roots) > 0 || f.Answers != "" || f.SampleWith != "":
		return errors.New("--root, --answers and --sample-with do not apply to gateway: the clients answer the servers")
	case g.Stdio && (g.Addr != "" || g.NoAuth):
		return errors.New("--addr and --insecure-no-auth are for HTTP: --stdio opens no port and needs no key")
	case g.Stdio && g.Ops != "":
		return observe.ErrOpsStdio
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
	if g.NoAuth {
		return cmdutil.CheckNoAuth(hosting.GatewayAddr(g.Config.Settings, g.Addr))
	}
	return nil
}

// gatewayTarget returns the configuration of the target of the command line.
func gatewayTarget(f *cmdutil.Factory, cmd *cobra.Command, args []string) (*hosting.Config, error) {
	if len(args) > 0 && args[0] == target.HostName && cmd.ArgsLenAtDash() < 0 {
		return hosting.ReadHostConfig(f, "")
	}
	t, words, err := cmdutil.ParseTarget(f, cmd, args)
	_, unknown := errors.AsType[*target.UnknownServerError](err)
	switch {
	case unknown && slices.Contains([]string{"start", "run", "serve", "up"}, args[0]):
		return nil, fmt.Errorf("unknown server %q: \"patchbay gateway\" alone starts the gateway", args[0])
	case err != nil:
		return nil, err
	case len(words) > 0:
		return nil, fmt.Errorf("unexpected argument %q\nusage: %s", words[0], cmd.UseLine())
	}
	f.Client.Current.Store(t)
	return hosting.OneServer(t)
}

// recordTimeout limits how long a gateway on stdio waits for lists after its client ended, also
// after SIGTERM. Clients send SIGTERM 2 to 5 seconds after closing standard input, and kill the
// process after the same time again.
const recordTimeout = 2 * time.Second

// runGateway serves until ctx or, with --stdio, the client ends it. No process of a server is left.
func runGateway(ctx context.Context, f *cmdutil.Factory, g *Run) (err error) {
	ctx, g.stop = context.WithCancel(ctx)
	defer g.stop()
	if !g.Stdio {
		minheap.Set()
		g.Config.Events = gateway.NewEventLog()
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
	if g.Config.Fixed == nil {
		if g.Config.Pins, err = hosting.GatewayState(); err != nil {
			return err
		}
	}
	if g.Host, err = hosting.OpenHost(ctx, f, g.Config, states); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Host.Close()) }()
	if g.Profile != "" {
		if all := g.Host.Operator().Profiles(); !slices.Contains(all, g.Profile) {
			return exit.UsageError(term.UnknownName("profile", g.Profile, all))
		}
		g.route.Profile = g.Profile
	}
	defer context.AfterFunc(ctx, g.Host.Operator().EndApprovals)()
	hosting.WarnMisspelt(f, g.Config)
	defer ReportServers(ctx, f, g)()
	defer followConfig(ctx, f, g)()
	if g.Stdio {
		if err := g.observed.ObserveStats(g.Host); err != nil {
			return err
		}
		err := newGateway(f, g, &gateway.Options{}).ServeStdio(ctx, cmdutil.Stdio(f), g.route)
		waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
		defer cancel()
		g.Host.Operator().WaitLists(waiting)
		return err
	}
	return serveGateway(ctx, f, g)
}

// ReportServers prints the failures of servers, and with -v all changes of their states, until the
// returned function is called. A failure is printed again only after the server was ready.
func ReportServers(ctx context.Context, f *cmdutil.Factory, g *Run) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	events := g.Host.Events(ctx)
	go func() { // ends with ctx
		defer close(done)
		failed := map[string]string{} // the last failure of each server
		for e := range events {
			switch {
			case e.Decided:
				continue
			case e.Pending != "":
				f.IO.Err.Printf("patchbay: a request for server %s waits for approval: see \"patchbay gateway "+
					"pending\", then \"patchbay gateway approve %s\" or deny",
					term.Shorten(term.CleanLine(e.Server), term.MaxNameShown), e.Pending)
				continue
			case e.IsReload():
				reportReload(f, g, e)
				continue
			}
			text := ""
			if e.Err != nil {
				text = string(e.State) + e.Err.Error()
			}
			if f.Flags.Verbose || text != "" && failed[e.Server] != text {
				hosting.PrintServer(f, g.Config, e.Server, e.State, e.Err)
			}
			if text != "" || e.State == host.StateReady {
				failed[e.Server] = text
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// StdioCommand returns the command line that serves the same on stdio, in any directory.
func StdioCommand(f *cmdutil.Factory, g *Run) (command string, args []string) {
	words := []string{"gateway", "--stdio"}
	if f.Flags.Config != "" {
		path, err := filepath.Abs(f.Flags.Config)
		if err != nil {
			path = f.Flags.Config
		}
		words = append(words, "--config", path)
	}
	if g.Profile != "" {
		words = append(words, "--profile", g.Profile)
	}
	return userdir.SelfCommand(append(words, g.targetWords...)...)
}

// servers returns the names of the servers that a gateway serves.
func (g *Run) servers() []string {
	names := []string{}
	for _, u := range g.Host.Upstreams() {
		if g.Host.Operator().HasServer(g.Profile, u.Name()) {
			names = append(names, u.Name())
		}
	}
	return names
}

// newGateway returns a gateway for a host, limited to the profile that the command line names.
func newGateway(f *cmdutil.Factory, g *Run, o *gateway.Options) *gateway.Gateway {
	o.InsecureNoAuth, o.Profile, o.Logger = g.NoAuth && !g.Stdio, g.Profile, f.IO.Logger()
	o.Admin = adminOptions(f, g)
	return gateway.New(g.Host, o)
}
