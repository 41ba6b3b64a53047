// Package audit reads and verifies the audit log.
package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
)

// Options are the flags of the commands about the audit log.
type Options struct {
	cmdutil.Invocation
	Dir *string // of --dir, which belongs to "gateway audit"
}

// NewCmdAudit returns the command "gateway audit" with its subcommands.
func NewCmdAudit(f *cmdutil.Factory) *cobra.Command {
	dir := new(string)
	cmd := cmdutil.WithSubcommands(f, "audit", "Read and verify the audit log of the gateway", NewCmdTail(f, dir, nil),
		NewCmdQuery(f, dir, nil), NewCmdShow(f, dir, nil), NewCmdVerify(f, dir, nil), NewCmdReplay(f, dir, nil))
	cmd.PersistentFlags().StringVar(dir, "dir", "", "`folder` of the log; default: that of the configuration")
	return cmd
}

// auditLog returns the folders of the log that a command reads. The log must exist.
func auditLog(f *cmdutil.Factory, given string) (dir, heads string, err error) {
	settings, err := auditSettings(f)
	if err != nil && given == "" {
		return "", "", exit.UsageError(err)
	}
	if dir, heads, err = hosting.AuditDirs(settings, given); err != nil {
		return "", "", err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err == nil && len(found) > 0 {
		return dir, heads, nil
	}
	text := fmt.Sprintf("no audit log in %s", dir)
	if settings == nil && given == "" {
		text += `: add "audit": {} to the member patchbay of the configuration, or name a folder with --dir`
	}
	return dir, heads, exit.NotFoundError(errors.New(text))
}

// auditSettings returns the member audit of the settings, or nil.
func auditSettings(p *cmdutil.Factory) (*gatewayconfig.Audit, error) {
	for f, err := range configs.Files(p.Flags.Config) {
		if err != nil {
			if p.Config.NamesConfig() {
				return nil, err
			}
			continue
		}
		_, has := f.Extra["patchbay"]
		if !has || f.Project || !p.Config.NamesConfig() && f.App != "patchbay" {
			continue
		}
		s, err := gatewayconfig.Read(f.File)
		if err != nil {
			return nil, err
		}
		return s.Audit, nil
	}
	return nil, nil
}

// hasHeads reports whether a folder contains checkpoints.
func hasHeads(dir string) bool {
	all, err := os.ReadDir(dir)
	return err == nil && len(all) > 0
}
