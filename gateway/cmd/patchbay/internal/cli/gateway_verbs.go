package cli

import "github.com/spf13/cobra"

// configCommands returns the commands of `patchbay gateway` that edit configurations. They need no
// running gateway.
func (p *program) configCommands() []*cobra.Command {
	return []*cobra.Command{p.addCommand(), p.removeCommand(), p.enableCommand(true), p.enableCommand(false),
		p.listCommand(), p.importCommand(), p.installCommand(), p.uninstallCommand(), p.validateCommand(),
		p.schemaCommand()}
}
