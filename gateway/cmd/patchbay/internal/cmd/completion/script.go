package completion

import (
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

// NewCmdCompletion returns the command "completion".
func NewCmdCompletion(f *cmdutil.Factory) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", powerShell}
	return &cobra.Command{
		Use:                   "completion SHELL",
		Short:                 "Print the completion script of a shell: bash, zsh, fish, powershell",
		DisableFlagsInUseLine: true,
		ValidArgs:             shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return exit.UsageError(errors.New("want one SHELL: " + flags.OneOf(shells)))
			case args[0] == powerShell:
				return cmd.Root().GenPowerShellCompletionWithDesc(f.IO.Out.W)
			}
			script, err := completionScripts.ReadFile("completions/patchbay." + args[0])
			if err != nil {
				return exit.UsageError(term.UnknownName("shell", args[0], shells))
			}
			f.IO.Out.Write(string(script))
			return nil
		},
	}
}
