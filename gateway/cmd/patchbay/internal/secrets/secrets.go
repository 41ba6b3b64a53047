// Package secrets opens the vault of logins and secrets.
package secrets

import (
	"context"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
)

const (

	// Timeout bounds reading the stored login.
	Timeout = 5 * time.Second
)

// Prefix begins the keys of the vault with the values of ${secret:NAME}.
const Prefix = "gateway secret "

// Lookup returns the value of a variable "secret:NAME". It is asked for only by servers whose entries
// have it. found is whether the variable is of that form.
func (p *Store) Lookup(ctx context.Context, variable string) (value string, set, found bool) {
	name, ok := strings.CutPrefix(variable, "secret:")
	if !ok {
		return "", false, false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	v, err := p.Open()
	var stored []byte
	if err == nil {
		stored, err = v.Load(ctx, Prefix+name)
	}
	if err != nil { // the secret may still be stored: connections that use it stay open
		p.IO.Err.Printf("patchbay: secret %s: %s", term.CleanLine(name), term.CleanLine(err.Error()))
		last, known := p.lastSecrets.Load(name)
		value, _ = last.(string)
		return value, known, true
	}
	if stored == nil {
		p.lastSecrets.Delete(name)
		return "", false, true
	}
	p.lastSecrets.Store(name, string(stored))
	return string(stored), true, true
}

const (
	// EnvDir names the folder of the vault.
	EnvDir = "PATCHBAY_VAULT_DIR"
	// EnvPassphrase holds the passphrase of the vault.
	EnvPassphrase = "PATCHBAY_VAULT_PASSPHRASE"
)

// Open opens the vault when it is first used.
func (p *Store) Open() (*vault.Vault, error) {
	if p.Opened == nil {
		v, err := vault.New(&vault.Options{Dir: os.Getenv(EnvDir), Passphrase: os.Getenv(EnvPassphrase),
			KeyFileCreated: p.WarnKeyFile})
		if err != nil {
			return nil, err
		}
		p.Opened = v
	}
	return p.Opened, nil
}

// WarnKeyFile warns, once per run, that the key of the vault is in a file beside it.
func (p *Store) WarnKeyFile(path string, reason error) {
	if p.KeyFileWarned.Swap(true) {
		return
	}
	why := "the key of the stored logins is in a file"
	if reason != nil {
		why += ", because the system keyring failed (" + term.Clean(reason.Error()) + ")"
	}
	p.IO.Err.Printf("patchbay: warning: %s: programs and backups that can read\n  %s can read the logins.\n"+
		"  To avoid that, run \"patchbay auth key keyring\" or \"patchbay auth key passphrase\".", why,
		term.CleanLine(path))
}

// Store opens the vault of logins and secrets when it is first used.
type Store struct {
	IO *term.Streams

	Opened        *vault.Vault // nil until it is used
	KeyFileWarned atomic.Bool  // the user was warned about the key file of the vault
	lastSecrets   sync.Map     // maps the names of ${secret:NAME} to the values that were last read
}
