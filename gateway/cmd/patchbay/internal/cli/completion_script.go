package cli

import (
	"embed"
	"errors"

	"github.com/spf13/cobra"
)

// completionScripts has a script for each shell but PowerShell, whose script is that of cobra.
//
//go:embed completions
var completionScripts embed.FS

const powerShell = "powershell"

func completionCommand(f *factory) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", powerShell}
	return &cobra.Command{
		Use:                   "completion SHELL",
		Short:                 "Print the completion script of a shell: bash, zsh, fish, powershell",
		DisableFlagsInUseLine: true,
		ValidArgs:             shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return usage(errors.New("want one SHELL: " + oneOf(shells)))
			case args[0] == powerShell:
				return cmd.Root().GenPowerShellCompletionWithDesc(f.IO.Out.w)
			}
			script, err := completionScripts.ReadFile("completions/patchbay." + args[0])
			if err != nil {
				return usage(unknownName("shell", args[0], shells))
			}
			f.IO.Out.write(string(script))
			return nil
		},
	}
}
