package hosting

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/state"
)

// Stored returns a value of the vault. For an absent key it stores the value of create.
func Stored(ctx context.Context, v *vault.Vault, key string, create func() []byte) (value []byte, err error) {
	if value, err = v.Load(ctx, key); err != nil || value != nil {
		return value, err
	}
	err = v.Update(ctx, key, func(old []byte) ([]byte, error) {
		if value = old; value == nil { // no other process was faster
			value = create()
		}
		if len(value) == 0 {
			return nil, errors.New("empty value")
		}
		return value, nil
	})
	return value, err
}

// OpenStores opens the stores of --store, or of the settings, once.
func (c *Config) OpenStores(ctx context.Context, f *cmdutil.Factory) (err error) {
	urls := f.Flags.Store
	if len(urls) == 0 {
		settings, err := gatewayconfig.Read(c.File)
		if err != nil {
			return exit.UsageError(err) // the default would be a wrong store
		}
		urls = settings.Store
	}
	if c.Stores == nil {
		c.Stores, err = OpenStores(ctx, f, c, urls)
	}
	return err
}

// State returns the state of gateways with this configuration.
func (c *Config) State(ctx context.Context, f *cmdutil.Factory) (state.Store, error) {
	if err := c.OpenStores(ctx, f); err != nil {
		return nil, err
	}
	return c.Stores.State()
}

// GatewayState returns the state of the gateways of this user, for commands beside them. If another store contains
// the state, Redis may be unavailable: it only announces changes.
func GatewayState(ctx context.Context, f *cmdutil.Factory) (state.Store, error) {
	c, invalid, err := MergedConfig(f, configs.Files(f.Flags.Config), "")
	if f.Config.NamesConfig() {
		err = errors.Join(append(invalid, err)...) // the file may name a store
	}
	if err != nil {
		return nil, exit.UsageError(err)
	}
	c.beside = true
	return c.State(ctx, f)
}

// SecretStamp returns the file that is written when a secret changes: gateways watch it.
func SecretStamp() (string, error) {
	dir, err := userdir.Dir("gateway")
	return filepath.Join(dir, "secrets-changed"), err
}
