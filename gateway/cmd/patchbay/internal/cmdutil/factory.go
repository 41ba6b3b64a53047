package cmdutil

import (
	"context"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/network"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// A Factory contains what commands share. Each run of patchbay, and each command of a shell, uses its own.
type Factory struct {
	IO      *term.Streams   // standard input, output and error
	Flags   *flags.Flags    // the flags of all commands
	Ask     *question.Asker // answers questions of servers
	Net     *network.Client // makes HTTP requests
	Vault   *secrets.Store  // stores logins and secrets
	Config  *target.Finder  // finds servers in configuration files
	Login   *login.Logins   // authorizes requests
	Observe *observe.Watch  // exports traces and metrics
	Client  *connect.Dialer // connects to servers

	Args []string // the command line
	verb string   // the name of the command, such as "patchbay call"

	AtEnd  []func() error // called when the program ends
	Audits []*audit.Log   // closed after atEnd
	Locks  []*os.File     // of sockets; released last

	Search     []string // of --search
	NoAuth     bool     // HTTP is served without a key
	Failed     func()   // prints the failed servers of @host; nil for other targets
	VerifyMost int64    // bytes received for verifying skills at most; 0 for the default

	Shell    commandShell                      // runs the command; nil outside a shell
	Hosts    hosts                             // opens @host and @
	Commands func(f *Factory) []*cobra.Command // returns all commands and help topics
}

// hosts opens the targets that stand for several servers: @host, all servers of the configuration,
// and @, the running gateway.
type hosts interface {
	// Named returns the target of @host or @.
	Named(ctx context.Context, f *Factory, name string) (*target.Target, error)
	// Names completes the names of these targets.
	Names(f *Factory, typed string) []string
}

// A commandShell runs commands about a single server.
type commandShell interface {
	// Server returns the target of all commands.
	Server() *target.Target
	// CompleteNames completes the arguments of a command.
	CompleteNames(ctx context.Context, verb string, names Lister, words []string) []string
	// NotedTasks completes the ids of tasks.
	NotedTasks(words []string, typed string) []string
}

// New returns a factory for streams and flags. hosts may be nil.
func New(io *term.Streams, fl *flags.Flags, h hosts) *Factory {
	io.Flags = fl
	f := &Factory{IO: io, Flags: fl, Hosts: h, Ask: question.NewAsker(io, fl), Net: &network.Client{IO: io,
		Flags: fl}, Vault: &secrets.Store{IO: io},
		Observe: &observe.Watch{IO: io}}
	f.Login = &login.Logins{IO: io, Flags: fl, Ask: f.Ask, Net: f.Net, Vault: f.Vault,
		Headless: login.IsHeadless(runtime.GOOS, os.Getenv)}
	f.Config = &target.Finder{IO: io, Flags: fl, Ask: f.Ask, Net: f.Net, Vault: f.Vault}
	f.Client = &connect.Dialer{IO: io, Flags: fl, Ask: f.Ask, Net: f.Net, Login: f.Login, Observe: f.Observe,
		CommandStderr: &connect.Tail{}, TaskStarted: func(*tasks.Handle) {}}
	f.Config.HostNamed = func(ctx context.Context, name string) (*target.Target, error) { return h.Named(ctx, f, name) }
	io.Out.Colored = func() bool { return io.Colored(io.Out.Terminal) }
	return f
}

// Share makes f use a vault and an observation that are in use.
func (f *Factory) Share(v *secrets.Store, w *observe.Watch) {
	f.Vault, f.Config.Vault, f.Login.Vault = v, v, v
	f.Observe, f.Client.Observe = w, w
}
