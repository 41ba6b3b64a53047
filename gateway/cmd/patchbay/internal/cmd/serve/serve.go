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
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
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

// serveOptions are the flags of serve.
type serveOptions struct {
	addr, auth, tasks, ops string
	stdio, pprof, quiet    bool
}

// NewCmdServe returns the command "serve".
func NewCmdServe(f *cmdutil.Factory) *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the demo server",
		Args:  cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.IO.UseLogFormat()
			if err := o.check(); err != nil {
				return err
			}
			if f.NoAuth {
				if err := cmdutil.CheckNoAuth(observe.WithLoopbackHost(o.addr)); err != nil {
					return exit.UsageError(err)
				}
			}
			if o.stdio {
				return serveStdio(cmd.Context(), f, o)
			}
			return serveHTTP(cmd.Context(), f, o)
		},
	}
	cmd.Flags().StringVar(&o.addr, "addr", defaultAddr,
		"`host:port` to listen on; the default host is 127.0.0.1, port 0 chooses a free port")
	cmd.Flags().StringVar(&o.auth, "auth", "", "require a login; the only `kind` is demo")
	cmd.Flags().StringVar(&o.tasks, "tasks", "",
		"store tasks in this `file`, or in \"memory\" (default a file in the state directory)")
	cmd.Flags().BoolVar(&o.stdio, "stdio", false, "serve on standard input and output instead of HTTP")
	cmd.Flags().BoolVar(&o.quiet, "quiet", false, "print no line for each request over HTTP")
	cmd.Flags().StringVar(&o.ops, "ops", "",
		"serve /metrics (Prometheus), /healthz and /readyz at this `host:port`, such as 127.0.0.1:9464")
	cmd.Flags().BoolVar(&o.pprof, "pprof", false, "with --ops on a loopback address, serve profiles at /debug/pprof/")
	cmdutil.AddLogFormat(f, cmd)
	cmdutil.AddNoAuthFlag(f, cmd)
	return cmd
}

// check returns an error for flags that do not go together.
func (o *serveOptions) check() error {
	switch {
	case o.ops == "" && o.pprof:
		return exit.UsageError(errors.New("--pprof needs --ops: profiles are served at its address"))
	case o.ops != "" && o.stdio:
		return exit.UsageError(observe.ErrOpsStdio)
	}
	return checkAuth(o.auth, o.addr, o.stdio)
}

// NewCmdVersion returns the command "version".
func NewCmdVersion(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cmdutil.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			if f.Flags.JSON {
				f.IO.Out.Value(map[string]any{"version": build.Version(), "revisions": connect.Revisions()})
				return nil
			}
			f.IO.Out.Printf("patchbay %s", build.Version())
			return nil
		},
	}
}

// serveStdio serves a client until the end of its input or of ctx.
func serveStdio(ctx context.Context, f *cmdutil.Factory, o *serveOptions) error {
	b, err := f.Observe.Start(ctx, &observe.Options{Options: telemetry.Options{Service: observe.ServiceDemo},
		Lenient: true})
	if err != nil {
		return err
	}
	defer b.End()
	d, err := newDemo(ctx, f, o.tasks, "", demo.Options{Observer: b.McpObserver()})
	if err != nil {
		return err
	}
	if err := b.ObserveStats(d.Server, d.Tasks); err != nil {
		return errors.Join(err, d.end())
	}
	return errors.Join(d.Server.Run(ctx, mcp.Stdio()), d.end())
}

// serveHTTP serves HTTP until ctx is done.
func serveHTTP(ctx context.Context, f *cmdutil.Factory, o *serveOptions) error {
	observed := &observe.Options{Options: telemetry.Options{Service: observe.ServiceDemo},
		Public: !cmdutil.IsLoopbackAddr(observe.WithLoopbackHost(o.addr))}
	if o.ops != "" {
		observed.Ops = &observe.OpsOptions{Addr: o.ops, Server: observe.WithLoopbackHost(o.addr), Pprof: o.pprof}
	}
	b, err := f.Observe.Start(ctx, observed)
	if err != nil {
		return err
	}
	defer b.End()
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", observe.WithLoopbackHost(o.addr))
	if err != nil {
		return &exit.Error{Code: exit.Failure, Err: fmt.Errorf("%w (use --addr for another address)", err)}
	}
	defer listener.Close()
	opts := demo.Options{Observer: b.McpObserver()}
	if o.auth == authDemo {
		opts.Scopes = DemoScopes()
	}
	if !o.quiet {
		opts.Middleware = []mcp.Middleware{func(next mcp.Handler) mcp.Handler { return printRequests(f, next) }}
	}
	d, err := newDemo(ctx, f, o.tasks, addrName(o.addr, listener.Addr()), opts)
	if err != nil {
		return err
	}
	h := mcphttp.NewHandler(d.Server, &mcphttp.Options{Logger: f.IO.Logger()})
	if err := b.ObserveStats(d.Server, d.Tasks, h); err != nil {
		return errors.Join(err, d.end())
	}
	b.Ready(ctx, func() any { return nil })
	f.Observe.AnnounceOps(b)
	if o.auth == authDemo {
		return errors.Join(serveProtected(ctx, f, listener, o.addr, h), d.end())
	}
	address := "http://" + listener.Addr().String() + connect.Endpoint
	key := cmdutil.HTTPKey(f)
	err = announce(f.IO.Out.W, address, key)
	if err == nil {
		err = mcphttp.Serve(ctx, listener, connect.Endpoint, h, connect.NameEndpoint(address), cmdutil.RequireKey(key))
	}
	return errors.Join(err, d.end())
}

// printRequests prints a line for each request: method, tool or prompt, outcome and duration. It omits
// arguments and results, which may be secret.
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

func demoConfig(server cmdutil.ConfigEntry) string {
	return cmdutil.ClientConfig("mcpServers", "patchbay-demo", server)
}
