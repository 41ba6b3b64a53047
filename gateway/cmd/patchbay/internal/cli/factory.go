package cli

import (
	"context"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/audit"
)

// A factory contains what commands share. Each run of patchbay, and each command of a shell, uses its own.
type factory struct {
	IO      *streams // standard input, output and error
	Flags   *flags   // the flags of all commands
	Ask     *asker   // answers questions of servers
	Net     *network // makes HTTP requests
	Vault   *vaults  // stores logins and secrets
	Config  *finder  // finds servers in configuration files
	Login   *logins  // authorizes requests
	Observe *watch   // exports traces and metrics
	Client  *dialer  // connects to servers

	args []string // the command line
	verb string   // the name of the command, such as "patchbay call"

	atEnd  []func() error // called when the program ends
	audits []*audit.Log   // closed after atEnd
	locks  []*os.File     // of sockets; released last

	search     []string // of --search
	noAuth     bool     // HTTP is served without a key
	failed     func()   // prints which servers of @host have failed; nil for other targets
	verifyMost int64    // bytes received for verifying skills at most; 0 for the default

	shell    commandShell                      // runs the command; nil without one
	hosts    hosts                             // opens @host and @
	commands func(f *factory) []*cobra.Command // returns all commands and help topics
}

// hosts opens the targets that are not one server: @host, all servers of the configuration, and @, the running gateway.
type hosts interface {
	// named returns the target of @host or @.
	named(ctx context.Context, f *factory, name string) (*target, error)
	// names completes the names of these targets.
	names(f *factory, typed string) []string
}

// A commandShell runs commands about one server.
type commandShell interface {
	// server returns the target of all commands.
	server() *target
	// completeNames completes the arguments of a command.
	completeNames(ctx context.Context, verb string, names lister, words []string) []string
	// notedTasks completes the ids of tasks.
	notedTasks(words []string, typed string) []string
}

// newFactory returns a factory for streams and flags. hosts may be nil.
func newFactory(io *streams, fl *flags, h hosts) *factory {
	io.Flags = fl
	f := &factory{IO: io, Flags: fl, hosts: h, Ask: newAsker(io, fl), Net: &network{IO: io, Flags: fl}, Vault: &vaults{IO: io},
		Observe: &watch{IO: io}}
	f.Login = &logins{IO: io, Flags: fl, Ask: f.Ask, Net: f.Net, Vault: f.Vault,
		headless: isHeadless(runtime.GOOS, os.Getenv)}
	f.Config = &finder{IO: io, Flags: fl, Ask: f.Ask, Net: f.Net, Vault: f.Vault}
	f.Client = &dialer{IO: io, Flags: fl, Ask: f.Ask, Net: f.Net, Login: f.Login, Observe: f.Observe,
		commandStderr: &tail{}, taskStarted: func(*tasks.Handle) {}}
	f.Config.hostNamed = func(ctx context.Context, name string) (*target, error) { return h.named(ctx, f, name) }
	io.Out.colored = func() bool { return io.colored(io.Out.terminal) }
	return f
}

// share makes f use a vault and an observation that are in use.
func (f *factory) share(v *vaults, w *watch) {
	f.Vault, f.Config.Vault, f.Login.Vault = v, v, v
	f.Observe, f.Client.Observe = w, w
}
