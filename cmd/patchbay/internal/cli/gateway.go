package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/internal/netx"
)

// A gatewayRun is one run of `patchbay gateway`.
type gatewayRun struct {
	addr, profile string
	stdio, noAuth bool
	config        *hostConfig
	targetWords   []string // of the command line
	host          *host.Host
	route         gateway.Route
}

func (p *program) gatewayCommand() *cobra.Command {
	g := &gatewayRun{}
	cmd := &cobra.Command{
		Use:                   "gateway [TARGET] | gateway -- COMMAND…",
		Short:                 "Serve all configured servers as one, over HTTP or stdio (gateway, aggregator)",
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     p.completeNames(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.prepareGateway(cmd, args, g); err != nil {
				return usage(err)
			}
			return p.runGateway(cmd.Context(), g)
		},
	}
	cmd.Flags().StringVar(&g.addr, "addr", "",
		"`host:port` to listen on; default "+defaultGatewayAddr+" or listen of the settings; port 0 chooses a free one")
	cmd.Flags().BoolVar(&g.stdio, "stdio", false, "serve one client on standard input and output instead of HTTP")
	cmd.Flags().StringVar(&g.profile, "profile", "", "serve the servers and tools of this `profile` of the settings")
	cmd.Flags().BoolVar(&g.noAuth, "insecure-no-auth", false,
		"require no key: every program and user of this machine can use the servers; only on a loopback address")
	return cmd
}

// prepareGateway checks the command line and reads the configuration. It starts nothing.
func (p *program) prepareGateway(cmd *cobra.Command, args []string, g *gatewayRun) (err error) {
	f := &p.flags
	switch {
	case len(f.roots) > 0 || f.answers != "" || f.sampleWith != "":
		return errors.New("--root, --answers and --sample-with do not apply to gateway: the clients answer the servers")
	case g.stdio && (g.addr != "" || g.noAuth):
		return errors.New("--addr and --insecure-no-auth are for HTTP: --stdio opens no port and needs no key")
	case cmd.ArgsLenAtDash() < 0 && len(args) > 1:
		return fmt.Errorf("unexpected argument %q\nusage: %s", args[1], cmd.UseLine())
	}
	p.interactive = false // the gateway asks nothing, and standard input may have messages
	if len(args) > 0 || cmd.ArgsLenAtDash() >= 0 {
		g.config, err = p.gatewayTarget(cmd, args)
		g.targetWords = args
		if cmd.ArgsLenAtDash() >= 0 {
			g.targetWords = append([]string{"--"}, args...)
		}
	} else {
		if len(f.header)+len(f.environment) > 0 || f.directory != "" {
			return errors.New("--header, --env and --cwd are for one TARGET: servers of a configuration have their own")
		}
		g.config, err = p.hostConfig(g.addr)
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
func (p *program) gatewayTarget(cmd *cobra.Command, args []string) (*hostConfig, error) {
	if len(args) > 0 && args[0] == hostName && cmd.ArgsLenAtDash() < 0 {
		return p.hostConfig("")
	}
	t, words, err := p.target(cmd, args)
	switch {
	case err != nil:
		return nil, err
	case len(words) > 0:
		return nil, fmt.Errorf("unexpected argument %q\nusage: %s", words[0], cmd.UseLine())
	}
	p.current.Store(t)
	return oneServer(t)
}

// checkNoAuth refuses addresses that other machines reach.
func checkNoAuth(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || !netx.IsLoopback(host) {
		return fmt.Errorf("invalid address %q with --insecure-no-auth: must be host:port with a loopback address", addr)
	}
	return nil
}

// runGateway serves until ctx or, with --stdio, the client ends it. No process of a server is left.
func (p *program) runGateway(ctx context.Context, g *gatewayRun) (err error) {
	v, err := p.openVault()
	if err != nil {
		return err
	}
	states, err := stateKey(ctx, v)
	if err != nil && p.flags.verbose {
		p.screen.printf("patchbay: the states of questions end with this process: %s", clean(err.Error()))
	}
	if g.host, err = p.openHost(ctx, g.config, states); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.host.Close()) }()
	if g.profile != "" {
		if all := g.host.Profiles(); !slices.Contains(all, g.profile) {
			return usage(unknownName("profile", g.profile, all))
		}
		g.route.Profile = g.profile
	}
	defer p.reportServers(ctx, g)()
	if g.stdio {
		return p.newGateway(g, nil).ServeStdio(ctx, p.stdio(), g.route)
	}
	return p.serveGateway(ctx, g)
}

// serveGateway serves HTTP.
func (p *program) serveGateway(ctx context.Context, g *gatewayRun) error {
	addr := gatewayAddr(g.config.settings, g.addr)
	key := ""
	if !g.noAuth {
		var err error
		if key, err = p.gatewayKey(ctx); err != nil {
			return err
		}
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return &coded{exitFailure, fmt.Errorf("%w (use --addr for another address)", err)}
	}
	defer l.Close()
	if host, _, err := net.SplitHostPort(l.Addr().String()); err == nil && !netx.IsLoopback(host) {
		p.screen.printf("patchbay: warning: other machines reach %s, and keys and results are sent unencrypted: use a "+
			"reverse proxy with TLS", l.Addr())
	}
	var keys []string
	if key != "" {
		keys = []string{key}
	}
	gw := p.newGateway(g, keys)
	p.announceGateway(g, authority(l.Addr()), key)
	return gw.Serve(ctx, l)
}

// reportServers prints the failures of servers, and with -v all changes of their states, until the
// returned function is called. A failure is printed again only after the server was ready.
func (p *program) reportServers(ctx context.Context, g *gatewayRun) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	events := g.host.Events(ctx)
	go func() { // ends with ctx
		defer close(done)
		failed := map[string]string{} // the last failure of each server
		for e := range events {
			text := ""
			if e.Err != nil {
				text = string(e.State) + e.Err.Error()
			}
			if p.flags.verbose || text != "" && failed[e.Server] != text {
				p.printServer(g.config, e.Server, e.State, e.Err)
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
func (p *program) printServer(c *hostConfig, name string, state host.State, err error) {
	reason := ""
	if err != nil {
		reason = ": " + shorten(cleanLine(c.masked(eventReason(err))), maxEventShown)
	}
	p.screen.printf("patchbay: server %s: %s%s", shorten(cleanLine(name), maxNameShown), state, reason)
}

// eventReason returns the reason of an event, without the server and the request, which the line names or
// does not concern.
func eventReason(err error) string {
	if e, ok := errors.AsType[*host.Error](err); ok {
		err = e.Err
	}
	return err.Error()
}

// maxEventShown bounds the error of a server in a line, in characters.
const maxEventShown = 500

// stdioCommand returns the command line that serves the same on stdio, in any directory.
func (p *program) stdioCommand(g *gatewayRun) (command string, args []string) {
	words := []string{"gateway", "--stdio"}
	if p.flags.config != "" {
		path, err := filepath.Abs(p.flags.config)
		if err != nil {
			path = p.flags.config
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

// serverNames returns names of servers for messages.
func serverNames(all []string) string {
	const most = 20
	var names []string
	for _, name := range all[:min(len(all), most)] {
		names = append(names, shorten(cleanLine(name), maxNameShown))
	}
	text := strings.Join(names, ", ")
	if len(all) > most {
		text += fmt.Sprintf(" and %d others", len(all)-most)
	}
	return text
}
