// Package gateway contains the commands of the gateway.
package gateway

import (
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/approvals"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/config"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/install"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/keys"
	gatewaylogin "github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/pins"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/run"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/status"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
)

// NewCmdGateway returns the command "gateway" with its subcommands.
func NewCmdGateway(f *cmdutil.Factory, start cmdutil.Run[*run.Options]) *cobra.Command {
	cmd := run.NewCmdRun(f, start)
	cmd.AddCommand(pins.NewCmdPins(f), audit.NewCmdAudit(f), keys.NewCmdKeys(f), keys.NewCmdSecret(f))
	cmd.AddCommand(approvals.ApprovalCommands(f)...)
	cmd.AddCommand(configCommands(f)...)
	cmd.AddCommand(status.ControlCommands(f)...)
	cmd.AddCommand(gatewaylogin.NewCmdLogin(f), gatewaylogin.NewCmdLogout(f))
	return cmd
}

// configCommands returns the commands of `patchbay gateway` that edit configurations. They need no
// running gateway.
func configCommands(f *cmdutil.Factory) []*cobra.Command {
	return []*cobra.Command{config.NewCmdAdd(f), config.NewCmdRemove(f), config.NewCmdEnable(f, true),
		config.NewCmdEnable(f, false),
		config.NewCmdList(f), config.NewCmdImport(f), install.NewCmdInstall(f), install.NewCmdUninstall(f),
		config.NewCmdValidate(f),
		config.NewCmdSchema(f)}
}
