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

func recordCommand(f *factory) *cobra.Command {
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
			t, words, err := parseTarget(f, cmd, rest)
			if err != nil {
				return usage(err)
			}
			if dash > 1 || dash < 0 && len(words) > 0 {
				return usage(fmt.Errorf("wrong number of arguments\nusage: %s", cmd.UseLine()))
			}
			if f.Flags.trace != "" {
				return usage(errors.New("--trace is not for record, which writes the same to FILE"))
			}
			f.Flags.trace = args[0]
			f.Client.current.Store(t)
			return bridge(cmd.Context(), f, t, addr)
		},
	}
	addHTTPFlag(f, cmd, &addr)
	return cmd
}

func mockCommand(f *factory) *cobra.Command {
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
			return mock(cmd.Context(), f, args[0], addr, delay)
		},
	}
	addHTTPFlag(f, cmd, &addr)
	cmd.Flags().BoolVar(&delay, "delay", false, "pause as the recorded server did, for at most an hour each time")
	return cmd
}

func mock(ctx context.Context, p *factory, file, addr string, delay bool) error {
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
		return mcp.Serve(ctx, h, stdio(p), &mcp.ServeOptions{Logger: p.IO.logger()})
	}
	return serveLocal(ctx, p, h, addr)
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
func serveLocal(ctx context.Context, f *factory, h mcp.Handler, addr string) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", withLoopbackHost(addr))
	if err != nil {
		return &coded{exitFailure, err}
	}
	defer listener.Close()
	address := "http://" + listener.Addr().String() + endpoint
	key := httpKey(f)
	switch {
	case f.Flags.json:
		f.IO.Out.value(httpReport{URL: address, Headers: keyHeaders(key)})
	case key != "":
		f.IO.Out.printf("%s\nAuthorization: Bearer %s", address, key)
	default:
		f.IO.Out.printf("%s", address)
	}
	handler := mcphttp.NewHandler(h, &mcphttp.Options{Logger: f.IO.logger()})
	return mcphttp.Serve(ctx, listener, endpoint, handler, nameEndpoint(address), requireKey(key), asLocalUser)
}

// An httpReport contains what the configuration of a client of a server over HTTP needs.
type httpReport struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
}

// openTrace opens the file of --trace before the first connection. It is closed when the program ends.
func (d *dialer) openTrace() (err error) {
	if d.Flags.trace == "" || d.recorder != nil {
		return nil
	}
	if d.recorder, err = recording.Open(d.Flags.trace); err != nil {
		return fmt.Errorf("open the recording: %w", err)
	}
	return nil
}

// trace records the messages of a transport, if --trace is set.
func (d *dialer) trace(transport mcp.Transport, t *target) {
	if d.recorder != nil {
		mcp.Trace(transport, d.recorder.Trace("patchbay "+version(), t.publicName()))
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

func (d *dialer) closeTrace() error {
	if d.recorder == nil {
		return nil
	}
	if err := d.recorder.Close(); err != nil {
		return &coded{exitFailure, fmt.Errorf("write the recording: %w", err)}
	}
	return nil
}
