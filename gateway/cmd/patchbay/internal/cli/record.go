package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/recording"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func (p *program) recordCommand() *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:                   "record FILE TARGET | record FILE -- COMMAND…",
		Short:                 "Record the messages between a client and a server, as a proxy",
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			rest, dash := args, cmd.ArgsLenAtDash()
			if dash < 0 && len(args) > 0 {
				rest = args[1:]
			}
			if len(args) == 0 || dash == 0 {
				return usage(fmt.Errorf("missing FILE: the recording\nusage: %s", cmd.UseLine()))
			}
			t, words, err := p.target(cmd, rest)
			if err != nil {
				return usage(err)
			}
			if dash > 1 || dash < 0 && len(words) > 0 {
				return usage(fmt.Errorf("wrong number of arguments\nusage: %s", cmd.UseLine()))
			}
			if p.flags.trace != "" {
				return usage(errors.New("--trace is not for record, which writes the same to FILE"))
			}
			p.flags.trace = args[0]
			p.current.Store(t)
			return p.bridge(cmd.Context(), t, addr)
		},
	}
	p.addHTTPFlag(cmd, &addr)
	return cmd
}

func (p *program) mockCommand() *cobra.Command {
	var addr string
	var delay bool
	cmd := &cobra.Command{
		Use:                   "mock FILE",
		Short:                 "Serve a recording: a mock server with the answers of a real one (replay)",
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(fmt.Errorf("wrong number of arguments\nusage: %s", cmd.UseLine()))
			}
			return p.mock(cmd.Context(), args[0], addr, delay)
		},
	}
	p.addHTTPFlag(cmd, &addr)
	cmd.Flags().BoolVar(&delay, "delay", false, "pause as the recorded server did, for at most an hour each time")
	return cmd
}

func (p *program) mock(ctx context.Context, file, addr string, delay bool) error {
	if addr != "" {
		if err := checkBridgeAddr(addr); err != nil {
			return usage(err)
		}
	}
	f, err := openRecording(file)
	if err != nil {
		return usage(err)
	}
	rec, err := recording.Read(f)
	_ = f.Close() // it was only read
	if err != nil {
		return usage(fmt.Errorf("%s: %w", file, err))
	}
	h := rec.Handler(delay)
	if addr == "" {
		return mcp.Serve(ctx, h, p.stdio(), &mcp.ServeOptions{Logger: p.logger()})
	}
	return p.serveLocal(ctx, h, addr)
}

// openRecording opens a file to read it. A pipe is refused before: opening one waits for a program
// that writes, and no signal ends that.
func openRecording(file string) (*os.File, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file: write the recording to one first", file)
	}
	return os.Open(file)
}

// serveLocal serves HTTP on an address of this machine until ctx is done. It prints the URL, and the
// key that clients must send.
func (p *program) serveLocal(ctx context.Context, h mcp.Handler, addr string) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", withLoopbackHost(addr))
	if err != nil {
		return &coded{exitFailure, err}
	}
	defer listener.Close()
	address := "http://" + listener.Addr().String() + endpoint
	key := p.httpKey()
	switch {
	case p.flags.json:
		p.output.value(httpReport{URL: address, Headers: keyHeaders(key)})
	case key != "":
		p.output.printf("%s\nAuthorization: Bearer %s", address, key)
	default:
		p.output.printf("%s", address)
	}
	handler := mcphttp.NewHandler(h, &mcphttp.Options{Logger: p.logger()})
	return mcphttp.Serve(ctx, listener, endpoint, handler, nameEndpoint(address), requireKey(key), asLocalUser)
}

// An httpReport contains what the configuration of a client of a server over HTTP needs.
type httpReport struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
}

// openTrace opens the file of --trace before the first connection. It is closed when the program ends.
func (p *program) openTrace() (err error) {
	if p.flags.trace == "" || p.recorder != nil {
		return nil
	}
	if p.recorder, err = recording.Open(p.flags.trace); err != nil {
		return fmt.Errorf("open the recording: %w", err)
	}
	return nil
}

// trace records the messages of a transport, if --trace is set.
func (p *program) trace(transport mcp.Transport, t *target) {
	if p.recorder != nil {
		mcp.Trace(transport, p.recorder.Trace("patchbay "+version(), t.publicName()))
	}
}

// publicName returns a URL without what may be secret, or the name of a program without its
// arguments.
func (t *target) publicName() string {
	if t.url == "" {
		return filepath.Base(t.command[0])
	}
	return publicURL(t.url)
}

func (p *program) closeTrace() error {
	if p.recorder == nil {
		return nil
	}
	if err := p.recorder.Close(); err != nil {
		return &coded{exitFailure, fmt.Errorf("write the recording: %w", err)}
	}
	return nil
}
