package hosting

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
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

// GatewayState returns the state of gateways, which several may use at the same time.
func GatewayState() (*bolt.StateStore, error) {
	dir, err := userdir.Dir("gateway")
	if err != nil {
		return nil, err
	}
	return bolt.OpenState(filepath.Join(dir, "state.db"), nil)
}

// SecretStamp returns the file that is written when a secret changes: gateways watch it.
func SecretStamp() (string, error) {
	dir, err := userdir.Dir("gateway")
	return filepath.Join(dir, "secrets-changed"), err
}
