package audit

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// VerifyOptions are the flags of "gateway audit verify".
type VerifyOptions struct {
	Options
	Heads string // the folder of checkpoints
	Key   string // in hex
}

// NewCmdVerify returns the command "gateway audit verify".
func NewCmdVerify(f *cmdutil.Factory, dir *string, run cmdutil.Run[*VerifyOptions]) *cobra.Command {
	o := &VerifyOptions{Options: Options{Dir: dir}}
	cmd := cmdutil.Command(f, "verify", "Verify that no record was altered, removed or cut", cobra.NoArgs, o,
		cmdutil.Or(run, verify))
	cmd.Flags().StringVar(&o.Heads, "heads", "", "`folder` of the last checkpoints; default: as configured")
	cmd.Flags().StringVar(&o.Key, "key", "", "public `key` in hex that signs the checkpoints; default: from the vault")
	return cmd
}

func verify(ctx context.Context, o *VerifyOptions) error {
	folder, heads, err := auditLog(o.Factory, *o.Dir)
	if err != nil && (heads == "" || !hasHeads(heads)) {
		return err // else all segments may have been removed
	}
	if o.Heads != "" {
		heads = o.Heads
	} else if !hasHeads(heads) {
		heads = folder
	}
	public, err := auditPublicKey(ctx, o)
	if err != nil {
		return err
	}
	r, err := audit.Verify(folder, &audit.VerifyOptions{HeadDir: heads, Keys: []ed25519.PublicKey{public}})
	if err != nil {
		return err
	}
	showVerified(o.Factory, r)
	return r.Err()
}

// auditPublicKey returns the key of the command line, or else of the vault.
func auditPublicKey(ctx context.Context, o *VerifyOptions) (ed25519.PublicKey, error) {
	if o.Key != "" {
		key, err := hex.DecodeString(o.Key)
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, exit.UsageError(fmt.Errorf("invalid --key %.80q: want %d hex digits", o.Key,
				2*ed25519.PublicKeySize))
		}
		return key, nil
	}
	key, err := hosting.AuditKey(ctx, o.Factory)
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

// hasHeads reports whether a folder contains checkpoints.
func hasHeads(dir string) bool {
	all, err := os.ReadDir(dir)
	return err == nil && len(all) > 0
}
