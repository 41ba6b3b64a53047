package cli

import (
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
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

// hostName is the TARGET of all configured servers.
const hostName = "@host"

// defaultGatewayAddr has a fixed port, so that the configurations of clients stay valid.
const defaultGatewayAddr = "127.0.0.1:7777"

// A hostConfig is the configuration of a host.
type hostConfig struct {
	file     *config.File
	settings *config.File              // with the settings; nil for the defaults
	servers  []config.Entry            // in the order of precedence
	entries  map[string]*config.Server // by name, unexpanded
	targets  map[string]*target        // by name: what the command line calls the server
	fixed    *target                   // the only server, if the command line has it
	pins     *bolt.StateStore          // has the approved definitions; nil if all are used
	events   *gateway.EventLog         // of the admin API; nil without one
	misspelt []string                  // warnings about members of the files
	notes    []string                  // what of the files is not used
	named    bool                      // the user has named the file
	observer mcp.Observer              // of callers and servers; nil for none
	// capabilities are what the callers support at most; nil for everything.
	capabilities *mcp.ClientCapabilities

	mu      sync.Mutex        // guards the fields below, and targets after a reload
	inputs  map[string]string // by id
	secrets []string          // of the servers that were connected to, which messages do not show
}

// hostConfig returns the configuration with the servers of all files, or of the file that the user
// has named. It starts nothing, and leaves out servers that the user has not trusted.
func readHostConfig(f *factory, addr string) (*hostConfig, error) {
	c, invalid, err := readConfig(f, addr)
	if err != nil {
		return nil, err
	}
	for _, err := range invalid {
		if f.Config.namesConfig() {
			return nil, err
		}
		f.IO.Err.printf("patchbay: ignored a configuration file: %s", cleanLine(err.Error()))
	}
	if len(c.servers) == 0 {
		where := "the configuration files that \"patchbay servers\" lists"
		if f.Config.namesConfig() {
			where = config.Paths(f.Flags.config)[0]
		}
		return nil, fmt.Errorf("found no servers to use in %s; see \"patchbay help config\"", where)
	}
	return c, nil
}

// readConfig returns the configuration, and the errors of files that cannot be read.
func readConfig(f *factory, addr string) (c *hostConfig, invalid []error, err error) {
	c, invalid, err = mergedConfig(f, configs.Files(f.Flags.config), addr)
	if err != nil {
		return nil, nil, err
	}
	for _, note := range c.notes {
		f.IO.Err.printf("patchbay: %s", note)
	}
	return c, invalid, nil
}

// mergedConfig returns the configuration of files, and the errors of those that cannot be read.
func mergedConfig(
	p *factory, files iter.Seq2[*configs.File, error], addr string,
) (c *hostConfig, invalid []error, err error) {
	store, err := trustStore()
	if err != nil {
		return nil, nil, err
	}
	c = &hostConfig{entries: map[string]*config.Server{}, targets: map[string]*target{}, named: p.Config.namesConfig()}
	for f, err := range files {
		if err != nil {
			invalid = append(invalid, err)
			continue
		}
		addFile(p, c, f, store, addr)
	}
	c.file = config.Merge(c.settings, c.servers)
	return c, invalid, nil
}

// addFile adds the servers of a file, and its settings if they are those of the user.
func addFile(p *factory, c *hostConfig, f *configs.File, store *config.TrustStore, addr string) {
	if _, has := f.Extra["patchbay"]; has && c.settings == nil && (p.Config.namesConfig() || f.App == "patchbay") {
		if f.Project {
			c.note("ignored the settings of the project file %s: name it with --config instead", cleanLine(f.Path))
		} else {
			c.settings = f.File
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
			untrusted = append(untrusted, serverWord(f, s))
			continue
		case isGateway(s, gatewayPorts(c.settings, addr)):
			if p.Flags.verbose {
				c.note("left out %s: it is this gateway", serverWord(f, s))
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
			strings.Join(untrusted[:min(len(untrusted), most)], ", "), more, cleanLine(f.Path))
	}
}

func (c *hostConfig) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// add adds a server. If an earlier file has the name, it is left out if it is the same server or one
// of a project, and else has the prefix of its application.
func (c *hostConfig) add(f *configs.File, name string, s *config.Server) {
	public := name
	if first := c.entries[name]; first != nil {
		if public = f.Target(name); public == name || sameServer(first, s) {
			return
		}
	}
	if c.entries[public] != nil {
		return
	}
	c.entries[public] = s
	c.servers = append(c.servers, config.Entry{Name: public, File: f.File, Server: name,
		Local: !c.named && f.App != "patchbay"})
	c.targets[public] = &target{name: f.Target(name), from: f.Path}
}

// sameServer reports whether two entries start the same command or connect to the same URL.
func sameServer(a, b *config.Server) bool {
	what := func(s *config.Server) string {
		return fmt.Sprintf("%q", []any{s.Type, s.Command, s.Args, s.Env, s.EnvFile, s.Dir, s.URL, s.Header})
	}
	return what(a) == what(b)
}

// gatewayPorts returns the ports of gateways that serve a configuration: that of the command line,
// which may be empty, that of the settings, and the default.
func gatewayPorts(settings *config.File, addr string) (ports []string) {
	for _, addr := range []string{gatewayAddr(settings, addr), gatewayAddr(settings, ""), defaultGatewayAddr} {
		_, port, _ := net.SplitHostPort(addr)
		ports = append(ports, port)
	}
	return ports
}

// gatewayAddr returns the address of the command line, of the settings, or the default.
func gatewayAddr(settings *config.File, addr string) string {
	if addr == "" && settings != nil {
		listen, _ := rawjson.Get(settings.Extra["patchbay"], "listen") // the host validates it
		addr, _ = rawjson.Unquote(listen)
	}
	if addr == "" {
		addr = defaultGatewayAddr
	}
	return withLoopbackHost(addr)
}

// isGateway reports whether a server is a gateway of this program, which must not serve itself: its
// URL on this machine, or a command that starts it, or a command with its URL.
func isGateway(s *config.Server, ports []string) bool {
	words := append([]string{s.Command}, s.Args...)
	for _, word := range append(words, s.URL) {
		u, err := url.Parse(word)
		if err == nil && u.Host != "" && netx.IsLocalHost(u.Hostname()) && slices.Contains(ports, u.Port()) &&
			(u.Path == endpoint || strings.HasPrefix(u.Path, endpoint+"/")) {
			return true
		}
	}
	return slices.Contains(s.Args, "gateway") && slices.ContainsFunc(words, isSelf)
}

// isSelf reports whether a word of a command line is this program.
func isSelf(word string) bool {
	if strings.TrimSuffix(filepath.Base(word), ".exe") == "patchbay" || strings.HasPrefix(word, self) {
		return true
	}
	exe, err := os.Executable()
	return err == nil && word == exe
}

// oneServer returns a configuration with the target of the command line.
func oneServer(t *target) (*hostConfig, error) {
	entry := `{"command": "patchbay"}` // for the type: openHost uses the target
	if t.url != "" {
		entry = `{"url": "http://127.0.0.1"}`
	}
	f, err := config.Parse([]byte(`{"mcpServers": {"server": ` + entry + `}}`))
	return &hostConfig{file: f, fixed: t}, err
}

// openHost opens a host for a configuration. It starts nothing.
func openHost(ctx context.Context, f *factory, c *hostConfig, keys [][]byte) (*host.Host, error) {
	if err := f.Net.loadCACert(ctx); err != nil {
		return nil, usage(err)
	}
	if _, err := f.Vault.openVault(); err != nil { // before Dial is called concurrently
		return nil, err
	}
	opts := &host.Options{
		Dial: func(ctx context.Context, s *config.Server) (mcp.Transport, error) {
			t, err := c.target(s)
			if err != nil {
				return nil, err
			}
			return dialServer(ctx, f, s.Name, t)
		},
		Client: mcp.ClientOptions{
			Info: mcp.Implementation{Name: "patchbay", Version: version()}, Revision: f.Flags.revision,
			ForwardCapabilities: c.capabilities,
		},
		StateKeys: keys, Observer: c.observer, Logger: f.IO.logger(),
		Tokens: func(principal string) oauthclient.Store { return callerTokens(f, principal) }, OAuth: func(v1 *config.Server) *oauthclient.TransportOptions { return callerOAuth(f, v1) }, LoginCommand: func(server string) string { return gatewayLoginLine(f, server) },
	}
	var err error
	if opts.Lookup, err = hostVariables(ctx, f, c); err != nil {
		return nil, err
	}
	if f.Observe.completing { // completion does not start commands
		dial := opts.Dial
		opts.Dial = func(ctx context.Context, s *config.Server) (mcp.Transport, error) {
			if s.Type == config.TypeStdio {
				return nil, errNotCompleted
			}
			return dial(ctx, s)
		}
	}
	if c.pins != nil {
		opts.State, opts.Pins = c.pins, true
	}
	if settings, err := c.file.Settings(); err == nil && settings.Policy != nil && opts.State == nil {
		if opts.State, err = gatewayState(); err != nil {
			return nil, err
		}
	}
	opts.Configure = applyPolicy
	switch l, err := openAudit(ctx, f, c.file); {
	case err != nil:
		return nil, err
	case l != nil:
		opts.Recorder = l
	}
	if c.events != nil {
		opts.Recorder = c.events.Recorder(opts.Recorder)
	}
	h, err := host.Open(ctx, c.file, opts)
	if err != nil {
		return nil, usage(err)
	}
	return h, nil
}

// hostVariables returns the lookup of variables for the servers of a host. A terminal asks for the
// inputs of all of them now. Without one, an input has its default; a server whose input has none
// fails alone.
func hostVariables(ctx context.Context, f *factory, c *hostConfig) (func(name string) (string, bool), error) {
	inputs, err := inputsOf(ctx, f, c)
	if err != nil {
		return nil, err
	}
	c.inputs = inputs
	return lookupFor(ctx, f, c), nil
}

// lookupFor returns the lookup of variables for the servers of a configuration with its inputs.
func lookupFor(ctx context.Context, f *factory, c *hostConfig) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		if id, ok := strings.CutPrefix(name, "input:"); ok {
			c.mu.Lock()
			defer c.mu.Unlock()
			value, found := c.inputs[id]
			return value, found
		}
		if value, set, found := f.Vault.secretLookup(ctx, name); found {
			return value, set
		}
		return os.LookupEnv(name)
	}
}

// inputsOf returns the inputs of the servers of a configuration.
func inputsOf(ctx context.Context, f *factory, c *hostConfig) (map[string]string, error) {
	inputs := map[string]string{}
	for _, name := range c.file.Names() {
		s := c.entries[name]
		if s == nil || s.Disabled {
			continue
		}
		for i := range s.Inputs {
			in := &s.Inputs[i]
			if _, ok := inputs[in.ID]; ok {
				continue
			}
			switch {
			case f.IO.mayPrompt() && !f.Observe.completing:
				value, err := f.Config.askInput(ctx, shorten(shellWord(name), maxNameShown), in)
				if err != nil {
					return nil, err
				}
				inputs[in.ID] = value
			case in.Default != "":
				inputs[in.ID] = in.Default
			case !f.Observe.completing:
				f.IO.Err.printf("patchbay: server %s needs the input %s: run the command in a terminal, give the "+
					"input a default, or use ${env:NAME} in the file",
					shorten(shellWord(name), maxNameShown), cleanLine(in.ID))
			}
		}
	}
	return inputs, nil
}

var errNotCompleted = errors.New("completion does not start commands")

// target returns the target of a server whose variables are expanded.
func (c *hostConfig) target(s *config.Server) (*target, error) {
	if c.fixed != nil {
		t := *c.fixed
		return &t, nil
	}
	if s.Type != config.TypeStdio {
		if err := checkServerURL(s.URL); err != nil {
			return nil, err
		}
	}
	t := expandedTarget(s, "")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets = union(c.secrets, t.secrets)
	if known := c.targets[s.Name]; known != nil {
		t.name, t.from = known.name, known.from
	}
	return t, nil
}

// masked returns a text without the secrets of the servers.
func (c *hostConfig) masked(text string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (&target{secrets: c.secrets}).masked(text)
}

// dialServer returns the transport to a server of a host, with the stored login. The host has checked the settings
// of the server. With -v, the standard error of the server is shown.
func dialServer(ctx context.Context, f *factory, name string, t *target) (mcp.Transport, error) {
	if t.url == "" {
		command := mcp.Command(t.command[0], t.command[1:]...)
		command.Env, command.Dir, command.Logger = t.environment, t.directory, f.IO.logger()
		if f.Flags.verbose {
			command.Stderr = &prefixedScreen{f.IO.Err, "[" + shorten(cleanLine(name), maxNameShown) + "] ", t}
		}
		return command, nil
	}
	if client := host.ClientFrom(ctx); client != nil { // with the credentials of the caller
		opts := &mcphttp.TransportOptions{Header: t.header, Logger: f.IO.logger(), Client: client, InsecureHTTP: true}
		return mcphttp.NewTransport(t.url, opts), nil
	}
	t.noLogin = true // several servers would ask at once
	if err := f.Login.authorize(ctx, t); err != nil {
		return nil, err
	}
	opts := &mcphttp.TransportOptions{Header: t.header, Logger: f.IO.logger(), Client: f.Net.httpClient(), InsecureHTTP: true}
	if t.auth != nil {
		opts.Client = &http.Client{Transport: &loginAdvice{t.auth, loginCommandLine(f, t, nil)}}
	}
	return mcphttp.NewTransport(t.url, opts), nil
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
	screen *screen
	prefix string
	target *target
}

// Write writes whole lines.
func (s *prefixedScreen) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		s.screen.printf("%s%s", s.prefix, clean(s.target.masked(strings.TrimRight(line, "\r\n"))))
	}
	return len(b), nil
}

// newGateway returns a gateway for a host, and for one profile if the command line has one.
func newGateway(f *factory, g *gatewayRun, o *gateway.Options) *gateway.Gateway {
	o.InsecureNoAuth, o.Profile, o.Logger = g.noAuth && !g.stdio, g.profile, f.IO.logger()
	o.Admin = adminOptions(f, g)
	return gateway.New(g.host, o)
}
