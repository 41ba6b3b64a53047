package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// defaultAddr has a fixed port, so that client configurations stay valid.
const defaultAddr = "127.0.0.1:8765"

// self is the import path of the program.
const self = "github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay"

// endpoint is the path of the server.
const endpoint = "/mcp"

// serveOptions are the flags of serve.
type serveOptions struct {
	addr, auth, tasks, ops string
	stdio, pprof, quiet    bool
}

func serveCommand(f *factory) *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the demo server",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.IO.useLogFormat()
			if err := o.check(); err != nil {
				return err
			}
			if f.noAuth {
				if err := checkNoAuth(withLoopbackHost(o.addr)); err != nil {
					return usage(err)
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
	addLogFormat(f, cmd)
	addNoAuthFlag(f, cmd)
	return cmd
}

// check returns an error for flags that do not go together.
func (o *serveOptions) check() error {
	switch {
	case o.ops == "" && o.pprof:
		return usage(errors.New("--pprof needs --ops: profiles are served at its address"))
	case o.ops != "" && o.stdio:
		return usage(errOpsStdio)
	}
	return checkAuth(o.auth, o.addr, o.stdio)
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(fmt.Errorf("unexpected argument %q", args[0]))
	}
	return nil
}

func versionCommand(f *factory) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			if f.Flags.json {
				f.IO.Out.value(map[string]any{"version": version(), "revisions": revisions()})
				return nil
			}
			f.IO.Out.printf("patchbay %s", version())
			return nil
		},
	}
}

// serveStdio serves one client until the end of its input or of ctx.
func serveStdio(ctx context.Context, f *factory, o *serveOptions) error {
	b, err := f.Observe.observe(ctx, &observeOptions{Options: telemetry.Options{Service: serviceDemo}, lenient: true})
	if err != nil {
		return err
	}
	defer b.end()
	d, err := newDemo(ctx, f, o.tasks, "", demo.Options{Observer: b.mcpObserver()})
	if err != nil {
		return err
	}
	if err := b.observeStats(d.Server, d.Tasks); err != nil {
		return errors.Join(err, d.end())
	}
	return errors.Join(d.Server.Run(ctx, mcp.Stdio()), d.end())
}

// serveHTTP serves HTTP until ctx is done.
func serveHTTP(ctx context.Context, f *factory, o *serveOptions) error {
	observed := &observeOptions{Options: telemetry.Options{Service: serviceDemo},
		public: !isLoopbackAddr(withLoopbackHost(o.addr))}
	if o.ops != "" {
		observed.ops = &opsOptions{addr: o.ops, server: withLoopbackHost(o.addr), pprof: o.pprof}
	}
	b, err := f.Observe.observe(ctx, observed)
	if err != nil {
		return err
	}
	defer b.end()
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", withLoopbackHost(o.addr))
	if err != nil {
		return &coded{exitFailure, fmt.Errorf("%w (use --addr for another address)", err)}
	}
	defer listener.Close()
	opts := demo.Options{Observer: b.mcpObserver()}
	if o.auth == authDemo {
		opts.Scopes = demoScopes()
	}
	if !o.quiet {
		opts.Middleware = []mcp.Middleware{func(next mcp.Handler) mcp.Handler { return printRequests(f, next) }}
	}
	d, err := newDemo(ctx, f, o.tasks, addrName(o.addr, listener.Addr()), opts)
	if err != nil {
		return err
	}
	h := mcphttp.NewHandler(d.Server, &mcphttp.Options{Logger: f.IO.logger()})
	if err := b.observeStats(d.Server, d.Tasks, h); err != nil {
		return errors.Join(err, d.end())
	}
	b.ready(ctx, func() any { return nil })
	f.Observe.announceOps(b)
	if o.auth == authDemo {
		return errors.Join(serveProtected(ctx, f, listener, o.addr, h), d.end())
	}
	address := "http://" + listener.Addr().String() + endpoint
	key := httpKey(f)
	err = announce(f.IO.Out.w, address, key)
	if err == nil {
		err = mcphttp.Serve(ctx, listener, endpoint, h, nameEndpoint(address), requireKey(key))
	}
	return errors.Join(err, d.end())
}

// printRequests prints a line for each request: method, tool or prompt, outcome and duration. It omits
// arguments and results, which may be secret.
func printRequests(f *factory, next mcp.Handler) mcp.Handler {
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
		f.IO.Err.printf("%s: %s, %v", shorten(cleanLine(what), maxNameShown), outcome,
			time.Since(began).Round(10*time.Microsecond))
		return res, err
	})
}

// withLoopbackHost adds a loopback host to an address without one: the demo is not for the network.
func withLoopbackHost(addr string) string {
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

func announce(w io.Writer, url, key string) error {
	command, args := selfCommand("serve", "--stdio")
	self, run := selfCommand("call", url, "add", "a=1", "b=2")
	for _, word := range run {
		self += " " + shellWord(word)
	}
	_, err := fmt.Fprintf(w, `The demo server is running at %s
In another terminal, run:

  %s%s

Client configuration over HTTP:
%s

Client configuration over stdio:
%s

Stop with Ctrl-C.
`, url, self, keyFlag(key), demoConfig(configEntry{Type: "http", URL: url, Headers: keyHeaders(key)}),
		demoConfig(configEntry{Command: command, Args: args}))
	return err
}

// A configEntry is a server in a client configuration.
type configEntry struct {
	Type    string            `json:"type,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
}

// clientConfig returns a configuration with one server. Most clients have their servers in the member
// mcpServers.
func clientConfig(member, name string, server configEntry) string {
	b, _ := json.MarshalIndent(map[string]any{member: map[string]any{name: server}}, "", "  ") // texts only
	return string(b)
}

func demoConfig(server configEntry) string {
	return clientConfig("mcpServers", "patchbay-demo", server)
}

// selfCommand returns the command line that starts this program with args, in any directory.
func selfCommand(args ...string) (command string, all []string) {
	exe, err := os.Executable()
	if err == nil && !isTransient(exe) {
		return exe, args
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Sum != "" { // downloaded by go run
		return "go", append([]string{"run", self + "@" + info.Main.Version}, args...)
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	return "go", append([]string{"-C", dir, "run", self}, args...)
}

// isTransient reports whether an executable is a temporary file of `go run`.
func isTransient(exe string) bool {
	return builtByGoRun.MatchString(filepath.ToSlash(exe))
}

// builtByGoRun matches go-build1234/b001/exe/name, and 12/1234…-d/name in the cache.
var builtByGoRun = regexp.MustCompile(`/go-build\d+/|/[0-9a-f]{2}/[0-9a-f]{64}-d/[^/]+$`)

// version returns the version of the module in the build information.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	return strings.Trim(info.Main.Version, "()")
}
