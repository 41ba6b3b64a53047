package completion

import (
	"context"
	"embed"
	"errors"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// completionScripts has a script for each shell but PowerShell, whose script is that of cobra.
//
//go:embed completions
var completionScripts embed.FS

const powerShell = "powershell"

var shells = []string{"bash", "zsh", "fish", powerShell}

// Options are the arguments of "completion".
type Options struct {
	*cmdutil.Factory
	Root  *cobra.Command
	Shell string
}

// NewCmdCompletion returns the command "completion".
func NewCmdCompletion(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	return &cobra.Command{
		Use:                   "completion SHELL",
		Short:                 "Print the completion script of a shell: bash, zsh, fish, powershell",
		DisableFlagsInUseLine: true,
		ValidArgs:             shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.UsageError(errors.New("want one SHELL: " + flags.OneOf(shells)))
			}
			return cmdutil.Or(run, printScript)(cmd.Context(), &Options{f, cmd.Root(), args[0]})
		},
	}
}

func printScript(_ context.Context, o *Options) error {
	if o.Shell == powerShell {
		return o.Root.GenPowerShellCompletionWithDesc(o.IO.Out.W)
	}
	script, err := completionScripts.ReadFile("completions/patchbay." + o.Shell)
	if err != nil {
		return exit.UsageError(term.UnknownName("shell", o.Shell, shells))
	}
	o.IO.Out.Write(string(script))
	return nil
}
