package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcp/driver/command"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A target is a server: a command to start or a URL.
type target struct {
	command     []string
	environment []string
	directory   string

	url    string
	header http.Header

	insecureHTTP bool // credentials of header may be sent in the clear

	name      string                 // the argument on the command line
	from      string                 // the configuration file; empty without one
	secrets   []string               // of the entry in it, which messages do not show
	auth      *oauthclient.Transport // authorizes requests; may be nil
	host      *hostTarget            // all configured servers; nil for others
	contacted bool                   // a connection was tried
	noLogin   bool                   // the user is not asked to log in
}

// String returns the target for messages.
func (t *target) String() string {
	if t.url != "" {
		return t.masked(t.url)
	}
	var all []string
	for _, word := range t.command {
		all = append(all, shellWord(t.masked(word)))
	}
	return strings.Join(all, " ")
}

// masked returns a text of the target without its secrets.
func (t *target) masked(text string) string {
	for _, secret := range t.secrets {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	return text
}

// target returns the target of a command, and the other arguments.
func parseTarget(f *factory, cmd *cobra.Command, args []string) (t *target, words []string, err error) {
	if f.shell != nil {
		return f.shell.server(), args, nil
	}
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		if dash == len(args) {
			return nil, nil, errors.New("missing command after --")
		}
		t = &target{command: args[dash:]}
		words = args[:dash]
	} else {
		if len(args) == 0 {
			return nil, nil, fmt.Errorf("missing TARGET: the URL of a server or its name in a configuration file\n"+
				"usage: %s", cmd.UseLine())
		}
		if t, err = f.Config.named(cmd.Context(), args[0], f.Config.askTrust); err != nil {
			return nil, nil, misplaced(cmd, args, err)
		}
		t.name = args[0]
		words = args[1:]
	}
	return t, words, f.Config.addToTarget(cmd.Context(), t)
}

// misplaced adds advice to err, the error of a target, if a later argument is a URL or if the
// target looks like a command.
func misplaced(cmd *cobra.Command, args []string, err error) error {
	if strings.Contains(args[0], "://") {
		return err
	}
	for _, word := range args[1:] {
		if checkServerURL(word) == nil {
			return fmt.Errorf("%w\nthe target comes first: did you mean %s?", err, cleanLine(word))
		}
	}
	var unknown *unknownServerError
	if advice := misplacedCommand(cmd, args); advice != "" && errors.As(err, &unknown) {
		return fmt.Errorf("%w\n%s", err, advice)
	}
	return err
}

// An unknownServerError is returned for a name that no configuration file has.
type unknownServerError struct{ error }

// named returns the target of a URL or of a name in a configuration file. It calls trust for a
// server of a project file that the user has not trusted.
func (p *finder) named(ctx context.Context, name string, trust truster) (*target, error) {
	switch name {
	case hostName, runningName:
		return p.hostNamed(ctx, name)
	}
	if strings.Contains(name, "://") {
		return &target{url: name, header: http.Header{}}, checkServerURL(name)
	}
	f, server, err := p.findServer(name, func(*configs.File) bool { return true })
	if f == nil {
		return nil, err
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) { // one for each file
			p.IO.Err.printf("patchbay: ignored a configuration file: %s", cleanLine(line))
		}
	}
	return p.fromConfig(ctx, f, server, trust)
}

// findServer returns the first of the files that has a server, and the name that the server has
// there. The error has those of files that could not be read.
func (p *finder) findServer(name string, wanted func(f *configs.File) bool) (*configs.File, string, error) {
	app, short, qualified := configs.Split(name)
	ofApp := qualified && !p.namesConfig() // other applications have no alternatives
	var found *configs.File                // that has the whole name
	var known []string
	var problems error
	for f, err := range configs.Files(p.Flags.config) {
		switch {
		case err != nil && qualified && f.App != app:
		case err != nil:
			problems = errors.Join(problems, err)
		case !wanted(f):
		case qualified && f.App == app && f.Has(short):
			return f, short, problems
		case !qualified && f.Has(name):
			return f, name, problems
		default:
			if found == nil && f.Has(name) {
				found = f
			}
			for _, name := range f.Names() {
				if !ofApp || f.App == app {
					known = append(known, f.Target(name))
				}
			}
		}
	}
	if found != nil {
		return found, name, problems
	}
	problem := p.unknownServer(name, known)
	if ofApp {
		problem = unknownServerOf(app, name, known)
	}
	return nil, "", errors.Join(problems, &unknownServerError{problem}) // a file may be the cause of the second error
}

// namesConfig reports whether the user has named a configuration file, the only one that is read.
func (f *finder) namesConfig() bool { return f.Flags.config != "" || os.Getenv(config.PathEnv) != "" }

// unknownServerOf returns the error for a name with the prefix of an application.
func unknownServerOf(app, name string, known []string) error {
	if len(known) > 0 {
		return unknownName("server", name, known)
	}
	return fmt.Errorf("unknown server %q: found no servers in %s", name, strings.Join(configs.Paths(app), ", "))
}

func (f *finder) unknownServer(name string, known []string) error {
	problem := unknownName("server", name, known)
	if len(known) == 0 {
		problem = fmt.Errorf("unknown server %q: found no configuration file with servers (tried %s, and those of "+
			"applications)", name, strings.Join(config.Paths(f.Flags.config), ", "))
		if f.namesConfig() {
			problem = fmt.Errorf("unknown server %q: found no servers in %s", name, config.Paths(f.Flags.config)[0])
		}
	}
	if strings.ContainsAny(name, "/:") {
		problem = fmt.Errorf("%w; a URL begins with http:// or https://, and a command follows --", problem)
	}
	return problem
}

func checkServerURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("invalid server URL %.200q: want http://… or https://…", text)
	}
	return nil
}

func (p *finder) fromConfig(ctx context.Context, f *configs.File, name string, trust truster) (*target, error) {
	s, err := f.Server(name)
	if err == nil && s.Type != config.TypeStdio && !strings.Contains(s.URL, "${") {
		err = checkServerURL(s.URL) // before the user is asked about it
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	if err := checkTrust(ctx, f, s, trust); err != nil {
		return nil, err
	}
	variables, err := p.variables(ctx, f, s)
	if err != nil {
		return nil, err
	}
	if s, err = s.Expand(ctx, variables); err == nil && s.Type != config.TypeStdio {
		err = checkServerURL(s.URL)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return expandedTarget(s, f.Path), nil
}

// expandedTarget returns the target of a server of a file whose variables are expanded.
func expandedTarget(s *config.Server, path string) *target {
	if s.Type != config.TypeStdio {
		t := &target{url: s.URL, header: http.Header{}, from: path, secrets: s.Secrets()}
		for key, value := range s.Header {
			t.header.Set(key, value)
		}
		insecure, _ := rawjson.Get(s.Settings, "insecureHTTP")
		t.insecureHTTP = string(insecure) == "true"
		return t
	}
	t := &target{command: append([]string{s.Command}, s.Args...), directory: s.Dir, from: path, secrets: s.Secrets()}
	for _, key := range slices.Sorted(maps.Keys(s.Env)) {
		t.environment = append(t.environment, key+"="+s.Env[key])
	}
	return t
}

func (p *finder) addToTarget(ctx context.Context, t *target) error {
	f := p.Flags
	if t.host != nil {
		if len(f.header)+len(f.environment) > 0 || f.directory != "" {
			return errHostFlags
		}
		return nil
	}
	if t.url == "" && len(f.header) > 0 {
		return errors.New("--header is for URLs: the target is a command")
	}
	if t.url == "" && f.caCert != "" {
		return errors.New("--cacert is for URLs: the target is a command")
	}
	if err := p.Net.loadCACert(ctx); err != nil {
		return err
	}
	if t.url != "" && (len(f.environment) > 0 || f.directory != "") {
		return errors.New("--env and --cwd are for commands: the target is a URL")
	}
	for _, line := range f.header {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return fmt.Errorf("invalid --header %q: want Name:value", line)
		}
		t.header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if err := p.checkHTTP(t); err != nil {
		return err
	}
	for _, line := range f.environment {
		if strings.IndexByte(line, '=') <= 0 {
			return fmt.Errorf("invalid --env %q: want KEY=value", line)
		}
	}
	t.environment = append(t.environment, f.environment...)
	if f.directory != "" {
		t.directory = f.directory
	}
	return nil
}

// isCredentialHeader reports whether the name of a header suggests that its value is a credential.
func isCredentialHeader(name string) bool {
	name = strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	return slices.ContainsFunc([]string{"auth", "cookie", "token", "secret", "password", "passwd", "credential",
		"signature", "apikey", "accesskey", "privatekey", "sessionid"},
		func(word string) bool { return strings.Contains(name, word) })
}

// checkHTTP returns an error if credentials would be sent to another machine in the clear.
func (f *finder) checkHTTP(t *target) error {
	u, err := url.Parse(t.url)
	if err != nil || u.Scheme != "http" || f.Flags.insecureHTTP || t.insecureHTTP || netx.IsLocalHost(u.Hostname()) {
		return nil
	}
	for name := range t.header {
		if isCredentialHeader(name) {
			return fmt.Errorf("the header %q for http://%s would be readable on the network: use https, or "+
				"--insecure-http", name, u.Host)
		}
	}
	if u.User != nil {
		return fmt.Errorf("the credentials for http://%s would be readable on the network: use https, or "+
			"--insecure-http", u.Host)
	}
	return nil
}

func (d *dialer) transport(t *target) mcp.SessionTransport {
	if t.host != nil {
		return d.tracedTransport(t.host.open(), t)
	}
	if t.url != "" {
		opts := &mcphttp.TransportOptions{Header: t.header, Logger: d.IO.logger(), Client: d.Net.httpClient(),
			InsecureHTTP: d.Flags.insecureHTTP || t.insecureHTTP}
		if t.auth != nil {
			opts.Client = &http.Client{Transport: t.auth}
		}
		transport := mcphttp.NewTransport(t.url, opts)
		d.trace(transport, t)
		if d.Flags.verbose {
			return &tracedURL{transport, tracer{d.IO.Err}}
		}
		return transport
	}
	command := mcp.Command(t.command[0], t.command[1:]...)
	command.Env, command.Dir, command.Logger = t.environment, t.directory, d.IO.logger()
	command.Stderr = d.commandStderr
	d.trace(command, t)
	if d.Flags.verbose {
		command.Stderr = d.IO.Err
		return &tracedCommand{command, tracer{d.IO.Err}}
	}
	return command
}

// A session is the connection of a shell, which several commands use.
type session interface {
	// connection returns the client. It connects again if the connection has ended.
	connection(ctx context.Context, p *dialer) (*mcp.Client, error)
	// observe records the transport of a connection, and returns a transport that reports lost sessions.
	observe(t mcp.Transport) mcp.Transport
	// keeps reports whether the connection of a client stays open after a command.
	keeps(c *mcp.Client) bool
	// allowsLog reports whether another log message may be shown.
	allowsLog() bool
}

// connect connects to a target. In a shell it returns the client of the shell.
func (d *dialer) connect(ctx context.Context, t *target) (*mcp.Client, error) {
	if d.shared != nil {
		return d.shared.connection(ctx, d)
	}
	return d.dial(ctx, t)
}

func (d *dialer) dial(ctx context.Context, t *target) (*mcp.Client, error) {
	opts, err := d.clientOptions(ctx)
	if err == nil {
		err = d.openTrace()
	}
	if err != nil {
		return nil, usage(err)
	}
	d.showStart(t)
	if opts.Revision != "" {
		opts.ProbeTimeout = d.startLimit(t) // no other revision is tried
	}
	where := d.begin(t)
	if err := d.Login.authorize(ctx, t); err != nil {
		return nil, err
	}
	if t.auth != nil {
		maps.Copy(opts.Extensions, t.auth.Extensions())
	}
	t.contacted = true
	d.IO.Err.status("connecting to " + cleanLine(where) + " …")
	var c *mcp.Client
	var transport mcp.Transport = d.transport(t)
	if d.shared != nil {
		transport = d.shared.observe(transport)
	}
	err = within(ctx, d.startLimit(t), func(ctx context.Context) (err error) {
		c, err = mcp.Connect(ctx, transport, opts)
		return err
	}, func(error) error { return d.noAnswer(t) })
	d.IO.Err.done()
	if err != nil {
		_ = transport.Close() // this process is about to exit, and must not leave the server behind
		return nil, d.connectError(ctx, t, err)
	}
	if name := c.ServerInfo().Name; name != "" {
		const longest = 60
		named := fmt.Sprintf("%s (server name %q)", cleanLine(where), shorten(cleanLine(name), longest))
		d.Ask.serverName.Store(&named)
	}
	return c, nil
}

// showStart prints the command of a file that is about to be started.
func (d *dialer) showStart(t *target) {
	if t.from != "" && t.command != nil && (d.IO.Err.terminal || d.Flags.verbose) {
		d.IO.Err.printf("patchbay: starting %s (from %s)", cleanLine(t.String()), cleanLine(t.from))
	}
}

// begin makes a target the current one, and returns its URL or command.
func (d *dialer) begin(t *target) (where string) {
	where = t.String()
	d.Ask.serverName.Store(&where)
	d.current.Store(t)
	return where
}

// connectError returns the error of a command for that of connecting to a target.
func (d *dialer) connectError(ctx context.Context, t *target, err error) error {
	if errors.Is(err, errNoGateway) {
		return &coded{exitUnreachable, errNoGateway}
	}
	err = d.explainNoAnswer(ctx, t, err)
	if _, ok := errors.AsType[*command.WithheldError](err); ok {
		err = fmt.Errorf("%w (--env)", err)
	}
	return notServer(d.suggestEndpoint(ctx, t, fmt.Errorf("connect to %s: %w", t, err)))
}

// server names the server in questions, first by its URL or command, which it cannot choose.
func (a *asker) server() string { return *a.serverName.Load() }

// logLevels are the levels of log messages, the lowest first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func (d *dialer) clientOptions(ctx context.Context) (*mcp.ClientOptions, error) {
	f := d.Flags
	if f.timeout <= 0 {
		return nil, fmt.Errorf("invalid --timeout %v: want more than 0", f.timeout)
	}
	if f.revision != "" && !slices.Contains(driver.Revisions(), f.revision) {
		return nil, fmt.Errorf("invalid --revision %q: want one of %s", f.revision, strings.Join(revisions(), ", "))
	}
	if _, known := driver.LogSeverity(f.logLevel); f.logLevel != "" && !known {
		return nil, fmt.Errorf("invalid --log-level %q: want one of %s", f.logLevel, strings.Join(logLevels, ", "))
	}
	if f.answers != "" {
		var err error
		if d.Ask.answers, err = loadAnswers(ctx, f.answers); err != nil {
			return nil, err
		}
	}
	if f.sampleWith != "" {
		var err error
		if d.Ask.sampler, err = newSampler(f.sampleWith); err != nil {
			return nil, err
		}
	}
	opts := &mcp.ClientOptions{
		Info:   mcp.Implementation{Name: "patchbay", Version: version()},
		Elicit: d.Ask.elicit, ElicitURL: d.Ask.elicitURL, Sample: d.Ask.sample,
		Revision: f.revision, Timeout: f.timeout, Logger: d.IO.logger(), Middleware: []mcp.Middleware{d.countBytes},
		Observer: d.Observe.clientObserver(ctx),
	}
	if d.noQuestions {
		opts.Elicit, opts.ElicitURL, opts.Sample = nil, nil, nil
	}
	const probeTimeout = 10 * time.Second              // then an older revision is tried
	opts.ProbeTimeout = min(f.timeout/2, probeTimeout) // the rest is for that
	if f.revision != "" {
		opts.ProbeTimeout = f.timeout // no other revision is tried
	}
	if f.logLevel != "" {
		opts.LogLevel, opts.Log = mcp.LoggingLevel(f.logLevel), d.logged
	}
	if d.bridging { // the clients answer, and follow tasks themselves
		opts.Elicit, opts.ElicitURL, opts.Sample, opts.ForwardInput = nil, nil, nil, true
		opts.Timeout, opts.Extensions = bridgeTimeout(f.timeout), map[string]json.RawMessage{}
		opts.Middleware = append(opts.Middleware, d.explain)
		return opts, nil
	}
	started := func(_ context.Context, h *tasks.Handle) { d.active().taskStarted(h) }
	err := d.addRoots(opts)
	return tasks.Declare(opts, &tasks.ClientOptions{Listen: true, Started: started, Logger: opts.Logger}), err
}

// countBytes is a middleware that counts the bytes received and notes a successful tasks/cancel.
func (d *dialer) countBytes(next mcp.Handler) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		res, err := next.ServeMCP(ctx, req)
		p := d.active()
		if err == nil && req.Method == driver.MethodTasksCancel {
			p.taskCancelled.Store(true)
		}
		var rpc *mcp.Error
		if raw, ok := res.(mcp.RawResult); ok {
			p.received.Add(int64(len(raw)))
			if strings.HasSuffix(req.Method, "/list") {
				_, continued := req.Param("cursor")
				p.noteMissing(raw, !continued)
			}
		} else if errors.As(err, &rpc) {
			p.received.Add(int64(len(rpc.Message) + len(rpc.Data)))
		}
		return res, err
	})
}

func (d *dialer) addRoots(opts *mcp.ClientOptions) error {
	var roots []mcp.Root
	for _, dir := range d.Flags.roots {
		full, err := filepath.Abs(dir)
		if err != nil {
			return fmt.Errorf("--root: %w", err)
		}
		slashed := filepath.ToSlash(full)
		if !strings.HasPrefix(slashed, "/") {
			slashed = "/" + slashed
		}
		roots = append(roots, mcp.Root{URI: (&url.URL{Scheme: "file", Path: slashed}).String(),
			Name: filepath.Base(full)})
	}
	if roots != nil {
		opts.Roots = func(context.Context) ([]mcp.Root, error) { return roots, nil }
	}
	return nil
}

func (d *dialer) logged(_ context.Context, m *mcp.LoggingMessage) {
	name := ""
	if m.Logger != "" {
		name = cleanLine(m.Logger) + ": "
	}
	text := m.Text()
	if rawjson.Kind(m.Data) == '{' {
		text = cleanJSON(string(m.Data)) // with its other fields
	}
	line := fmt.Sprintf("[%s] %s%s", cleanLine(string(m.Level)), name, clean(text))
	if d.shared == nil || d.shared.allowsLog() {
		d.IO.Err.printf("%s", line)
	}
}

// revisions returns all revisions, the newest first.
func revisions() []string {
	all := driver.Revisions()
	slices.Reverse(all)
	return all
}

func newestRevision() string { return revisions()[0] }
