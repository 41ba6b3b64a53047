package hosting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// DefaultGatewayAddr contains a fixed port, so that the configurations of clients stay valid.
const DefaultGatewayAddr = "127.0.0.1:7777"

// A Config is the configuration of a host.
type Config struct {
	File     *config.File
	Settings *config.File              // with the settings; nil for the defaults
	Servers  []config.Entry            // in the order of precedence
	Entries  map[string]*config.Server // by name, unexpanded
	Targets  map[string]*target.Target // by name: the target that the command line would use
	Fixed    map[string]*target.Target // the servers that the command line names; nil for a configuration
	Pins     state.Store               // holds the approved definitions; nil accepts every definition
	Stores   *Stores                   // of the gateway; nil before OpenStores
	beside   bool                      // of a command beside gateways
	Events   *gateway.EventLog         // serves the events of the admin API; nil without the API
	Capture  *capture.Ring             // records the traffic; nil records nothing
	// InProcess dials the servers in this process, by name.
	InProcess map[string]func() mcp.Transport
	// Extend, if it is set, adds servers that are in no file to a configuration that is read again.
	Extend   func(next *Config) error
	misspelt []string              // warnings about members of the files
	notes    []string              // messages about ignored parts of the files
	named    bool                  // whether the user named the file
	Observer mcp.Observer          // observes callers and servers; may be nil
	Prepare  func(o *host.Options) // changes the options of the host; may be nil
	// capabilities limits what servers may ask of the callers; nil sets no limit.
	capabilities *mcp.ClientCapabilities

	mu      sync.Mutex        // guards the fields below, and Targets and Entries after a reload
	Inputs  map[string]string // by id
	secrets []string          // of the servers that were connected to, which messages do not show
}

// ReadHostConfig returns a configuration with the servers of all files, or of the file that the
// user named. It starts no server, and omits servers that the user must trust first.
func ReadHostConfig(f *cmdutil.Factory, addr string) (*Config, error) {
	c, invalid, err := ReadConfig(f, addr)
	if err != nil {
		return nil, err
	}
	for _, err := range invalid {
		if f.Config.NamesConfig() {
			return nil, err
		}
		f.IO.Err.Printf("patchbay: ignored a configuration file: %s", term.CleanLine(err.Error()))
	}
	if len(c.Servers) == 0 {
		where := "the configuration files that \"patchbay servers\" lists"
		if f.Config.NamesConfig() {
			where = config.Paths(f.Flags.Config)[0]
		}
		return nil, fmt.Errorf("found no servers to use in %s; see \"patchbay help config\"", where)
	}
	return c, nil
}

// ReadConfig returns the configuration, and the errors of files that cannot be read.
func ReadConfig(f *cmdutil.Factory, addr string) (c *Config, invalid []error, err error) {
	c, invalid, err = MergedConfig(f, configs.Files(f.Flags.Config), addr)
	if err != nil {
		return nil, nil, err
	}
	for _, note := range c.notes {
		f.IO.Err.Printf("patchbay: %s", note)
	}
	return c, invalid, nil
}

// MergedConfig merges files into a configuration, and returns the errors of unreadable files.
func MergedConfig(
	p *cmdutil.Factory, files iter.Seq2[*configs.File, error], addr string,
) (c *Config, invalid []error, err error) {
	store, err := target.TrustStore()
	if err != nil {
		return nil, nil, err
	}
	c = &Config{Entries: map[string]*config.Server{}, Targets: map[string]*target.Target{},
		named: p.Config.NamesConfig()}
	for f, err := range files {
		if err != nil {
			invalid = append(invalid, err)
			continue
		}
		addFile(p, c, f, store, addr)
	}
	c.File = config.Merge(c.Settings, c.Servers)
	return c, invalid, nil
}

// addFile adds the servers of a file, and the settings if the file belongs to the user.
func addFile(p *cmdutil.Factory, c *Config, f *configs.File, store *config.TrustStore, addr string) {
	if _, has := f.Extra["patchbay"]; has && c.Settings == nil && (p.Config.NamesConfig() || f.App == "patchbay") {
		if f.Project {
			c.note("ignored the settings of the project file %s: name it with --config instead", term.CleanLine(f.Path))
		} else {
			c.Settings = f.File
		}
	}
	for _, name := range misspelt(f) {
		c.misspelt = append(c.misspelt, f.Path+": "+misspeltText(name))
	}
	var untrusted []string
	for _, name := range f.Names() {
		s, err := f.Server(name)
		switch {
		case err != nil: // the host reports it
			s = &config.Server{}
		case s.Disabled:
			continue
		case store.NeedsTrust(s):
			untrusted = append(untrusted, target.ServerWord(f, s))
			continue
		case IsGateway(s, GatewayPorts(c.Settings, addr)):
			if p.Flags.Verbose {
				c.note("left out %s: it is this gateway", target.ServerWord(f, s))
			}
			continue
		}
		c.add(f, name, s)
	}
	if len(untrusted) > 0 {
		const most = 5
		more := ""
		if len(untrusted) > most {
			more = fmt.Sprintf(" and %d others", len(untrusted)-most)
		}
		c.note("left out %s%s of project file %s, not trusted: run \"patchbay trust NAME\" in a terminal",
			strings.Join(untrusted[:min(len(untrusted), most)], ", "), more, term.CleanLine(f.Path))
	}
}

func (c *Config) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// add adds a server. If an earlier file contains the same name, a server of a project or an equal
// server is omitted, and any other server gets the prefix of its application.
func (c *Config) add(f *configs.File, name string, s *config.Server) {
	public := name
	if first := c.Entries[name]; first != nil {
		if public = f.Target(name); public == name || sameServer(first, s) {
			return
		}
	}
	if c.Entries[public] != nil {
		return
	}
	c.Entries[public] = s
	c.Servers = append(c.Servers, config.Entry{Name: public, File: f.File, Server: name,
		Local: !c.named && f.App != "patchbay"})
	c.Targets[public] = &target.Target{Name: f.Target(name), From: f.Path}
}

// sameServer reports whether two entries start the same command or connect to the same URL.
func sameServer(a, b *config.Server) bool {
	what := func(s *config.Server) string {
		return fmt.Sprintf("%q", []any{s.Type, s.Command, s.Args, s.Env, s.EnvFile, s.Dir, s.URL, s.Header})
	}
	return what(a) == what(b)
}

// GatewayPorts returns the ports of gateways that serve a configuration: that of the command line,
// which may be empty, that of the settings, and the default.
func GatewayPorts(settings *config.File, addr string) (ports []string) {
	for _, addr := range []string{GatewayAddr(settings, addr), GatewayAddr(settings, ""), DefaultGatewayAddr} {
		_, port, _ := net.SplitHostPort(addr)
		ports = append(ports, port)
	}
	return ports
}

// GatewayAddr returns the address of the command line, of the settings, or the default.
func GatewayAddr(settings *config.File, addr string) string {
	if addr == "" && settings != nil {
		listen, _ := rawjson.Get(settings.Extra["patchbay"], "listen") // the host validates it
		addr, _ = rawjson.Unquote(listen)
	}
	addr = cmp.Or(addr, DefaultGatewayAddr)
	return observe.WithLoopbackHost(addr)
}

// IsGateway reports whether a server is a gateway of this program, which must not serve itself: its
// URL on this machine, or a command that starts it, or a command with its URL.
func IsGateway(s *config.Server, ports []string) bool {
	words := append([]string{s.Command}, s.Args...)
	for _, word := range append(words, s.URL) {
		u, err := url.Parse(word)
		if err == nil && u.Host != "" && netx.IsLocalHost(u.Hostname()) && slices.Contains(ports, u.Port()) &&
			(u.Path == connect.Endpoint || strings.HasPrefix(u.Path, connect.Endpoint+"/")) {
			return true
		}
	}
	return slices.Contains(s.Args, "gateway") && slices.ContainsFunc(words, isSelf)
}

// isSelf reports whether a word of a command line is this program.
func isSelf(word string) bool {
	if strings.TrimSuffix(filepath.Base(word), ".exe") == "patchbay" || strings.HasPrefix(word, userdir.Self) {
		return true
	}
	exe, err := os.Executable()
	return err == nil && word == exe
}

// OneServer returns a configuration with the target of the command line.
func OneServer(t *target.Target) (*Config, error) {
	entry := `{"command": "patchbay"}` // for the type: openHost uses the target
	if t.URL != "" {
		entry = `{"url": "http://127.0.0.1"}`
	}
	f, err := config.Parse([]byte(`{"mcpServers": {"server": ` + entry + `}}`))
	return &Config{File: f, Fixed: map[string]*target.Target{"server": t}}, err
}

// OpenHost opens a host for a configuration. Servers start when they are first used.
func OpenHost(ctx context.Context, f *cmdutil.Factory, c *Config, keys [][]byte) (*host.Host, error) {
	if err := f.Client.Net.LoadCACert(ctx); err != nil {
		return nil, exit.UsageError(err)
	}
	if _, err := f.Vault.Open(); err != nil { // before Dial is called concurrently
		return nil, err
	}
	opts := &host.Options{
		Dial: func(ctx context.Context, s *config.Server) (mcp.Transport, error) {
			if dial := c.InProcess[s.Name]; dial != nil {
				return dial(), nil
			}
			t, err := c.Target(s)
			if err != nil {
				return nil, err
			}
			return DialServer(ctx, f, s.Name, t)
		},
		Client: mcp.ClientOptions{
			Info: mcp.Implementation{Name: "patchbay", Version: build.Version()}, Revision: f.Flags.Revision,
			ForwardCapabilities: c.capabilities,
		},
		StateKeys: keys, Observer: c.Observer, Logger: f.IO.Logger(),
		Tokens: func(principal string) oauthclient.Store {
			if d := c.Stores.Durable(); d != nil && principal != "" {
				return d.Logins(principal)
			}
			return CallerTokens(f, principal)
		}, OAuth: func(s *config.Server, p *mcp.Principal) *oauthclient.TransportOptions {
			return callerOAuth(f, c, s, p)
		}, LoginCommand: func(server string) string {
			return GatewayLoginLine(f, server)
		},
	}
	var err error
	if opts.Lookup, err = hostVariables(ctx, f, c); err != nil {
		return nil, err
	}
	if f.Observe.Completing { // completion does not start commands
		dial := opts.Dial
		opts.Dial = func(ctx context.Context, s *config.Server) (mcp.Transport, error) {
			if s.Type == config.TypeStdio {
				return nil, errNotCompleted
			}
			return dial(ctx, s)
		}
	}
	if c.Pins != nil {
		opts.State, opts.Pins = c.Pins, true
	}
	opts.Limits = c.Stores.Limits()
	if settings, err := gatewayconfig.Read(c.File); err == nil && settings.Policy != nil && opts.State == nil {
		if opts.State, err = c.State(ctx, f); err != nil {
			return nil, err
		}
	}
	opts.Configure = configure
	switch l, err := openAudit(ctx, f, c.File); {
	case err != nil:
		return nil, err
	case l != nil:
		opts.Recorder = l
	}
	if c.Events != nil {
		opts.Recorder = c.Events.Recorder(opts.Recorder)
	}
	if c.Capture != nil {
		opts.Dial, opts.Recorder = c.Capture.Dial(opts.Dial), c.Capture.Recorder(opts.Recorder)
	}
	if c.Prepare != nil {
		c.Prepare(opts)
	}
	h, err := host.Open(ctx, c.File, opts)
	if err != nil {
		return nil, exit.UsageError(err)
	}
	if c.Capture != nil {
		c.Capture.SetMask(h.Operator().Mask)
	}
	return h, nil
}

// hostVariables returns the lookup of variables for the servers of a host. On a terminal it asks
// for the inputs of all servers now. Otherwise each input must have a default: a server with an
// input that lacks a default fails, and the other servers run.
func hostVariables(ctx context.Context, f *cmdutil.Factory, c *Config) (func(name string) (string, bool), error) {
	inputs, err := InputsOf(ctx, f, c)
	if err != nil {
		return nil, err
	}
	c.Inputs = inputs
	return LookupFor(ctx, f, c), nil
}

// LookupFor returns the lookup of variables for the servers of a configuration with its inputs.
func LookupFor(ctx context.Context, f *cmdutil.Factory, c *Config) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		if id, ok := strings.CutPrefix(name, "input:"); ok {
			c.mu.Lock()
			defer c.mu.Unlock()
			value, found := c.Inputs[id]
			return value, found
		}
		if value, set, found := f.Vault.Lookup(ctx, name); found {
			return value, set
		}
		return os.LookupEnv(name)
	}
}

// InputsOf returns the inputs of the servers of a configuration.
func InputsOf(ctx context.Context, f *cmdutil.Factory, c *Config) (map[string]string, error) {
	inputs := map[string]string{}
	for _, name := range c.File.Names() {
		s := c.Entries[name]
		if s == nil || s.Disabled {
			continue
		}
		for i := range s.Inputs {
			in := &s.Inputs[i]
			if _, ok := inputs[in.ID]; ok {
				continue
			}
			switch {
			case f.IO.MayPrompt() && !f.Observe.Completing:
				value, err := f.Config.AskInput(ctx, term.Shorten(term.ShellWord(name), term.MaxNameShown), in)
				if err != nil {
					return nil, err
				}
				inputs[in.ID] = value
			case in.Default != "":
				inputs[in.ID] = in.Default
			case !f.Observe.Completing:
				f.IO.Err.Printf("patchbay: server %s needs the input %s: run the command in a terminal, give the "+
					"input a default, or use ${env:NAME} in the file",
					term.Shorten(term.ShellWord(name), term.MaxNameShown), term.CleanLine(in.ID))
			}
		}
	}
	return inputs, nil
}

var errNotCompleted = errors.New("completion does not start commands")

// Target returns the target of a server whose variables are expanded.
func (c *Config) Target(s *config.Server) (*target.Target, error) {
	if fixed := c.Fixed[s.Name]; fixed != nil {
		t := *fixed
		return &t, nil
	}
	if s.Type != config.TypeStdio {
		if err := target.CheckServerURL(s.URL); err != nil {
			return nil, err
		}
	}
	t := target.ExpandedTarget(s, "")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets = login.Union(c.secrets, t.Secrets)
	if known := c.Targets[s.Name]; known != nil {
		t.Name, t.From = known.Name, known.From
	}
	return t, nil
}

// Masked returns a text without the secrets of the servers.
func (c *Config) Masked(text string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (&target.Target{Secrets: c.secrets}).Masked(text)
}

// DialServer returns the transport to a server of a host, with the stored login. The host checks
// the settings of the server before. With -v the standard error of the server is shown.
func DialServer(ctx context.Context, f *cmdutil.Factory, name string, t *target.Target) (mcp.Transport, error) {
	if t.URL == "" {
		command := mcp.Command(t.Command[0], t.Command[1:]...)
		command.Env, command.Dir, command.Logger = t.Environment, t.Directory, f.IO.Logger()
		if f.Flags.Verbose {
			command.Stderr = &prefixedScreen{f.IO.Err, "[" + term.Shorten(term.CleanLine(name), term.MaxNameShown) +
				"] ", t}
		}
		return command, nil
	}
	if client := host.ClientFrom(ctx); client != nil { // with the credentials of the caller
		client = capture.Observe(ctx, client, nil)
		opts := &mcphttp.TransportOptions{Header: t.Header, Logger: f.IO.Logger(), Client: client, InsecureHTTP: true}
		return mcphttp.NewTransport(t.URL, opts), nil
	}
	t.NoLogin = true // several servers would ask at once
	if err := f.Login.Authorize(ctx, t); err != nil {
		return nil, err
	}
	opts := &mcphttp.TransportOptions{Header: t.Header, Logger: f.IO.Logger(), Client: f.Client.Net.HTTPClient(),
		InsecureHTTP: true}
	if t.Auth != nil {
		opts.Client = &http.Client{Transport: &loginAdvice{t.Auth, cmdutil.LoginCommandLine(f, t, nil)}}
	}
	opts.Client = capture.Observe(ctx, opts.Client, f.Client.Net.NewBase)
	return mcphttp.NewTransport(t.URL, opts), nil
}

// A loginAdvice adds the command that logs in to the errors of requests without the required login.
type loginAdvice struct {
	http.RoundTripper
	command string
}

// RoundTrip sends a request.
func (a *loginAdvice) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := a.RoundTripper.RoundTrip(r)
	var refused *oauthclient.AuthorizeError
	if errors.As(err, &refused) && a.command != "" {
		err = fmt.Errorf("%w: log in with: %s", err, a.command)
	}
	return res, err
}

// A prefixedScreen writes lines of a server with its name.
type prefixedScreen struct {
	screen *term.Screen
	prefix string
	target *target.Target
}

// Write writes whole lines.
func (s *prefixedScreen) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		s.screen.Printf("%s%s", s.prefix, term.Clean(s.target.Masked(strings.TrimRight(line, "\r\n"))))
	}
	return len(b), nil
}
