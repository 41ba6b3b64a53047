package hosting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
	"github.com/patchbay-mcp/patchbay/stores/shared"
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
func GatewayState(ctx context.Context, f *cmdutil.Factory) (state.Store, error) {
	c, _, err := MergedConfig(f, configs.Files(f.Flags.Config), "")
	if err != nil {
		return nil, err
	}
	return c.State(ctx, f)
}

// State returns the state of gateways: in the store of --store or the settings, or in a file.
func (c *Config) State(ctx context.Context, f *cmdutil.Factory) (state.Store, error) {
	settings, err := gatewayconfig.Read(c.File)
	if err != nil {
		return nil, exit.UsageError(err) // another store would be wrong
	}
	texts := settings.Store
	if len(f.Flags.Store) > 0 {
		texts = f.Flags.Store
	}
	if c.Store == nil {
		c.Store, c.file, err = OpenStore(ctx, f, c, texts)
	}
	if err == nil && c.file == "" && c.Store != nil {
		return c.Store.Redis.HostState(), nil
	}
	dir, err2 := userdir.Dir("gateway")
	if err = errors.Join(err, err2); err != nil {
		return nil, err
	}
	return bolt.OpenState(cmp.Or(c.file, filepath.Join(dir, "state.db")), nil)
}

// ExpandStore returns the URL of a store with its variables replaced.
func ExpandStore(ctx context.Context, f *cmdutil.Factory, c *Config, text string) (string, error) {
	err := gatewayconfig.CheckStore(text)
	if err == nil {
		text, err = (&config.Server{URL: text}).ExpandURL(ctx, LookupFor(ctx, f, c))
		err = errors.Unwrap(err) // without the name of a server
	}
	if err != nil {
		return "", exit.UsageError(fmt.Errorf("invalid store: %w", err))
	}
	return text, nil
}

// OpenStore opens the store in Redis until the command ends, and returns the path of bolt:PATH.
func OpenStore(ctx context.Context, f *cmdutil.Factory, c *Config, texts []string) (
	s *shared.Store, path string, err error,
) {
	for _, text := range texts {
		if text, err = ExpandStore(ctx, f, c, text); err != nil {
			return nil, "", err
		}
		file, isFile := strings.CutPrefix(text, "bolt:")
		switch {
		case isFile && path != "", !isFile && s != nil:
			return nil, "", exit.UsageError(errors.New("invalid stores: want at most one in Redis and one file"))
		case isFile:
			path = file
			continue
		}
		if s, err = shared.Open(ctx, text); err != nil {
			return nil, "", &exit.Error{Code: exit.Unreachable, Err: fmt.Errorf(
				"open the store: %w\nTo find the reason: patchbay doctor store URL", err)}
		}
		f.Exit.Add(cmdutil.ExitLocks, s.Close)
	}
	return s, path, nil
}

// A StoreReadiness is the condition of the store of several processes, for /readyz?verbose. It
// contains no address.
type StoreReadiness struct {
	Kind  string `json:"kind"`  // "redis"
	State string `json:"state"` // "available", "unavailable", or "other key"
}

// ReadinessOf returns the condition of a store, or nil for a nil store.
func ReadinessOf(s *shared.Store) *StoreReadiness {
	if s == nil {
		return nil
	}
	switch err := s.Ready(context.Background()); { // takes less than a second
	case errors.Is(err, shared.ErrOtherKey):
		return &StoreReadiness{"redis", "other key"}
	case err != nil:
		return &StoreReadiness{"redis", "unavailable"}
	}
	return &StoreReadiness{"redis", "available"}
}

// SecretStamp returns the file that is written when a secret changes: gateways watch it.
func SecretStamp() (string, error) {
	dir, err := userdir.Dir("gateway")
	return filepath.Join(dir, "secrets-changed"), err
}
