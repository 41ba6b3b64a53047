package hosting

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// ErrNoClientSecret returns the error of a login provider whose client secret is not set.
func ErrNoClientSecret(variable string) error {
	return fmt.Errorf("%s is not set: the settings name it for the secret of the client", variable)
}

// callerPrefix begins the keys of the tokens of callers in the vault. The digest of the principal
// follows, and the key of the local user for the same.
const callerPrefix = "caller "

// CallerTokens returns a caller's token store. The local user shares `patchbay auth login`.
func CallerTokens(f *cmdutil.Factory, principal string) oauthclient.Store {
	if principal == "" {
		return f.Vault.Opened // OpenHost opened the vault
	}
	sum := sha256.Sum256([]byte(principal))
	return &prefixedStore{f.Vault.Opened, callerPrefix + hex.EncodeToString(sum[:]) + " "}
}

// A prefixedStore exposes the keys of a store that begin with a prefix.
type prefixedStore struct {
	oauthclient.Store
	prefix string
}

// Load returns the value of a key.
func (s *prefixedStore) Load(ctx context.Context, key string) ([]byte, error) {
	return s.Store.Load(ctx, s.prefix+key)
}

// Update replaces the value of a key.
func (s *prefixedStore) Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error {
	return s.Store.Update(ctx, s.prefix+key, change)
}

// callerOAuth returns the options for logins of a caller at a server.
func callerOAuth(
	f *cmdutil.Factory, c *Config, s *config.Server, p *mcp.Principal,
) *oauthclient.TransportOptions {
	opts := f.Login.AuthOptions(c.Capture.WithLogin(context.Background(), s.Name, p))
	opts.Client.Metadata = oauth.ClientMetadata{Name: "Patchbay"}
	return opts
}

// GatewayLoginLine returns the command with which the local user logs in to a server.
func GatewayLoginLine(f *cmdutil.Factory, server string) string {
	line := "patchbay gateway login " + term.ShellWord(server)
	if f.Flags.Config != "" {
		line += " --config " + term.ShellWord(f.Flags.Config)
	}
	return line
}
