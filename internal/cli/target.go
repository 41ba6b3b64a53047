package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// A target is a server to talk to: a command or a URL.
type target struct {
	command     []string
	environment []string
	directory   string

	url    string
	header http.Header

	name string           // as it was called on the command line
	from string           // the configuration file that names it
	auth *oauth.Transport // authorizes the requests; nil if nothing does
	met  bool             // it has been spoken to
}

// String is how users are told of the target.
func (t *target) String() string {
	if t.url != "" {
		return t.url
	}
	var all []string
	for _, word := range t.command {
		if word == "" || strings.ContainsAny(word, " \t\n\"'\\") {
			word = strconv.Quote(word)
		}
		all = append(all, word)
	}
	return strings.Join(all, " ")
}

// target finds the target in what follows a verb, and gives the other words.
func (p *program) target(cmd *cobra.Command, args []string) (t *target, words []string, err error) {
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		if dash == len(args) {
			return nil, nil, errors.New("no command follows the two dashes")
		}
		t = &target{command: args[dash:]}
		words = args[:dash]
	} else {
		if len(args) == 0 {
			return nil, nil, fmt.Errorf("no target, want %s", cmd.UseLine())
		}
		if t, err = p.named(args[0]); err != nil {
			return nil, nil, errors.Join(err, misplaced(args))
		}
		t.name = args[0]
		words = args[1:]
	}
	return t, words, p.addToTarget(t)
}

// misplaced says that a URL among the words behind what is no target may have been meant for it; nil if there is none.
func misplaced(args []string) error {
	if strings.Contains(args[0], "://") {
		return nil
	}
	for _, word := range args[1:] {
		if checkServerURL(word) == nil {
			return fmt.Errorf("the target comes first: is it %s?", cleanLine(word))
		}
	}
	return nil
}

// named finds a target by its URL or its name in a configuration file.
func (p *program) named(name string) (*target, error) {
	if strings.Contains(name, "://") {
		return &target{url: name, header: http.Header{}}, checkServerURL(name)
	}
	configs, err := host.LoadConfigs(p.flags.config)
	var known []string
	for _, c := range configs {
		if c.Has(name) {
			if err != nil {
				p.screen.printf("patchbay: not looked at: %s", clean(err.Error()))
			}
			return fromConfig(c, name)
		}
		known = append(known, c.Names()...)
	}
	problem := unknown("server", name, known)
	if len(known) == 0 {
		problem = fmt.Errorf("no server %q: no configuration names one (looked at %s)", name, strings.Join(host.ConfigFiles(p.flags.config), ", "))
	}
	if strings.ContainsAny(name, "/:") {
		problem = fmt.Errorf("%w; a URL begins with http:// or https://, a command stands behind two dashes", problem)
	}
	return nil, errors.Join(problem, err)
}

func checkServerURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is no URL of a server, want http://… or https://…", text)
	}
	return nil
}

func fromConfig(c *host.Config, name string) (*target, error) {
	s, err := c.Server(name)
	if err == nil {
		s, err = s.Expand(os.LookupEnv)
	}
	if err == nil && s.Type != host.TypeStdio {
		err = checkServerURL(s.URL)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	if s.Type != host.TypeStdio {
		t := &target{url: s.URL, header: http.Header{}, from: c.Path}
		for key, value := range s.Header {
			t.header.Set(key, value)
		}
		return t, nil
	}
	t := &target{command: append([]string{s.Command}, s.Args...), directory: s.Dir, from: c.Path}
	for _, key := range slices.Sorted(maps.Keys(s.Env)) {
		t.environment = append(t.environment, key+"="+s.Env[key])
	}
	return t, nil
}

// addToTarget adds what the flags say.
func (p *program) addToTarget(t *target) error {
	f := &p.flags
	if t.url == "" && len(f.header) > 0 {
		return errors.New("--header is for a URL, and the target is a command")
	}
	if t.url != "" && (len(f.environment) > 0 || f.directory != "") {
		return errors.New("--env and --cwd are for a command, and the target is a URL")
	}
	for _, line := range f.header {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return fmt.Errorf("--header %q: want Name:value", line)
		}
		t.header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	for _, line := range f.environment {
		if strings.IndexByte(line, '=') <= 0 {
			return fmt.Errorf("--env %q: want KEY=value", line)
		}
	}
	t.environment = append(t.environment, f.environment...)
	if f.directory != "" {
		t.directory = f.directory
	}
	return nil
}

// transport returns the way to a target.
func (p *program) transport(t *target) mcp.Transport {
	if t.url != "" {
		opts := &mcphttp.TransportOptions{Header: t.header, Logger: p.logger()}
		if t.auth != nil {
			opts.Client = &http.Client{Transport: t.auth}
		}
		transport := mcphttp.NewTransport(t.url, opts)
		if p.flags.verbose {
			return &tracedURL{transport, p.screen}
		}
		return transport
	}
	command := mcp.Command(t.command[0], t.command[1:]...)
	command.Env, command.Dir, command.Logger = t.environment, t.directory, p.logger()
	if p.flags.verbose {
		command.Stderr = p.screen
		return &tracedCommand{command, p.screen}
	}
	return command
}

// logger takes what the client itself has to tell. Warnings are for everybody: that a tool was left out is one.
func (p *program) logger() *slog.Logger {
	level := slog.LevelWarn
	if p.flags.verbose {
		level = slog.LevelDebug
	}
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	return slog.New(slog.NewTextHandler(p.screen, &slog.HandlerOptions{Level: level, ReplaceAttr: plain}))
}

// connect makes a client of a target.
func (p *program) connect(ctx context.Context, t *target) (*mcp.Client, error) {
	opts, err := p.clientOptions()
	if err != nil {
		return nil, usage(err)
	}
	if t.from != "" && t.command != nil && (p.screen.terminal || p.flags.verbose) {
		p.screen.printf("patchbay: starting %s (from %s)", cleanLine(t.String()), cleanLine(t.from))
	}
	where := t.String()
	p.asking.Store(&where)
	p.asked.Store(t)
	if err := p.authorize(ctx, t); err != nil {
		return nil, err
	}
	t.met = true
	p.screen.status("connecting to " + cleanLine(where) + " …")
	c, err := mcp.Connect(ctx, p.transport(t), opts)
	p.screen.done()
	if err != nil {
		return nil, notThere(fmt.Errorf("connect to %s: %w", t, err))
	}
	if name := c.Server().Name; name != "" {
		const longest = 60
		who := fmt.Sprintf("%s (it calls itself %q)", cleanLine(where), shorten(cleanLine(name), longest))
		p.asking.Store(&who)
	}
	return c, nil
}

// who names the server in questions: by where it is, which it cannot choose, beside what it calls itself.
func (p *program) who() string { return *p.asking.Load() }

// logLevels are the levels of log messages, the least first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// clientOptions are those that the flags say.
func (p *program) clientOptions() (*mcp.ClientOptions, error) {
	f := &p.flags
	if f.timeout <= 0 {
		return nil, fmt.Errorf("--timeout is %v, want more than nothing", f.timeout)
	}
	if _, known := wire.ParseRevision(f.revision); f.revision != "" && !known {
		return nil, fmt.Errorf("--revision %q: want one of %s", f.revision, strings.Join(revisions(), ", "))
	}
	if _, known := wire.LogSeverity(f.logLevel); f.logLevel != "" && !known {
		return nil, fmt.Errorf("--log-level %q: want one of %s", f.logLevel, strings.Join(logLevels, ", "))
	}
	if f.answers != "" {
		var err error
		if p.answers, err = loadAnswers(f.answers); err != nil {
			return nil, err
		}
	}
	opts := &mcp.ClientOptions{
		Info:   mcp.Implementation{Name: "patchbay", Version: version()},
		Elicit: p.elicit, ElicitURL: p.elicitURL, Sample: p.sample,
		Revision: f.revision, Timeout: f.timeout, Logger: p.logger(), Middleware: []mcp.Middleware{p.measure},
	}
	const probing = 10 * time.Second // a server that is silent for longer is taken for an old one
	opts.ProbeTimeout = min(f.timeout, probing)
	if f.revision != "" {
		opts.ProbeTimeout = f.timeout // there is nothing to fall back on
	}
	if f.logLevel != "" {
		opts.LogLevel, opts.Log = mcp.LogLevel(f.logLevel), p.logged
	}
	err := p.addRoots(opts)
	return tasks.Declare(opts, &tasks.ClientOptions{Listen: true, Started: p.started, Logger: opts.Logger}), err
}

// measure counts what answers are made of, and notes that a task was called off.
func (p *program) measure(next mcp.Handler) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		res, err := next.ServeMCP(ctx, req)
		if err == nil && req.Method == wire.MethodTasksCancel {
			p.cancelled.Store(true)
		}
		var said *mcp.Error
		if raw, ok := res.(mcp.RawResult); ok {
			p.took.Add(int64(len(raw)))
		} else if errors.As(err, &said) {
			p.took.Add(int64(len(said.Message) + len(said.Data)))
		}
		return res, err
	})
}

// started is told of a call that has become a task.
func (p *program) started(_ context.Context, h *tasks.Handle) {
	if p.began != nil {
		p.began(h)
	}
}

// addRoots offers the folders of --root, if there are any.
func (p *program) addRoots(opts *mcp.ClientOptions) error {
	var roots []mcp.Root
	for _, dir := range p.flags.roots {
		full, err := filepath.Abs(dir)
		if err != nil {
			return fmt.Errorf("--root: %w", err)
		}
		slashed := filepath.ToSlash(full)
		if !strings.HasPrefix(slashed, "/") {
			slashed = "/" + slashed
		}
		roots = append(roots, mcp.Root{URI: (&url.URL{Scheme: "file", Path: slashed}).String(), Name: filepath.Base(full)})
	}
	if roots != nil {
		opts.Roots = func(context.Context) ([]mcp.Root, error) { return roots, nil }
	}
	return nil
}

// logged shows a log message of the server.
func (p *program) logged(_ context.Context, m *mcp.LogMessage) {
	name := ""
	if m.Logger != "" {
		name = cleanLine(m.Logger) + ": "
	}
	text := m.Text()
	if jsonscan.Kind(m.Data) == '{' {
		text = cleanJSON(string(m.Data)) // its other fields matter as well
	}
	p.screen.printf("[%s] %s%s", cleanLine(string(m.Level)), name, clean(text))
}

// revisions are those that there are, the newest first.
func revisions() (all []string) {
	for _, r := range wire.Revisions() {
		all = append(all, r.String())
	}
	slices.Reverse(all)
	return all
}

func newestRevision() string { return revisions()[0] }
