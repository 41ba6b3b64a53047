// Package connect connects to the server of a command.
package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcp/driver/command"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Close closes a connection. It returns no error, because the command already holds its result.
func (d *Dialer) Close(c *mcp.Client) {
	if d.Shell != nil && d.Shell.Keeps(c) {
		return
	}
	const statusAfter = time.Second
	shown := make(chan struct{})
	late := time.AfterFunc(statusAfter, func() {
		d.IO.Err.Status("waiting for the server to exit …")
		close(shown)
	})
	err := c.Close()
	if !late.Stop() {
		<-shown
		d.IO.Err.Done()
	}
	if err != nil && d.Flags.Verbose {
		d.IO.Err.Printf("patchbay: close: %s", term.Clean(err.Error()))
	}
}

// ErrNoGateway is returned if no gateway is running.
var ErrNoGateway = errors.New("no gateway of this configuration is running: start it with \"patchbay gateway\"; if " +
	"it runs with another file, pass the same --config here")

// Transport returns a transport to a target.
func (d *Dialer) Transport(t *target.Target) mcp.SessionTransport {
	if t.Host != nil {
		return d.tracedTransport(t.Host.Open(), t)
	}
	if t.URL != "" {
		opts := &mcphttp.TransportOptions{Header: t.Header, Logger: d.IO.Logger(), Client: d.Net.HTTPClient(),
			InsecureHTTP: d.Flags.InsecureHTTP || t.InsecureHTTP}
		if t.Auth != nil {
			opts.Client = &http.Client{Transport: t.Auth}
		}
		transport := mcphttp.NewTransport(t.URL, opts)
		d.trace(transport, t)
		if d.Flags.Verbose {
			return &tracedURL{transport, tracer{d.IO.Err}}
		}
		return transport
	}
	command := mcp.Command(t.Command[0], t.Command[1:]...)
	command.Env, command.Dir, command.Logger = t.Environment, t.Directory, d.IO.Logger()
	command.Stderr = d.CommandStderr
	d.trace(command, t)
	if d.Flags.Verbose {
		command.Stderr = d.IO.Err
		return &tracedCommand{command, tracer{d.IO.Err}}
	}
	return command
}

// A Shell runs several commands about a server over a shared connection.
type Shell interface {
	// Connection returns the client. It must connect again if the connection has ended.
	Connection(ctx context.Context, p *Dialer) (*mcp.Client, error)
	// Observe records the transport of a connection, and returns a transport that reports lost sessions.
	Observe(t mcp.Transport) mcp.Transport
	// Keeps reports whether the connection of a client stays open after a command.
	Keeps(c *mcp.Client) bool
	// AllowsLog reports whether another log message may be shown.
	AllowsLog() bool
	// Server returns the target of all commands.
	Server() *target.Target
	// CompleteNames completes the arguments of a command, whose names list returns.
	CompleteNames(ctx context.Context, verb string, list func(context.Context, *mcp.Client) []string,
		words []string) []string
	// NotedTasks completes the ids of tasks.
	NotedTasks(words []string, typed string) []string
}

// Connect connects to a target. In a shell it returns the client of the shell.
func (d *Dialer) Connect(ctx context.Context, t *target.Target) (*mcp.Client, error) {
	if d.Shell != nil {
		return d.Shell.Connection(ctx, d)
	}
	return d.Dial(ctx, t)
}

// Dial connects to a target.
func (d *Dialer) Dial(ctx context.Context, t *target.Target) (*mcp.Client, error) {
	opts, err := d.ClientOptions(ctx)
	if err == nil {
		err = d.OpenTrace()
	}
	if err != nil {
		return nil, exit.UsageError(err)
	}
	d.ShowStart(t)
	limit := d.LimitStart(t, opts)
	where := d.Begin(t)
	if err := d.Login.Authorize(ctx, t); err != nil {
		return nil, err
	}
	if t.Auth != nil {
		maps.Copy(opts.Extensions, t.Auth.Extensions())
	}
	t.Contacted = true
	d.IO.Err.Status("connecting to " + term.CleanLine(where) + " …")
	var c *mcp.Client
	var transport mcp.Transport = d.Transport(t)
	if d.Shell != nil {
		transport = d.Shell.Observe(transport)
	}
	err = Within(ctx, limit, func(ctx context.Context) (err error) {
		c, err = mcp.Connect(ctx, transport, opts)
		return err
	}, func(error) error { return d.NoAnswer(t) })
	d.IO.Err.Done()
	if err != nil {
		_ = transport.Close() // this process is about to exit, and must not leave the server behind
		return nil, d.ConnectError(ctx, t, err)
	}
	if name := c.ServerInfo().Name; name != "" {
		const longest = 60
		named := fmt.Sprintf("%s (server name %q)", term.CleanLine(where), term.Shorten(term.CleanLine(name), longest))
		d.Ask.ServerName.Store(&named)
	}
	return c, nil
}

// ShowStart prints the command of a file that is about to be started.
func (d *Dialer) ShowStart(t *target.Target) {
	if t.From != "" && t.Command != nil && (d.IO.Err.Terminal || d.Flags.Verbose) {
		d.IO.Err.Printf("patchbay: starting %s (from %s)", term.CleanLine(t.String()), term.CleanLine(t.From))
	}
}

// Begin makes a target the current target, and returns its URL or command.
func (d *Dialer) Begin(t *target.Target) (where string) {
	where = t.String()
	d.Ask.ServerName.Store(&where)
	d.Current.Store(t)
	return where
}

// ConnectError returns the error of a command for that of connecting to a target.
func (d *Dialer) ConnectError(ctx context.Context, t *target.Target, err error) error {
	if errors.Is(err, ErrNoGateway) {
		return &exit.Error{Code: exit.Unreachable, Err: ErrNoGateway}
	}
	err = d.explainNoAnswer(ctx, t, err)
	if _, ok := errors.AsType[*command.WithheldError](err); ok {
		err = fmt.Errorf("%w (--env)", err)
	}
	return exit.NotServer(d.suggestEndpoint(ctx, t, fmt.Errorf("connect to %s: %w", t, err)))
}

// LogLevels are the levels of log messages, the lowest first.
var LogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// ClientOptions returns the options of a client, from the flags of the command line.
func (d *Dialer) ClientOptions(ctx context.Context) (*mcp.ClientOptions, error) {
	f := d.Flags
	if f.Timeout <= 0 {
		return nil, fmt.Errorf("invalid --timeout %v: want more than 0", f.Timeout)
	}
	if f.Revision != "" && !slices.Contains(driver.Revisions(), f.Revision) {
		return nil, fmt.Errorf("invalid --revision %q: want one of %s", f.Revision, strings.Join(Revisions(), ", "))
	}
	if _, known := driver.LogSeverity(f.LogLevel); f.LogLevel != "" && !known {
		return nil, fmt.Errorf("invalid --log-level %q: want one of %s", f.LogLevel, strings.Join(LogLevels, ", "))
	}
	if f.Answers != "" {
		var err error
		if d.Ask.Answers, err = question.LoadAnswers(ctx, f.Answers); err != nil {
			return nil, err
		}
	}
	if f.SampleWith != "" {
		var err error
		if d.Ask.Sampler, err = question.NewSampler(f.SampleWith); err != nil {
			return nil, err
		}
	}
	opts := &mcp.ClientOptions{
		Info:   mcp.Implementation{Name: "patchbay", Version: build.Version()},
		Elicit: d.Ask.Elicit, ElicitURL: d.Ask.ElicitURL, Sample: d.Ask.Sample,
		Revision: f.Revision, Timeout: f.Timeout, Logger: d.IO.Logger(), Middleware: []mcp.Middleware{d.countBytes},
		Observer: d.Observe.ClientObserver(ctx),
	}
	if d.Adjust != nil {
		d.Adjust(opts)
	}
	if d.NoQuestions {
		opts.Elicit, opts.ElicitURL, opts.Sample = nil, nil, nil
	}
	const probeTimeout = 10 * time.Second              // then an older revision is tried
	opts.ProbeTimeout = min(f.Timeout/2, probeTimeout) // the rest is for that
	if f.Revision != "" {
		opts.ProbeTimeout = f.Timeout // no other revision is tried
	}
	if f.LogLevel != "" {
		opts.LogLevel, opts.Log = mcp.LoggingLevel(f.LogLevel), d.logged
	}
	if d.Bridging { // the clients answer, and follow tasks themselves
		opts.Elicit, opts.ElicitURL, opts.Sample, opts.ForwardInput = nil, nil, nil, true
		opts.Timeout, opts.Extensions = bridgeTimeout(f.Timeout), map[string]json.RawMessage{}
		opts.Middleware = append(opts.Middleware, d.Explain)
		return opts, nil
	}
	started := func(_ context.Context, h *tasks.Handle) { d.active().TaskStarted(h) }
	err := d.addRoots(opts)
	return tasks.Declare(opts, &tasks.ClientOptions{Listen: true, Started: started, Logger: opts.Logger}), err
}

// countBytes is a middleware that counts the bytes received and notes a successful tasks/cancel.
func (d *Dialer) countBytes(next mcp.Handler) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		res, err := next.ServeMCP(ctx, req)
		p := d.active()
		if err == nil && req.Method == driver.MethodTasksCancel {
			p.TaskCancelled.Store(true)
		}
		var rpc *mcp.Error
		if raw, ok := res.(mcp.RawResult); ok {
			p.Received.Add(int64(len(raw)))
			if strings.HasSuffix(req.Method, "/list") {
				_, continued := req.Param("cursor")
				p.noteMissing(raw, !continued)
			}
		} else if errors.As(err, &rpc) {
			p.Received.Add(int64(len(rpc.Message) + len(rpc.Data)))
		}
		return res, err
	})
}

func (d *Dialer) addRoots(opts *mcp.ClientOptions) error {
	var roots []mcp.Root
	for _, dir := range d.Flags.Roots {
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

func (d *Dialer) logged(_ context.Context, m *mcp.LoggingMessage) {
	name := ""
	if m.Logger != "" {
		name = term.CleanLine(m.Logger) + ": "
	}
	text := m.Text()
	if rawjson.Kind(m.Data) == '{' {
		text = term.CleanJSON(string(m.Data)) // with its other fields
	}
	line := fmt.Sprintf("[%s] %s%s", term.CleanLine(string(m.Level)), name, term.Clean(text))
	if d.Shell == nil || d.Shell.AllowsLog() {
		d.IO.Err.Printf("%s", line)
	}
}

// Revisions returns all revisions, the newest first.
func Revisions() []string {
	all := driver.Revisions()
	slices.Reverse(all)
	return all
}

// NewestRevision returns the newest revision of the protocol.
func NewestRevision() string { return Revisions()[0] }
