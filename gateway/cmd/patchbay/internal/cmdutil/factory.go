package cmdutil

import (
	"os"
	"runtime"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
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
	Vault   *secrets.Store  // stores logins and secrets
	Config  *target.Finder  // finds servers in configuration files
	Login   *login.Logins   // authorizes requests
	Observe *observe.Watch  // exports traces and metrics
	Client  *connect.Dialer // connects to servers
	Exit    *Exit           // closes what the command opened
}

// New returns a factory for streams and flags.
func New(io *term.Streams, fl *flags.Flags) *Factory {
	io.Flags = fl
	net := &network.Client{IO: io, Flags: fl}
	f := &Factory{IO: io, Flags: fl, Ask: question.NewAsker(io, fl), Vault: &secrets.Store{IO: io},
		Observe: &observe.Watch{IO: io}, Exit: &Exit{}}
	f.Login = &login.Logins{IO: io, Flags: fl, Ask: f.Ask, Net: net, Vault: f.Vault,
		Headless: login.IsHeadless(runtime.GOOS, os.Getenv)}
	f.Config = &target.Finder{IO: io, Flags: fl, Ask: f.Ask, Net: net, Vault: f.Vault}
	f.Client = &connect.Dialer{IO: io, Flags: fl, Ask: f.Ask, Net: net, Login: f.Login, Observe: f.Observe,
		CommandStderr: &connect.Tail{}, TaskStarted: func(*tasks.Handle) {}}
	io.Out.Colored = func() bool { return io.Colored(io.Out.Terminal) }
	return f
}

// Share makes f use a vault and an observation that are in use.
func (f *Factory) Share(v *secrets.Store, w *observe.Watch) {
	f.Vault, f.Config.Vault, f.Login.Vault = v, v, v
	f.Observe, f.Client.Observe = w, w
}
