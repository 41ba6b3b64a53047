// Package audit reads and verifies the audit log.
package audit

import (
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
)

// NewCmdAudit returns the command "gateway audit" with its subcommands.
func NewCmdAudit(f *cmdutil.Factory) *cobra.Command {
	dir := new(string)
	cmd := cmdutil.WithSubcommands(f, "audit", "Read and verify the audit log of the gateway", NewCmdTail(f, dir, nil),
		NewCmdQuery(f, dir, nil), newCmdShow(f, dir), NewCmdVerify(f, dir, nil), NewCmdReplay(f, dir, nil))
	cmd.PersistentFlags().StringVar(dir, "dir", "", "`folder` of the log; default: that of the configuration")
	return cmd
}
