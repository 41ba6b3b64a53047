// Package root builds the tree of commands and runs it.
package root

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/completion"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// Run runs patchbay with args, without the program name, and returns its exit code: see `patchbay
// help exit-codes`. Cancelling ctx interrupts it. The user is prompted if stdin and stderr are a
// terminal.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	f := newRun(stdin, stdout, stderr)
	f.IO.Interactive = term.IsTerminal(stdin) && f.IO.Err.Terminal
	return runCommandLine(ctx, f, args)
}

// newRun returns the factory of one run of patchbay.
func newRun(stdin io.Reader, stdout, stderr io.Writer) *cmdutil.Factory {
	f := cmdutil.New(term.NewStreams(stdin, stdout, stderr), &flags.Flags{})
	f.Config.HostNamed = func(ctx context.Context, name string) (*target.Target, error) {
		return hosting.Named(ctx, f, name)
	}
	f.Config.HostNames = func(typed string) []string { return hosting.Names(f, typed) }
	return f
}

func runCommandLine(ctx context.Context, f *cmdutil.Factory, args []string) int {
	if completion.CompleteCommand(f, args) {
		return exit.OK
	}
	return execute(ctx, f, rootCommand(f), args)
}

// execute runs a command line, and closes what it opened.
func execute(ctx context.Context, f *cmdutil.Factory, root *cobra.Command, args []string) int {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return cmdutil.FlagError(f, cmd, args, err) })
	root.SetArgs(args)
	root.SetIn(f.IO.In.R)
	root.SetOut(f.IO.Out.W)
	root.SetErr(f.IO.Err.W)
	defer f.Exit.Run()
	f.Exit.Add(cmdutil.ExitExport, func() {
		if f.Observe.Observed != nil {
			f.Observe.Observed.End()
		}
	})
	return cmdutil.Execute(ctx, f, root)
}

func rootCommand(f *cmdutil.Factory) *cobra.Command {
	root := &cobra.Command{
		Use:                        "patchbay",
		Short:                      "Model Context Protocol (MCP) from the command line",
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		Args:                       cmdutil.KnownSubcommand,
	}
	// A version template would link text/template. See ADR 41.
	version := root.Flags().Bool("version", false, "version for patchbay")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *version {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "patchbay", build.Version())
			return err
		}
		return cmdutil.ShowHelp(f, cmd, args)
	}
	root.AddGroup(&cobra.Group{ID: cmdutil.GroupServer, Title: "Server commands:"},
		&cobra.Group{ID: cmdutil.GroupAuth, Title: "Authorization:"}, &cobra.Group{ID: cmdutil.GroupOther,
			Title: "Other commands:"})
	root.SetHelpCommandGroupID(cmdutil.GroupOther)
	cmdutil.AddFlags(f, root)
	root.AddCommand(commands(f)...)
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = helpExists
	}
	cmdutil.AddHelp(root)
	cmdutil.SetHelp(f, root)
	checkArguments(root)
	return root
}
