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

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// defaultAddr is fixed, so that a client's configuration stays right from one start to the next.
const defaultAddr = "127.0.0.1:8765"

// self is the package of the program.
const self = "github.com/patchbay-mcp/patchbay/cmd/patchbay"

// endpoint is the path of the server.
const endpoint = "/mcp"

func (p *program) serveCommand() *cobra.Command {
	var addr, auth, where string
	var stdio bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the demo server",
		Long: `Serve a demo server that has one of everything, to try a client on. It prints its URL and
what to paste into a client's configuration.

With --auth demo the server wants a login, and is its own authorization server: the whole way
of a login can be tried on one machine. One of its tools wants more than the others.

Tasks are kept in a file in your directory for what lasts, so that a server that was killed
finds them again when it is started at the same address: what waited goes on waiting, results
are there, and what ran runs again or has failed, as the tool says. Servers without an address
of their own, such as those over stdio, take the first file that no other one has. --tasks
names another file, or keeps them in memory.`,
		Example: `  patchbay serve
  patchbay serve --stdio
  patchbay serve --auth demo`,
		Args: nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkAuth(auth, addr, stdio); err != nil {
				return err
			}
			switch {
			case auth != "":
				return p.serveProtected(cmd.Context(), addr, where)
			case stdio:
				return p.serveStdio(cmd.Context(), where)
			}
			return p.serve(cmd.Context(), addr, where)
		},
	}
	cmd.Flags().StringVar(&addr, "addr", defaultAddr, "`host:port` to listen on; no host is this machine alone, port 0 picks a free one")
	cmd.Flags().StringVar(&auth, "auth", "", "want a login; the only `kind` is demo")
	cmd.Flags().StringVar(&where, "tasks", "", "keep tasks in this `file`, or in memory; without it, where serve --help says")
	cmd.Flags().BoolVar(&stdio, "stdio", false, "serve on standard input and output instead of HTTP")
	return cmd
}

// nothing refuses arguments.
func nothing(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(fmt.Errorf("unexpected argument %q", args[0]))
	}
	return nil
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: `  patchbay version`,
		Args:    nothing,
		RunE: func(*cobra.Command, []string) error {
			if p.flags.json {
				p.output.value(map[string]any{"version": version(), "revisions": revisions()})
				return nil
			}
			p.output.printf("patchbay %s", version())
			return nil
		},
	}
}

// serveStdio serves one client until it goes or ctx ends.
func (p *program) serveStdio(ctx context.Context, where string) error {
	d, err := p.newDemo(ctx, where, "", demo.Options{})
	if err != nil {
		return err
	}
	return errors.Join(d.Server.Run(ctx, mcp.Stdio()), d.end())
}

// serve serves on HTTP until ctx ends.
func (p *program) serve(ctx context.Context, addr, where string) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", withLoopbackHost(addr))
	if err != nil {
		return &coded{exitFailure, fmt.Errorf("%w (choose another address with --addr)", err)}
	}
	d, err := p.newDemo(ctx, where, addrName(addr, listener.Addr()), demo.Options{})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if err := announce(p.output.w, "http://"+listener.Addr().String()+endpoint); err != nil {
		return errors.Join(err, listener.Close(), d.end())
	}
	return errors.Join(mcphttp.Serve(ctx, listener, endpoint, mcphttp.NewHandler(d.Server, nil)), d.end())
}

// onLoopback completes an address that names no host: a demo is not for the network unless it is told to be.
func withLoopbackHost(addr string) string {
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// announce prints where the server is and how clients are told of it.
func announce(w io.Writer, url string) error {
	command, args := selfCommand()
	overHTTP, err := configuration(map[string]any{"type": "http", "url": url})
	if err != nil {
		return err
	}
	overStdio, err := configuration(map[string]any{"command": command, "args": args})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, `The demo server speaks every revision of MCP at %s

Client configuration over HTTP:
%s

Client configuration over stdio:
%s

Stop with Ctrl-C.
`, url, overHTTP, overStdio)
	return err
}

// configuration returns one server's entry in the form that most clients read.
func configuration(server map[string]any) (string, error) {
	b, err := json.MarshalIndent(map[string]any{"mcpServers": map[string]any{"patchbay-demo": server}}, "", "  ")
	return string(b), err
}

// selfCommand returns the command line that starts this program on stdio, from wherever a client runs it.
func selfCommand() (command string, args []string) {
	exe, err := os.Executable()
	if err == nil && !isTransient(exe) {
		return exe, []string{"serve", "--stdio"}
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Sum != "" { // it was fetched, by its version
		return "go", []string{"run", self + "@" + info.Main.Version, "serve", "--stdio"}
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	return "go", []string{"-C", dir, "run", self, "serve", "--stdio"}
}

// isTransient reports whether an executable is one that `go run` built: it lies in a folder for what is temporary or in
// the build cache, and is gone one day.
func isTransient(exe string) bool {
	return builtByGoRun.MatchString(filepath.ToSlash(exe))
}

// builtByGoRun matches go-build1234/b001/exe/name, and 12/1234…-d/name in the cache.
var builtByGoRun = regexp.MustCompile(`/go-build\d+/|/[0-9a-f]{2}/[0-9a-f]{64}-d/[^/]+$`)

// version is the version of the module, as the build recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	return strings.Trim(info.Main.Version, "()")
}
