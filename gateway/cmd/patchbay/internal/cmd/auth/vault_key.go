package auth

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
)

// KeyOptions are the arguments of "auth key".
type KeyOptions struct {
	*cmdutil.Factory
	Location string // of the new key; "" for the same
}

// NewCmdKey returns the command "auth key", which changes the key of the stored logins and secrets.
func NewCmdKey(f *cmdutil.Factory, run cmdutil.Run[*KeyOptions]) *cobra.Command {
	locations := []string{vault.InKeyring, vault.InFile, vault.InPassphrase}
	return &cobra.Command{
		Use: "key [keyring|file|passphrase]", Short: "Change the key of stored logins and secrets, and where it is",
		DisableFlagsInUseLine: true, Args: cobra.MaximumNArgs(1), ValidArgs: locations,
		RunE: func(cmd *cobra.Command, args []string) error {
			o := &KeyOptions{f, strings.Join(args, "")}
			if o.Location != "" && !slices.Contains(locations, o.Location) {
				return exit.UsageError(fmt.Errorf("unknown place %q: want one of %s", o.Location,
					strings.Join(locations, ", ")))
			}
			return cmdutil.Or(run, changeKey)(cmd.Context(), o)
		},
	}
}

func changeKey(ctx context.Context, o *KeyOptions) error {
	f, location := o.Factory, o.Location
	v, err := f.Vault.Open()
	if err != nil {
		return err
	}
	d, err := v.Describe()
	if err != nil {
		return err
	}
	passphrase := ""
	if location == vault.InPassphrase || location == "" && d.Key == vault.InPassphrase {
		if passphrase, err = hosting.ReadSecret(ctx, f, "the new passphrase"); err != nil {
			return err
		}
	}
	if err := v.ChangeKey(ctx, location, passphrase); err != nil {
		return fmt.Errorf("change the key of the vault: %w", err)
	}
	if d, err = v.Describe(); err != nil {
		return err
	}
	if f.PrintedJSON(d) {
		return nil
	}
	f.IO.Out.Printf("All logins and secrets in %s are encrypted with a new key, which is in the %s.",
		term.CleanLine(d.Dir), d.Key)
	switch {
	case passphrase != "":
		f.IO.Err.Printf("Set $%s to the new passphrase, also for gateways, and restart them.", secrets.EnvPassphrase)
	case d.Key == vault.InFile:
		f.Vault.WarnKeyFile(v.KeyFile(), nil)
	}
	return nil
}
