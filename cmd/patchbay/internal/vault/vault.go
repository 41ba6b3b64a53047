// Package vault keeps the secrets of the command line: tokens, and the ids under which servers know this client.
//
// A vault is a directory of its user alone. A value is a file that is sealed with AES-256-GCM; the key to all of them is
// in the system's keyring where there is one, else comes from a passphrase or lies in a file beside them. The keyring has
// the key and not the values, since Windows takes 2560 bytes there and macOS some 3000, which a set of tokens is often
// beyond, and since no keyring lets two processes agree on who renews a token.
package vault

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Errors of a vault, beside those of the file system. None of them loses what is kept.
var (
	// ErrDamaged is of a file that this vault did not write as it is now.
	ErrDamaged = errors.New("damaged or foreign")
	// ErrKey is of a key that cannot be had, or is not the one that the vault was sealed with.
	ErrKey = errors.New("no key to the vault")
	// ErrExposed is of a file or directory that others than its owner can reach.
	ErrExposed = errors.New("others than its owner can reach it")
)

const (
	// maxValue bounds a value, in bytes: a set of tokens is a few KiB.
	maxValue = 1 << 20
	// maxKey bounds the key of a value, in bytes, as [oauthclient.Store] has it.
	maxKey = 4 << 10
	// keyringPatience is how long the keyring may take: somebody may have to unlock it by hand, and on a machine with a
	// broken bus nothing ever answers.
	keyringPatience = 30 * time.Second
)

// Options are choices for a [Vault].
type Options struct {
	// Dir is the directory of the vault; patchbay/vault in the user's directory for configuration if it is empty.
	Dir string
	// Passphrase makes the key of a new vault, and opens one that has been made so. If it is empty, a new vault has its
	// key in the system's keyring, or without one in a file.
	Passphrase string
	// KeyringPatience is how long the keyring may take; 30 seconds if it is 0.
	KeyringPatience time.Duration
}

// A Vault is an [oauthclient.Store] that lasts, and that the processes of one user share. Nothing is read or made before it is
// needed. It is safe for concurrent use.
type Vault struct {
	dir        string
	passphrase string
	keys       keyring

	turn chan struct{} // holds a token while the vault is unlocked; guards the field below
	seal *sealer       // of the vault as it was last found, nil until it is needed
}

// New returns the vault in a directory, which need not exist.
func New(opts *Options) (*Vault, error) {
	if opts == nil {
		opts = &Options{}
	}
	v := &Vault{
		dir: opts.Dir, passphrase: opts.Passphrase,
		keys: keyring{patience: opts.KeyringPatience}, turn: make(chan struct{}, 1),
	}
	if v.keys.patience == 0 {
		v.keys.patience = keyringPatience
	}
	if v.dir == "" {
		config, err := os.UserConfigDir()
		if err != nil {
			return nil, fmt.Errorf("no directory for tokens: %w", err)
		}
		v.dir = filepath.Join(config, "patchbay", "vault")
	}
	dir, err := filepath.Abs(v.dir)
	if err != nil {
		return nil, fmt.Errorf("no directory for tokens: %w", err)
	}
	v.dir = dir
	return v, nil
}

// A Description says where the values of a vault are.
type Description struct {
	// Dir is the directory of the vault.
	Dir string
	// Key says where the key is: [InKeyring], [InFile] or [InPassphrase]; empty if there is no vault yet.
	Key string
}

// Describe returns a description of the vault, without opening it.
func (v *Vault) Describe() (Description, error) {
	h, err := v.readHead()
	if err != nil || h == nil {
		return Description{Dir: v.dir}, err
	}
	return Description{Dir: v.dir, Key: h.Key}, nil
}

// Load returns the value under a key, nil if there is none.
func (v *Vault) Load(ctx context.Context, key string) ([]byte, error) {
	text, err := v.readSealed(key)
	if err != nil || text == nil {
		return nil, err
	}
	s, err := v.unlock(ctx, v.noHead)
	if err != nil {
		return nil, err
	}
	return v.unseal(s, key, text)
}

// Update calls change with the value under a key, nil if there is none, and puts what it gives in its place; nil removes
// it. No other Update of the key goes on meanwhile, in this process or in another one. An error of change is that of
// Update, and leaves the value as it is.
func (v *Vault) Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error {
	// The vault is opened, and made, first: what change has obtained must find a place.
	s, err := v.unlock(ctx, v.makeHead)
	if err != nil {
		return err
	}
	l, err := lockFile(ctx, v.path(key, ".lock"))
	if err != nil {
		return err
	}
	defer l.unlock()
	text, err := v.readSealed(key)
	if err != nil {
		return err
	}
	var old []byte
	if text != nil {
		if old, err = v.unseal(s, key, text); err != nil {
			return err
		}
	}
	changed, err := change(old)
	if err != nil {
		return err
	}
	if changed == nil {
		return removeFile(v.path(key, ".sealed"))
	}
	if text != nil && bytes.Equal(old, changed) {
		return nil
	}
	if len(changed) > maxValue {
		return fmt.Errorf("a value of %d bytes is too large for the vault, which takes %d", len(changed), maxValue)
	}
	if s, err = v.unlock(context.WithoutCancel(ctx), v.makeHead); err != nil {
		return err // another vault is here by now, and not ours to open
	}
	return writeFile(v.path(key, ".sealed"), s.seal(key, changed))
}

// path returns the file of a key: any text may be one, and the names of files tell nothing of it.
func (v *Vault) path(key, suffix string) string {
	const enough = 16 // bytes of the hash, so that no two keys meet
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(v.dir, hex.EncodeToString(sum[:enough])+suffix)
}

// readSealed returns the file of a key, nil if there is none.
func (v *Vault) readSealed(key string) ([]byte, error) {
	if len(key) > maxKey {
		return nil, fmt.Errorf("a key of %d bytes is too long for the vault, which takes %d", len(key), maxKey)
	}
	text, err := readPrivate(v.path(key, ".sealed"), maxValue+sealOverhead)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = checkPrivate(v.dir)
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

func (v *Vault) unseal(s *sealer, key string, text []byte) ([]byte, error) {
	value, err := s.open(key, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it, and log in again", v.path(key, ".sealed"), err)
	}
	return value, nil
}
