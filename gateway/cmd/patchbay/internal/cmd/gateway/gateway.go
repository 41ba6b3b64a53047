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
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
)

// NewCmdGateway returns the command "gateway" with its subcommands.
func NewCmdGateway(f *cmdutil.Factory) *cobra.Command {
	g := &run.Run{}
	cmd := &cobra.Command{
		Use:                   "gateway [TARGET] | gateway -- COMMAND…",
		Short:                 "Serve all configured servers as one, over HTTP or stdio (gateway, aggregator)",
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cmdutil.CompleteNames(f, nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.IO.UseLogFormat()
			if err := run.PrepareGateway(f, cmd, args, g); err != nil {
				return exit.UsageError(err)
			}
			if g.Attached != nil {
				return run.ServeAttached(cmd.Context(), f, g.Attached)
			}
			return run.RunGateway(cmd.Context(), f, g)
		},
	}
	cmd.Flags().StringVar(&g.Addr, "addr", "",
		"listen at this `host:port`; default "+hosting.DefaultGatewayAddr)
	cmd.Flags().BoolVar(&g.Stdio, "stdio", false, "serve one client on stdio instead of HTTP")
	cmd.Flags().BoolVar(&g.Own, "own", false, "with --stdio, never attach to a gateway")
	cmd.Flags().StringVar(&g.Profile, "profile", "", "serve only this `profile` of the settings")
	cmd.Flags().BoolVar(&g.NoAuth, "insecure-no-auth", false,
		"accept local programs without a key")
	cmd.Flags().StringVar(&g.Ops, "ops", "",
		"serve metrics and health at this `host:port`")
	cmdutil.AddLogFormat(f, cmd)
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
