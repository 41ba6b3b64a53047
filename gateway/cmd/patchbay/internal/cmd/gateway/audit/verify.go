package audit

import (
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

func auditVerifyCommand(f *cmdutil.Factory, dir *string) *cobra.Command {
	var heads, key string
	cmd := &cobra.Command{
		Use: "verify", Short: "Verify that no record was altered, removed or cut", DisableFlagsInUseLine: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, known, err := auditLog(f, *dir)
			if err != nil && (known == "" || !hasHeads(known)) {
				return err // else all segments may have been removed
			}
			o := &audit.VerifyOptions{HeadDir: known}
			if heads != "" {
				o.HeadDir = heads
			} else if !hasHeads(known) {
				o.HeadDir = folder
			}
			public, err := auditPublicKey(f, cmd, key)
			if err != nil {
				return err
			}
			o.Keys = []ed25519.PublicKey{public}
			r, err := audit.Verify(folder, o)
			if err != nil {
				return err
			}
			showVerified(f, r)
			return r.Err()
		},
	}
	cmd.Flags().StringVar(&heads, "heads", "", "`folder` of the last checkpoints; default: that of the configuration")
	cmd.Flags().StringVar(&key, "key", "", "public `key` in hex that signs the checkpoints; default: that of the vault")
	return cmd
}

// auditPublicKey returns the key of the command line, or else of the vault.
func auditPublicKey(f *cmdutil.Factory, cmd *cobra.Command, text string) (ed25519.PublicKey, error) {
	if text != "" {
		key, err := hex.DecodeString(text)
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, exit.UsageError(fmt.Errorf("invalid --key %.80q: want %d hex digits", text,
				2*ed25519.PublicKeySize))
		}
		return key, nil
	}
	key, err := hosting.AuditKey(cmd.Context(), f)
	if err != nil {
		return nil, err
	}
	return key.Public().(ed25519.PublicKey), nil
}

func showVerified(f *cmdutil.Factory, r *audit.Report) {
	if f.Flags.JSON {
		if r.Chains == nil {
			r.Chains = []*audit.ChainReport{}
		}
		f.IO.Out.Value(r)
		return
	}
	for _, c := range r.Chains {
		state := "ok"
		if c.Problem != nil {
			state = string(c.Problem.Kind)
		}
		span := ""
		if c.Records > 0 {
			span = fmt.Sprintf(", %s to %s", c.First.Local().Format(time.DateTime),
				c.Last.Local().Format(time.DateTime))
		}
		f.IO.Out.Printf("%s: %s: %s in %s%s, signed up to record %d of %d", term.CleanLine(c.Chain), state,
			term.Counted(c.Records, "record"), term.Counted(c.Segments, "segment"), span, c.Signed, c.Seq)
		if c.Removed > 0 {
			f.IO.Out.Printf("  records 1 to %d were removed because of their age", c.Removed)
		}
		if c.Torn > 0 {
			f.IO.Out.Printf("  the last line is incomplete (%d bytes): it is being written, or its process was killed",
				c.Torn)
		}
		if c.Warning != "" {
			f.IO.Out.Printf("  warning: %s", term.CleanLine(c.Warning))
		}
	}
}
