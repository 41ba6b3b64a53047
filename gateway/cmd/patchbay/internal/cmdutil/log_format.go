package cmdutil

import (
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// AddLogFormat adds the flag --log-format to a command.
func AddLogFormat(f *Factory, cmd *cobra.Command) {
	f.IO.LogFormat = flags.Choice{Value: term.LogText, Allowed: []string{term.LogText, term.LogJSON}}
	cmd.Flags().Var(&f.IO.LogFormat, "log-format", "format of messages")
	complete := func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return target.Matching(f.IO.LogFormat.Allowed, typed), cobra.ShellCompDirectiveNoFileComp
	}
	_ = cmd.RegisterFlagCompletionFunc("log-format", complete) // the flag exists
}
