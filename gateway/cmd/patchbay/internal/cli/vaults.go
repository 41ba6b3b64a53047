package cli

import (
	"sync"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
)

// vaults opens the vault of logins and secrets when it is first used.
type vaults struct {
	IO *streams

	opened        *vault.Vault // nil until it is used
	keyFileWarned atomic.Bool  // the user was warned about the key file of the vault
	lastSecrets   sync.Map     // maps the names of ${secret:NAME} to the values that were last read
}
