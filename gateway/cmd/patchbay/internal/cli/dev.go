package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/dev"
	"github.com/patchbay-mcp/patchbay/internal/childproc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxDevLine bounds a line of traffic, in characters.
const maxDevLine = 160

// maxDevMessage is the largest message of the server, in bytes; that of mcp.Command.
const maxDevMessage = 16 << 20

func (p *program) devCommand() *cobra.Command {
	var ignore []string
	var addr string
	cmd := &cobra.Command{
		Use:                   "dev -- COMMAND…",
		Short:                 "Run a stdio server for a client and restart it when its files change",
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 || len(args) == 0 {
				return usage(errors.New("missing command: put one such as \"go run .\" after --"))
			}
			for _, pattern := range ignore {
				if _, err := filepath.Match(pattern, ""); err != nil {
					return usage(fmt.Errorf("invalid --ignore %q: %w", pattern, err))
				}
			}
			t := &target{command: args}
			if err := p.addToTarget(cmd.Context(), t); err != nil {
				return usage(err)
			}
			if addr != "" {
				if err := checkBridgeAddr(addr); err != nil {
					return usage(err)
				}
				return p.devHTTP(cmd.Context(), t, ignore, addr)
			}
			return p.dev(cmd.Context(), t, ignore, p.stdio())
		},
	}
	cmd.Flags().StringArrayVar(&ignore, "ignore", nil,
		"ignore files and directories that match this `pattern`, such as data or *.json; may be repeated")
	p.addHTTPFlag(cmd, &addr)
	return cmd
}

// devHTTP serves clients over HTTP until ctx ends. All of them share one connection to the server,
// as with bridge.
func (p *program) devHTTP(ctx context.Context, t *target, ignore []string, addr string) error {
	ctx, cancel := context.WithCancel(ctx)
	listener, err := listenLocal(ctx, addr)
	if err != nil {
		cancel()
		return err
	}
	defer listener.Close()
	ours, theirs := mcp.Pipe()
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- p.dev(ctx, t, ignore, theirs)
	}()
	defer func() {
		cancel()
		for range ended { // until it has ended
		}
	}()
	p.bridging = true
	opts, err := p.clientOptions(ctx)
	if err != nil {
		return usage(err)
	}
	opts.ProbeTimeout = opts.Timeout // the first build may fail, and then the client waits for a change
	where := t.String()
	p.serverName.Store(&where)
	p.current.Store(t)
	c, err := mcp.Connect(ctx, mcp.NewConnTransport(ours), opts)
	if err != nil {
		return err
	}
	defer p.close(c)
	return p.serveOn(ctx, listener, mcp.Forward(c))
}

// dev serves a client until it closes its connection or ctx ends.
func (p *program) dev(ctx context.Context, t *target, ignore []string, client mcp.Conn) error {
	dir, err := filepath.Abs(t.directory) // the current one by default
	if err != nil {
		return usage(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := func(line string) { p.screen.printf("dev: %s", shorten(cleanLine(line), maxDevLine)) }
	watcher := &dev.Watcher{Dir: dir, Ignore: ignore, Log: log}
	log("watching " + dir + "; starting " + t.String())
	return dev.Run(ctx, dev.Options{
		Client: client, Start: func() (mcp.Conn, error) { return p.startDev(t) },
		Changes: watcher.Changes(ctx), Log: log,
	})
}

// startDev starts the command with the environment of this process: it is the user's own, as in a
// shell.
func (p *program) startDev(t *target) (mcp.Conn, error) {
	cmd := exec.CommandContext(context.Background(), t.command[0], t.command[1:]...)
	cmd.Dir = t.directory
	cmd.Env = slices.Concat(os.Environ(), t.environment)
	conn, err := childproc.Start(cmd, childproc.Options{
		Name: t.command[0], Stderr: p.screen, Logger: p.logger(), MaxMessage: maxDevMessage, ExitError: devExit})
	if err != nil {
		return nil, err // not a nil *Process in an interface
	}
	return conn, nil
}

// devExit returns the error of a server that has exited by itself, with the last line that it wrote.
func devExit(e childproc.Exit) error {
	text := fmt.Sprintf("it has exited with code %d", e.Code)
	if e.Signal != "" {
		text = "it was ended by the signal " + e.Signal
	}
	lines := strings.FieldsFunc(e.Stderr, func(r rune) bool { return r == '\n' || r == '\r' })
	last := slices.DeleteFunc(lines, func(line string) bool {
		return strings.TrimSpace(line) == "" || strings.HasPrefix(line, "exit status ")
	})
	if len(last) > 0 {
		text += ": " + shorten(cleanLine(last[len(last)-1]), maxDevLine)
	}
	return errors.New(text)
}
