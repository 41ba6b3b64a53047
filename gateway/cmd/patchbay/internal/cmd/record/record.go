// Package record records, serves recordings, and bridges servers.
package record

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/recording"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// NewCmdRecord returns the command "record".
func NewCmdRecord(f *cmdutil.Factory) *cobra.Command {
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
				return exit.UsageError(fmt.Errorf("missing FILE: the recording\nusage: %s", cmd.UseLine()))
			}
			t, words, err := cmdutil.ParseTarget(f, cmd, rest)
			if err != nil {
				return exit.UsageError(err)
			}
			if dash > 1 || dash < 0 && len(words) > 0 {
				return exit.UsageError(fmt.Errorf("wrong number of arguments\nusage: %s", cmd.UseLine()))
			}
			if f.Flags.Trace != "" {
				return exit.UsageError(errors.New("--trace is not for record, which writes the same to FILE"))
			}
			f.Flags.Trace = args[0]
			f.Client.Current.Store(t)
			return bridge(cmd.Context(), f, t, addr)
		},
	}
	cmdutil.AddHTTPFlag(f, cmd, &addr)
	return cmd
}

// NewCmdMock returns the command "mock".
func NewCmdMock(f *cmdutil.Factory) *cobra.Command {
	var addr string
	var delay bool
	cmd := &cobra.Command{
		Use:                   "mock FILE",
		Short:                 "Serve a recording: a mock server with the answers of a real server (replay)",
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.UsageError(fmt.Errorf("wrong number of arguments\nusage: %s", cmd.UseLine()))
			}
			return mock(cmd.Context(), f, args[0], addr, delay)
		},
	}
	cmdutil.AddHTTPFlag(f, cmd, &addr)
	cmd.Flags().BoolVar(&delay, "delay", false, "pause as the recorded server did, for at most an hour each time")
	return cmd
}

func mock(ctx context.Context, p *cmdutil.Factory, file, addr string, delay bool) error {
	if addr != "" {
		if err := cmdutil.CheckBridgeAddr(addr); err != nil {
			return exit.UsageError(err)
		}
	}
	f, err := openRecording(file)
	if err != nil {
		return exit.UsageError(err)
	}
	rec, err := recording.Read(f)
	_ = f.Close() // it was only read
	if err != nil {
		return exit.UsageError(fmt.Errorf("%s: %w", file, err))
	}
	h := rec.Handler(delay)
	if addr == "" {
		return mcp.Serve(ctx, h, cmdutil.Stdio(p), &mcp.ServeOptions{Logger: p.IO.Logger()})
	}
	return cmdutil.ServeLocal(ctx, p, h, addr)
}

// openRecording opens a file to read it. It must reject a pipe first: opening a pipe waits for a
// program that writes, and no signal ends that.
func openRecording(file string) (*os.File, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file: write the recording to a regular file first", file)
	}
	return os.Open(file)
}
