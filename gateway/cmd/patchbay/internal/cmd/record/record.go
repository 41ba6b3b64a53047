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
)

// RecordOptions are the flags of "record".
type RecordOptions struct {
	BridgeOptions
	File string
}

// NewCmdRecord returns the command "record".
func NewCmdRecord(f *cmdutil.Factory, run cmdutil.Run[*RecordOptions]) *cobra.Command {
	o := &RecordOptions{}
	o.Factory = f
	cmd := &cobra.Command{
		Use:                   "record FILE TARGET | record FILE -- COMMAND…",
		Short:                 "Record the messages between a client and a server, as a proxy",
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			rest, dash := args, cmd.ArgsLenAtDash()
			if dash < 0 && len(args) > 0 {
				rest = args[1:]
			}
			if len(args) == 0 || dash == 0 {
				return exit.UsageError(fmt.Errorf("missing FILE: the recording\nusage: %s", cmd.UseLine()))
			}
			if o.Target, o.Words, err = cmdutil.ParseTarget(f, cmd, rest); err != nil {
				return exit.UsageError(err)
			}
			if dash > 1 || dash < 0 && len(o.Words) > 0 {
				return exit.UsageError(fmt.Errorf("wrong number of arguments\nusage: %s", cmd.UseLine()))
			}
			o.File, o.Words = args[0], nil
			f.Client.Current.Store(o.Target)
			return cmdutil.Or(run, record)(cmd.Context(), o)
		},
	}
	o.HTTP.AddFlags(cmd)
	return cmd
}

func record(ctx context.Context, o *RecordOptions) error {
	if o.Flags.Trace != "" {
		return exit.UsageError(errors.New("--trace is not for record, which writes the same to FILE"))
	}
	o.Flags.Trace = o.File
	return bridge(ctx, &o.BridgeOptions)
}

// MockOptions are the flags of "mock". The Words contain the file.
type MockOptions struct {
	cmdutil.Invocation
	HTTP  cmdutil.HTTPOptions
	Delay bool // as the recorded server did
}

// NewCmdMock returns the command "mock".
func NewCmdMock(f *cmdutil.Factory, run cmdutil.Run[*MockOptions]) *cobra.Command {
	o := &MockOptions{}
	const short = "Serve a recording: a mock server with the answers of a real server (replay)"
	cmd := cmdutil.Command(f, "mock FILE", short, cobra.ExactArgs(1), o, cmdutil.Or(run, mock))
	o.HTTP.AddFlags(cmd)
	cmd.Flags().BoolVar(&o.Delay, "delay", false, "pause as the recorded server did, for at most an hour each time")
	return cmd
}

func mock(ctx context.Context, o *MockOptions) error {
	if err := o.HTTP.Check(); err != nil {
		return err
	}
	f, err := openRecording(o.Words[0])
	if err != nil {
		return exit.UsageError(err)
	}
	rec, err := recording.Read(f)
	_ = f.Close() // it was only read
	if err != nil {
		return exit.UsageError(fmt.Errorf("%s: %w", o.Words[0], err))
	}
	return o.HTTP.Serve(ctx, o.Factory, rec.Handler(o.Delay))
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
