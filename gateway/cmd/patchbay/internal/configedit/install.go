package configedit

import (
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
)

// Command returns a command without arguments that edits a configuration.
func Command(f *cmdutil.Factory, cmd *cobra.Command) *cobra.Command {
	cmd.DisableFlagsInUseLine = true
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	return cmd
}
