// Package serve runs the demo server.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/launch"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// defaultAddr contains a fixed port, so that client configurations stay valid.
const defaultAddr = "127.0.0.1:8765"

// Options are the flags of "serve".
type Options struct {
	cmdutil.Invocation
	Addr, Auth, Ops string
	Tasks           string // the file, or "memory"
	Console         string // the address of the console; empty for none
	Views           cmdutil.Views
	Stdio, NoAuth   bool
	Pprof           bool // at Ops
	Quiet           bool // do not print requests
}

// NewCmdServe returns the command "serve".
func NewCmdServe(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	cmd := cmdutil.Command(f, "serve", "Run the demo server", cmdutil.NoArguments, o, cmdutil.Or(run, serve))
	cmd.Flags().StringVar(&o.Addr, "addr", defaultAddr,
		"`host:port` to listen on; the default host is 127.0.0.1, port 0 chooses a free port")
	cmd.Flags().StringVar(&o.Auth, "auth", "", "require a login; the only `kind` is demo")
	cmd.Flags().StringVar(&o.Tasks, "tasks", "",
		"store tasks in this `file`, or in \"memory\" (default a file in the state directory)")
	cmd.Flags().BoolVar(&o.Stdio, "stdio", false, "serve on standard input and output instead of HTTP")
	cmd.Flags().BoolVar(&o.Quiet, "quiet", false, "print no line for each request over HTTP")
	cmd.Flags().StringVar(&o.Ops, "ops", "",
		"serve /metrics, /healthz and /readyz at this `host:port`")
	cmd.Flags().BoolVar(&o.Pprof, "pprof", false, "with --ops on a loopback address, serve profiles at /debug/pprof/")
	cmd.Flags().VarPF(&flags.Address{Value: &o.Console, Default: console.DefaultAddr}, "console", "",
		"serve a web console, at this `host:port`").NoOptDefVal = "true"
	cmd.Flags().StringArrayVar(&f.Flags.Store, "store", nil,
		"share all state at this `URL`, such as redis://HOST")
	o.Views.AddFlags(cmd, true)
	cmdutil.AddLogFormat(f, cmd)
	cmdutil.AddNoAuthFlag(cmd, &o.NoAuth)
	return cmd
}

func serve(ctx context.Context, o *Options) error {
	o.IO.UseLogFormat()
	if err := o.check(); err != nil {
		return exit.UsageError(err)
	}
	if o.Stdio {
		return serveStdio(ctx, o.Factory, o)
	}
	return serveHTTP(ctx, o.Factory, o)
}

// check returns an error for flags that do not go together.
func (o *Options) check() error {
	switch {
	case o.Ops == "" && o.Pprof:
		return errors.New("--pprof needs --ops: profiles are served at its address")
	case o.Ops != "" && o.Stdio:
		return observe.ErrOpsStdio
	case len(o.Flags.Store) > 0 && (o.Stdio || o.Auth != ""):
		return errors.New("--store is for HTTP without --auth: the demo of a login serves users at its own address")
	case o.Console != "" && o.Stdio:
		return errors.New("--console is for HTTP: use \"patchbay console -- patchbay serve --stdio\"")
	}
	if err := o.Views.Check(o.Console != ""); err != nil {
		return err
	}
	if err := checkAuth(o.Auth, o.Addr, o.Stdio); err != nil || !o.NoAuth {
		return err
	}
	return cmdutil.CheckNoAuth(observe.WithLoopbackHost(o.Addr))
}

// NewCmdVersion returns the command "version".
func NewCmdVersion(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.Plain(f, "version", "Print the version", cmdutil.NoArguments, version)
}

func version(_ context.Context, o *cmdutil.Invocation) error {
	if o.PrintedJSON(map[string]any{"version": build.Version(), "revisions": connect.Revisions()}) {
		return nil
	}
	o.IO.Out.Printf("patchbay %s", build.Version())
	return nil
}

// serveStdio serves a client until the end of its input or of ctx.
func serveStdio(ctx context.Context, f *cmdutil.Factory, o *Options) error {
	b, err := f.Observe.Start(ctx, &observe.Options{Options: telemetry.Options{Service: observe.ServiceDemo},
		Lenient: true})
	if err != nil {
		return err
	}
	defer b.End()
	d, err := newDemo(ctx, f, o.Tasks, "", demo.Options{Observer: b.McpObserver()})
	if err != nil {
		return err
	}
	if err := b.ObserveStats(d.Server, d.Tasks); err != nil {
		return errors.Join(err, d.end())
	}
	return errors.Join(d.Server.Run(ctx, mcp.Stdio()), d.end())
}

// serveHTTP serves HTTP until ctx is done.
func serveHTTP(ctx context.Context, f *cmdutil.Factory, o *Options) error {
	observed := &observe.Options{Options: telemetry.Options{Service: observe.ServiceDemo},
		Public: !cmdutil.IsLoopbackAddr(observe.WithLoopbackHost(o.Addr))}
	if o.Ops != "" {
		observed.Ops = &observe.OpsOptions{Addr: o.Ops, Server: observe.WithLoopbackHost(o.Addr), Pprof: o.Pprof}
	}
	b, err := f.Observe.Start(ctx, observed)
	if err != nil {
		return err
	}
	defer b.End()
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", observe.WithLoopbackHost(o.Addr))
	if err != nil {
		return &exit.Error{Code: exit.Failure, Err: fmt.Errorf("%w (use --addr for another address)", err)}
	}
	defer listener.Close()
	stores, err := hosting.OpenStores(ctx, f, &hosting.Config{}, o.Flags.Store)
	if err != nil {
		return err
	}
	opts, served := demo.Options{Observer: b.McpObserver()}, &mcphttp.Options{Logger: f.IO.Logger()}
	shareDemo(stores, o, &opts, served)
	if o.Auth == authDemo {
		opts.Scopes = DemoScopes()
	}
	if !o.Quiet {
		opts.Middleware = []mcp.Middleware{func(next mcp.Handler) mcp.Handler { return printRequests(f, next) }}
	}
	var ring *capture.Ring
	if o.Console != "" {
		ring = capture.New(nil)
		opts.Middleware = append(opts.Middleware, recordClients(ring.Middleware("demo")))
	}
	d, err := newDemo(ctx, f, o.Tasks, addrName(o.Addr, listener.Addr()), opts)
	if err != nil {
		return err
	}
	if ring != nil {
		stop, err := launch.Demo(ctx, f, o.Console, o.Views, recorded{d.Server}, ring)
		if err != nil {
			return errors.Join(err, d.end())
		}
		defer stop()
	}
	h := mcphttp.NewHandler(d.Server, served)
	if err := b.ObserveStats(d.Server, d.Tasks, h); err != nil {
		return errors.Join(err, d.end())
	}
	b.Ready(ctx, func() any { return readiness{stores.Readiness()} })
	f.Observe.AnnounceOps(b)
	if o.Auth == authDemo {
		return errors.Join(serveProtected(ctx, f, listener, o.Addr, h), d.end())
	}
	address := "http://" + listener.Addr().String() + connect.Endpoint
	key := cmdutil.HTTPKey(f, o.NoAuth)
	stores.Announce(f)
	err = announce(f.IO.Out.W, address, key)
	if err == nil {
		serving, l := stores.Serving(ctx, listener)
		err = mcphttp.Serve(serving, l, connect.Endpoint, h, connect.NameEndpoint(address), cmdutil.RequireKey(key))
	}
	return errors.Join(err, d.end())
}

// readiness is the condition of the demo server, for /readyz?verbose.
type readiness struct {
	Stores []hosting.StoreReadiness `json:"stores,omitempty"` // absent without --store
}

// A recorded server marks the requests of the console, which the ring records at the connection of the console.
type recorded struct{ *mcp.Server }

type recordedKey struct{}

// ServeMCP serves a request of the console.
func (s recorded) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	return s.Server.ServeMCP(context.WithValue(ctx, recordedKey{}, true), req)
}

// recordClients leaves out the requests of the console.
func recordClients(record mcp.Middleware) mcp.Middleware {
	return func(next mcp.Handler) mcp.Handler {
		recording := record(next)
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if ctx.Value(recordedKey{}) != nil {
				return next.ServeMCP(ctx, req)
			}
			return recording.ServeMCP(ctx, req)
		})
	}
}

// printRequests prints a line for each request: method, tool or prompt, outcome and duration. It
// omits arguments and results, which may be secret.
func printRequests(f *cmdutil.Factory, next mcp.Handler) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		began := time.Now()
		res, err := next.ServeMCP(ctx, req)
		outcome := "ok"
		if call, ok := res.(*mcp.CallToolResult); ok && call.IsError {
			outcome = "tool error"
		}
		if _, ok := res.(*mcp.InputRequiredResult); ok {
			outcome = "asks for input"
		}
		if err != nil {
			outcome = "error"
			if e, ok := errors.AsType[*mcp.Error](err); ok {
				outcome = fmt.Sprintf("error %d", e.Code)
			}
		}
		what := req.Method
		if name, ok := req.Param("name"); ok {
			name, _ := rawjson.Unquote(name)
			what += " " + name
		}
		f.IO.Err.Printf("%s: %s, %v", term.Shorten(term.CleanLine(what), term.MaxNameShown), outcome,
			time.Since(began).Round(10*time.Microsecond))
		return res, err
	})
}

func announce(w io.Writer, url, key string) error {
	command, args := userdir.SelfCommand("serve", "--stdio")
	self, run := userdir.SelfCommand("call", url, "add", "a=1", "b=2")
	for _, word := range run {
		self += " " + term.ShellWord(word)
	}
	_, err := fmt.Fprintf(w, `The demo server is running at %s
In another terminal, run:

  %s%s

Client configuration over HTTP:
%s

Client configuration over stdio:
%s

Stop with Ctrl-C.
`, url, self, cmdutil.KeyFlag(key),
		demoConfig(cmdutil.ConfigEntry{Type: "http", URL: url, Headers: cmdutil.KeyHeaders(key)}),
		demoConfig(cmdutil.ConfigEntry{Command: command, Args: args}))
	return err
}
