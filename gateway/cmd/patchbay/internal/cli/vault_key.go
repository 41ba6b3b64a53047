package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
)

// vaultKeyCommand returns the command that changes the key of the stored logins and secrets.
func vaultKeyCommand(f *factory) *cobra.Command {
	locations := []string{vault.InKeyring, vault.InFile, vault.InPassphrase}
	return &cobra.Command{
		Use: "key [keyring|file|passphrase]", Short: "Change the key of stored logins and secrets, and where it is",
		DisableFlagsInUseLine: true, Args: cobra.MaximumNArgs(1), ValidArgs: locations,
		RunE: func(cmd *cobra.Command, args []string) error {
			location := ""
			if len(args) > 0 {
				location = args[0]
			}
			if location != "" && !slices.Contains(locations, location) {
				return usage(fmt.Errorf("unknown place %q: want one of %s", location, strings.Join(locations, ", ")))
			}
			return changeVaultKey(cmd.Context(), f, location)
		},
	}
}

func changeVaultKey(ctx context.Context, f *factory, location string) error {
	v, err := f.Vault.openVault()
	if err != nil {
		return err
	}
	d, err := v.Describe()
	if err != nil {
		return err
	}
	passphrase := ""
	if location == vault.InPassphrase || location == "" && d.Key == vault.InPassphrase {
		if passphrase, err = readSecret(ctx, f, "the new passphrase"); err != nil {
			return err
		}
	}
	if err := v.ChangeKey(ctx, location, passphrase); err != nil {
		return fmt.Errorf("change the key of the vault: %w", err)
	}
	if d, err = v.Describe(); err != nil {
		return err
	}
	if f.Flags.json {
		f.IO.Out.value(d)
		return nil
	}
	f.IO.Out.printf("All logins and secrets in %s are encrypted with a new key, which is in the %s.",
		cleanLine(d.Dir), d.Key)
	switch {
	case passphrase != "":
		f.IO.Err.printf("Set $%s to the new passphrase, also for gateways, and restart them.", envPassphrase)
	case d.Key == vault.InFile:
		f.Vault.warnKeyFile(v.KeyFile(), nil)
	}
	return nil
}
