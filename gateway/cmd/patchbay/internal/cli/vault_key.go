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
func (p *program) vaultKeyCommand() *cobra.Command {
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
			return p.changeVaultKey(cmd.Context(), location)
		},
	}
}

func (p *program) changeVaultKey(ctx context.Context, location string) error {
	v, err := p.openVault()
	if err != nil {
		return err
	}
	d, err := v.Describe()
	if err != nil {
		return err
	}
	passphrase := ""
	if location == vault.InPassphrase || location == "" && d.Key == vault.InPassphrase {
		if passphrase, err = p.readSecret(ctx, "the new passphrase"); err != nil {
			return err
		}
	}
	if err := v.ChangeKey(ctx, location, passphrase); err != nil {
		return fmt.Errorf("change the key of the vault: %w", err)
	}
	if d, err = v.Describe(); err != nil {
		return err
	}
	if p.flags.json {
		p.output.value(d)
		return nil
	}
	p.output.printf("All logins and secrets in %s are encrypted with a new key, which is in the %s.",
		cleanLine(d.Dir), d.Key)
	switch {
	case passphrase != "":
		p.screen.printf("Set $%s to the new passphrase, also for gateways, and restart them.", envPassphrase)
	case d.Key == vault.InFile:
		p.warnKeyFile(v.KeyFile(), nil)
	}
	return nil
}
