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
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/launch"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/replicas"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/status"
)

// Options are the flags of "gateway".
type Options struct {
	*cmdutil.Factory
	Addr, Profile string
	Ops           string // the address of the ops listener
	Console       string // the address of the console; empty for that of the settings
	Views         cmdutil.Views
	Capture       string // the recorded traffic; "" uses the settings
	Stdio, NoAuth bool
	Own           bool     // never uses the running gateway
	Args          []string // the target; empty for the configuration

	cmd *cobra.Command
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
	console     *gatewayconfig.Console      // of the command line and the settings; nil for none
	sources     *launch.Sources             // of the console; nil without a console
	replicas    *replicas.Processes         // that share the store; nil without a shared store
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
					"pending%[3]s\", then \"patchbay gateway approve %[2]s%[3]s\" or deny",
					term.Shorten(term.CleanLine(e.Server), term.MaxNameShown), e.Pending, flagsOf(f))
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
			if text != "" || e.State == status.Ready {
				failed[e.Server] = text
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// flagsOf returns the flags by which commands beside this gateway use its configuration and its state.
func flagsOf(f *cmdutil.Factory) (flags string) {
	if f.Flags.Config != "" {
		flags = " --config " + term.ShellWord(f.Flags.Config)
	}
	for _, store := range f.Flags.Store {
		flags += " --store " + term.ShellWord(store)
	}
	return flags
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
func newGateway(ctx context.Context, f *cmdutil.Factory, g *Run, o *gateway.Options) *gateway.Gateway {
	o.InsecureNoAuth, o.Profile, o.Logger = g.NoAuth && !g.Stdio, g.Profile, g.sources.Logger(f.IO.Logger())
	o.Admin = adminOptions(ctx, f, g)
	return gateway.New(g.Host, o)
}
