package cli

import "github.com/spf13/cobra"

// configCommands returns the commands of `patchbay gateway` that edit configurations. They need no
// running gateway.
func configCommands(f *factory) []*cobra.Command {
	return []*cobra.Command{addCommand(f), removeCommand(f), enableCommand(f, true), enableCommand(f, false),
		listCommand(f), importCommand(f), installCommand(f), uninstallCommand(f), validateCommand(f),
		schemaCommand(f)}
}
