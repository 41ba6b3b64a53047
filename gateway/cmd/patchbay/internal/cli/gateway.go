package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/internal/minheap"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// A gatewayRun is one run of `patchbay gateway`.
type gatewayRun struct {
	addr, profile string
	ops           string // the address of the ops listener
	stdio, noAuth bool
	config        *hostConfig
	targetWords   []string // of the command line
	host          *host.Host
	route         gateway.Route
	url           string // where HTTP is served
	stop          func() // ends the run
	reloading     sync.Mutex
	mask          *configMask                 // of the admin API
	inForce       atomic.Pointer[config.File] // the last file of a reload; nil before one
	rejected      atomic.Pointer[string]      // why the files are not in force; nil if they are
	own           bool                        // never uses the running gateway
	attached      *attachment                 // to the running gateway; nil without one
	observed      *observation                // of requests
}

func gatewayCommand(f *factory) *cobra.Command {
	g := &gatewayRun{}
	cmd := &cobra.Command{
		Use:                   "gateway [TARGET] | gateway -- COMMAND…",
		Short:                 "Serve all configured servers as one, over HTTP or stdio (gateway, aggregator)",
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeNames(f, nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.IO.useLogFormat()
			if err := prepareGateway(f, cmd, args, g); err != nil {
				return usage(err)
			}
			if g.attached != nil {
				return serveAttached(cmd.Context(), f, g.attached)
			}
			return runGateway(cmd.Context(), f, g)
		},
	}
	cmd.Flags().StringVar(&g.addr, "addr", "",
		"listen at this `host:port`; default "+defaultGatewayAddr)
	cmd.Flags().BoolVar(&g.stdio, "stdio", false, "serve one client on stdio instead of HTTP")
	cmd.Flags().BoolVar(&g.own, "own", false, "with --stdio, use no running gateway")
	cmd.Flags().StringVar(&g.profile, "profile", "", "serve only this `profile` of the settings")
	cmd.Flags().BoolVar(&g.noAuth, "insecure-no-auth", false,
		"require no key of any program of this machine")
	cmd.Flags().StringVar(&g.ops, "ops", "",
		"serve metrics and health at this `host:port`")
	addLogFormat(f, cmd)
	cmd.AddCommand(pinsCommand(f), auditCommand(f), keysCommand(f), secretCommand(f))
	cmd.AddCommand(approvalCommands(f)...)
	cmd.AddCommand(configCommands(f)...)
	cmd.AddCommand(controlCommands(f)...)
	cmd.AddCommand(gatewayLoginCommand(f), gatewayLogoutCommand(f))
	return cmd
}

// prepareGateway checks the command line and reads the configuration. It starts nothing.
func prepareGateway(p *factory, cmd *cobra.Command, args []string, g *gatewayRun) (err error) {
	f := p.Flags
	switch {
	case len(f.roots) > 0 || f.answers != "" || f.sampleWith != "":
		return errors.New("--root, --answers and --sample-with do not apply to gateway: the clients answer the servers")
	case g.stdio && (g.addr != "" || g.noAuth):
		return errors.New("--addr and --insecure-no-auth are for HTTP: --stdio opens no port and needs no key")
	case g.stdio && g.ops != "":
		return errOpsStdio
	case g.own && !g.stdio:
		return errors.New("--own is for --stdio: a gateway over HTTP serves in its own process")
	case cmd.ArgsLenAtDash() < 0 && len(args) > 1:
		return fmt.Errorf("unexpected argument %q\nusage: %s", args[1], cmd.UseLine())
	}
	p.IO.Interactive = false // the gateway asks nothing, and standard input may have messages
	if attachStdio(p, cmd, args, g); g.attached != nil {
		return nil
	}
	if len(args) > 0 || cmd.ArgsLenAtDash() >= 0 {
		g.config, err = gatewayTarget(p, cmd, args)
		g.targetWords = args
		if cmd.ArgsLenAtDash() >= 0 {
			g.targetWords = append([]string{"--"}, args...)
		}
	} else {
		if len(f.header)+len(f.environment) > 0 || f.directory != "" {
			return errors.New("--header, --env and --cwd are for one TARGET: servers of a configuration have their own")
		}
		g.config, err = readHostConfig(p, g.addr)
	}
	if err != nil {
		return err
	}
	if g.noAuth {
		return checkNoAuth(gatewayAddr(g.config.settings, g.addr))
	}
	return nil
}

// gatewayTarget returns the configuration of the target of the command line.
func gatewayTarget(f *factory, cmd *cobra.Command, args []string) (*hostConfig, error) {
	if len(args) > 0 && args[0] == hostName && cmd.ArgsLenAtDash() < 0 {
		return readHostConfig(f, "")
	}
	t, words, err := parseTarget(f, cmd, args)
	_, unknown := errors.AsType[*unknownServerError](err)
	switch {
	case unknown && slices.Contains([]string{"start", "run", "serve", "up"}, args[0]):
		return nil, fmt.Errorf("unknown server %q: \"patchbay gateway\" alone starts the gateway", args[0])
	case err != nil:
		return nil, err
	case len(words) > 0:
		return nil, fmt.Errorf("unexpected argument %q\nusage: %s", words[0], cmd.UseLine())
	}
	f.Client.current.Store(t)
	return oneServer(t)
}

// isLoopbackAddr reports whether only this machine reaches an address.
func isLoopbackAddr(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && netx.IsLocalHost(host)
}

// checkNoAuth refuses addresses that other machines reach.
func checkNoAuth(addr string) error {
	if !isLoopbackAddr(addr) {
		return fmt.Errorf("invalid address %q with --insecure-no-auth: must be host:port with a loopback address", addr)
	}
	return nil
}

// recordTimeout is how long a gateway on stdio waits for lists after its client has gone, also after SIGTERM:
// clients send SIGTERM 2 to 5 seconds after they have closed standard input, and kill the process after as long.
const recordTimeout = 2 * time.Second

// runGateway serves until ctx or, with --stdio, the client ends it. No process of a server is left.
func runGateway(ctx context.Context, f *factory, g *gatewayRun) (err error) {
	ctx, g.stop = context.WithCancel(ctx)
	defer g.stop()
	if !g.stdio {
		minheap.Set()
		g.config.events = gateway.NewEventLog()
	}
	if err := observeGateway(ctx, f, g); err != nil {
		return err
	}
	defer g.observed.end()
	v, err := f.Vault.openVault()
	if err != nil {
		return err
	}
	states, err := stateKey(ctx, v)
	if err != nil && f.Flags.verbose {
		f.IO.Err.printf("patchbay: the states of questions end with this process: %s", clean(err.Error()))
	}
	if g.config.fixed == nil {
		if g.config.pins, err = gatewayState(); err != nil {
			return err
		}
	}
	if g.host, err = openHost(ctx, f, g.config, states); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.host.Close()) }()
	if g.profile != "" {
		if all := g.host.Profiles(); !slices.Contains(all, g.profile) {
			return usage(unknownName("profile", g.profile, all))
		}
		g.route.Profile = g.profile
	}
	defer context.AfterFunc(ctx, g.host.EndApprovals)()
	warnMisspelt(f, g.config)
	defer reportServers(ctx, f, g)()
	defer followConfig(ctx, f, g)()
	if g.stdio {
		if err := g.observed.observeStats(g.host); err != nil {
			return err
		}
		err := newGateway(f, g, &gateway.Options{}).ServeStdio(ctx, stdio(f), g.route)
		waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
		defer cancel()
		g.host.WaitLists(waiting)
		return err
	}
	return serveGateway(ctx, f, g)
}

// reportServers prints the failures of servers, and with -v all changes of their states, until the
// returned function is called. A failure is printed again only after the server was ready.
func reportServers(ctx context.Context, f *factory, g *gatewayRun) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	events := g.host.Events(ctx)
	go func() { // ends with ctx
		defer close(done)
		failed := map[string]string{} // the last failure of each server
		for e := range events {
			switch {
			case e.Decided:
				continue
			case e.Pending != "":
				f.IO.Err.printf("patchbay: a request for server %s waits for approval: see \"patchbay gateway "+
					"pending\", then \"patchbay gateway approve %s\" or deny",
					shorten(cleanLine(e.Server), maxNameShown), e.Pending)
				continue
			case e.IsReload():
				reportReload(f, g, e)
				continue
			}
			text := ""
			if e.Err != nil {
				text = string(e.State) + e.Err.Error()
			}
			if f.Flags.verbose || text != "" && failed[e.Server] != text {
				printServer(f, g.config, e.Server, e.State, e.Err)
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

// printServer prints the state of a server, and the reason of a failure.
func printServer(f *factory, c *hostConfig, name string, state host.State, err error) {
	reason, level := "", slog.LevelInfo
	if err != nil {
		reason = ": " + shorten(cleanLine(c.masked(eventReason(err))), maxEventShown) + codeSuffix(state, err)
		level = slog.LevelWarn
	}
	shown := cmp.Or(shorten(cleanLine(name), maxNameShown), `""`)
	f.IO.Err.event(level, fmt.Sprintf("patchbay: server %s: %s%s", shown, state, reason),
		slog.String("server", shown), slog.String("state", string(state)))
}

// eventReason returns the reason of an event, without the server and the request, which the line names or
// does not concern.
func eventReason(err error) string {
	if e, ok := errors.AsType[*host.Error](err); ok {
		err = e.Err
	}
	return err.Error()
}

// codeSuffix returns the code of an error, which the documentation has a page for, unless the state is it.
func codeSuffix(state host.State, err error) string {
	e, ok := errors.AsType[*host.Error](err)
	if !ok || string(e.Code) == string(state) {
		return ""
	}
	return " (code " + string(e.Code) + ")"
}

// maxEventShown bounds the error of a server in a line, in characters.
const maxEventShown = 500

// stdioCommand returns the command line that serves the same on stdio, in any directory.
func stdioCommand(f *factory, g *gatewayRun) (command string, args []string) {
	words := []string{"gateway", "--stdio"}
	if f.Flags.config != "" {
		path, err := filepath.Abs(f.Flags.config)
		if err != nil {
			path = f.Flags.config
		}
		words = append(words, "--config", path)
	}
	if g.profile != "" {
		words = append(words, "--profile", g.profile)
	}
	return selfCommand(append(words, g.targetWords...)...)
}

// servers returns the names of the servers that a gateway serves.
func (g *gatewayRun) servers() []string {
	names := []string{}
	for _, u := range g.host.Upstreams() {
		if g.host.InProfile(g.profile, u.Name()) {
			names = append(names, u.Name())
		}
	}
	return names
}
