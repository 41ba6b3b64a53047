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
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/policy"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/run"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/status"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
)

// NewCmdGateway returns the command "gateway" with its subcommands.
func NewCmdGateway(f *cmdutil.Factory, start cmdutil.Run[*run.Options]) *cobra.Command {
	cmd := run.NewCmdRun(f, start)
	cmd.PersistentFlags().StringArrayVar(&f.Flags.Store, "store", nil,
		"share state at this `URL`, such as redis://HOST, postgres://HOST or bolt:PATH (repeatable)")
	_ = cmd.PersistentFlags().MarkHidden("store") // the help must fit a screen; docs/replicas.md explains it
	cmd.AddCommand(pins.NewCmdPins(f, nil), audit.NewCmdAudit(f), keys.NewCmdKeys(f), keys.NewCmdSecret(f))
	cmd.AddCommand(policy.NewCmdPolicy(f), install.NewCmdInstall(f, nil), install.NewCmdUninstall(f, nil))
	cmd.AddCommand(approvals.Commands(f)...)
	cmd.AddCommand(config.Commands(f)...)
	cmd.AddCommand(status.Commands(f)...)
	cmd.AddCommand(gatewaylogin.NewCmdLogin(f, nil), gatewaylogin.NewCmdLogout(f, nil))
	return cmd
}
