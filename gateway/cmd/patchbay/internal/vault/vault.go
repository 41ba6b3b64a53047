// Package vault stores the secrets of the command line: OAuth tokens, and the client ids of this
// program.
//
// A vault is a directory that only its user can access. Each value is a file encrypted with
// AES-256-GCM. The key is in the system keyring if the system provides one, else derived from a
// passphrase or in a file in the same directory. The keyring holds the key instead of the values
// because Windows limits its values to 2560 bytes and macOS to about 3000, less than a set of
// tokens may need, and because a keyring offers no lock with which two processes could agree which
// of them refreshes a token.
package vault

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/private"
)

// Errors of a vault, besides errors of the file system. A value is never lost.
var (
	// ErrDamaged is returned for a file that was changed, or written by something else.
	ErrDamaged = errors.New("damaged file")
	// ErrKey is returned if the key is not available or wrong.
	ErrKey = errors.New("cannot open the vault")
	// ErrExposed is returned for a file or directory that other users can access.
	ErrExposed = private.ErrExposed
)

const (
	// maxValue bounds a value, in bytes: a set of tokens is a few KiB.
	maxValue = 1 << 20
	// maxKey limits the key of a value, in bytes, like [oauthclient.Store].
	maxKey = 4 << 10
	// keySize is the key size of AES-256, in bytes.
	keySize = 32
	// sealOverhead is the size of magic, nonce, tag, and the key with its length, in bytes.
	sealOverhead = len(magic) + 12 + 16 + 2 + maxKey
	// keyringTimeout limits a keyring call: a user may unlock it, and a broken D-Bus never answers.
	keyringTimeout = 30 * time.Second
)

// Options configures a [Vault]. The zero value uses the defaults.
type Options struct {
	// Dir is the absolute path of the vault. Default: patchbay/vault in the configuration
	// directory.
	Dir string
	// Passphrase derives the key. Default: a random key in the system keyring, or else in a file.
	Passphrase string
	// KeyFileCreated is called when the key of a new vault is stored in a file, with its path and with
	// the reason why it is not in the keyring. Default: none.
	KeyFileCreated func(path string, reason error)
	// KeyringTimeout bounds a call of the keyring. Default: 30 seconds.
	KeyringTimeout time.Duration
}

// A Vault is a persistent [oauthclient.Store] that the processes of one user share. It reads and
// creates files on first use. It is safe for concurrent use.
type Vault struct {
	dir        string
	passphrase string
	keys       keyring
	inFile     func(path string, reason error) // called when the key is stored in a file; not nil

	unlocking chan struct{} // a mutex that can be awaited with a context; guards the field below
	cached    *sealer       // of the last unlocked vault; nil before
}

// New returns the vault of a directory, which need not exist. opts may be nil.
func New(opts *Options) (*Vault, error) {
	if opts == nil {
		opts = &Options{}
	}
	v := &Vault{
		dir: opts.Dir, passphrase: opts.Passphrase,
		keys: keyring{timeout: cmp.Or(opts.KeyringTimeout, keyringTimeout)}, unlocking: make(chan struct{}, 1),
	}
	if v.inFile = opts.KeyFileCreated; v.inFile == nil {
		v.inFile = func(string, error) {}
	}
	var err error
	if v.dir == "" {
		v.dir, err = os.UserConfigDir()
		v.dir = filepath.Join(v.dir, "patchbay", "vault")
	}
	if err == nil && !filepath.IsAbs(v.dir) { // it depends on the current directory, which may belong to another user
		err = fmt.Errorf("invalid directory %q: must be absolute", v.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("find the directory of the vault: %w", err)
	}
	return v, nil
}

// A Description is the location of a vault.
type Description struct {
	Dir string `json:"directory"`
	Key string `json:"key,omitzero"` // [InKeyring], [InFile] or [InPassphrase]; empty if the vault does not exist yet
}

// Describe returns a description of the vault, without opening it.
func (v *Vault) Describe() (Description, error) {
	m, err := v.readMetadata()
	if m == nil {
		m = &metadata{}
	}
	return Description{Dir: v.dir, Key: m.Key}, err
}

// KeyFile returns the path of the file that contains the key if the keyring does not.
func (v *Vault) KeyFile() string {
	m, err := v.readMetadata()
	if m == nil || err != nil {
		m = &metadata{}
	}
	return v.keyFile(m)
}

// Load returns the value of a key, or nil.
func (v *Vault) Load(ctx context.Context, key string) ([]byte, error) {
	text, err := v.readSealed(key)
	if err != nil || text == nil {
		return nil, err
	}
	s, err := v.unlock(ctx, v.removed)
	if err != nil {
		return nil, err
	}
	value, err := v.unseal(s, key, text)
	if errors.Is(err, ErrDamaged) { // the value may have been encrypted with a new key meanwhile
		if again, errAgain := v.readSealed(key); errAgain == nil && !bytes.Equal(again, text) {
			return v.Load(ctx, key)
		}
	}
	return value, err
}

func (v *Vault) removed(context.Context) (*sealer, error) {
	return nil, fmt.Errorf("%s: %w: it was removed", v.dir, ErrKey)
}

// Update replaces the value of a key by the result of change, which receives the old value or nil.
// A nil result removes the value. Updates of a key exclude each other, in all processes. If change
// returns an error, Update returns it and keeps the value.
func (v *Vault) Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error {
	// Open or create the vault first: the result of change must not be lost.
	s, err := v.unlock(ctx, v.create)
	if err != nil {
		return err
	}
	l, err := lockFile(ctx, v.path(key, ".lock"))
	if err != nil {
		return err
	}
	defer l.Close()
	text, err := v.readSealed(key)
	if err == nil {
		s, err = v.unlock(ctx, v.create) // the key may have changed meanwhile
	}
	if err != nil {
		return err
	}
	var old []byte
	file := v.path(key, ".sealed")
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
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return syncDir(v.dir)
	}
	if text != nil && bytes.Equal(old, changed) {
		return nil
	}
	if len(changed) > maxValue {
		return fmt.Errorf("value of %d bytes is too large: the vault stores at most %d", len(changed), maxValue)
	}
	if s, err = v.unlock(context.WithoutCancel(ctx), v.create); err != nil {
		return err // the vault was replaced meanwhile
	}
	return writeFile(file, s.seal(filepath.Base(file), key, changed))
}

// path returns the file of a key. The name is a hash, since a key can be any text.
func (v *Vault) path(key, suffix string) string {
	const size = 16 // bytes of the hash, enough against collisions
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(v.dir, hex.EncodeToString(sum[:size])+suffix)
}

// readSealed returns the encrypted file of a key, or nil.
func (v *Vault) readSealed(key string) ([]byte, error) {
	if len(key) > maxKey {
		return nil, fmt.Errorf("key of %d bytes is too long: the vault accepts at most %d", len(key), maxKey)
	}
	text, err := readPrivate(v.path(key, ".sealed"), maxValue+sealOverhead)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

func (v *Vault) unseal(s *sealer, key string, text []byte) ([]byte, error) {
	name := filepath.Base(v.path(key, ".sealed"))
	found, value, err := s.open(name, key, text)
	if err == nil && found != key {
		err = fmt.Errorf("%w: it is that of another key", ErrDamaged)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove the file, and log in again", v.path(key, ".sealed"), err)
	}
	return value, nil
}

// Keys returns the keys of all values, sorted, even if some values cause an error. It omits values
// that were written before files contained their keys.
func (v *Vault) Keys(ctx context.Context) (keys []string, err error) {
	files, err := filepath.Glob(filepath.Join(v.dir, "*.sealed"))
	if err != nil || len(files) == 0 {
		return nil, err
	}
	s, err := v.unlock(ctx, v.removed)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, failed := readPrivate(file, maxValue+sealOverhead)
		if errors.Is(failed, fs.ErrNotExist) || bytes.HasPrefix(text, []byte(magicWithoutKey)) {
			continue
		}
		key := ""
		if failed == nil {
			if key, _, failed = s.open(filepath.Base(file), "", text); failed != nil {
				failed = fmt.Errorf("%s: %w", file, failed)
			}
		}
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys, err
}

// The first line of every encrypted file says whether it contains key and value, or a value.
const (
	magic           = "patchbay sealed 2\n"
	magicWithoutKey = "patchbay sealed 1\n"
)

// A sealer encrypts values. The name of the file is authenticated, so that files cannot be swapped.
type sealer struct {
	aead     cipher.AEAD
	vault    string // id of the vault
	key      []byte
	previous *sealer // of the key before an unfinished change; may be nil
}

// newAEAD returns AES-GCM with random nonces.
func newAEAD(key []byte) (cipher.AEAD, error) {
	if len(key) != keySize {
		return nil, fmt.Errorf("the key of the vault has %d bytes: must have %d", len(key), keySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func sealerOf(vault string, key []byte) (*sealer, error) {
	aead, err := newAEAD(key)
	return &sealer{aead: aead, vault: vault, key: key}, err
}

// additionalData returns the data that authenticates the name of a file, or a key.
func (s *sealer) additionalData(magic, name string) []byte {
	return []byte(magic + s.vault + "\n" + name)
}

func (s *sealer) seal(name, key string, value []byte) []byte {
	plain := slices.Concat(binary.BigEndian.AppendUint16(nil, uint16(len(key))), []byte(key), value) // maxKey fits
	return s.aead.Seal([]byte(magic), nil, plain, s.additionalData(magic, name))
}

// open returns the key and value of a file. wanted is the key for a file that does not contain it.
func (s *sealer) open(name, wanted string, text []byte) (key string, value []byte, err error) {
	key, value, err = s.openOwn(name, wanted, text)
	if err != nil && s.previous != nil {
		return s.previous.openOwn(name, wanted, text)
	}
	return key, value, err
}

// openOwn is open for a file that was encrypted with the key of s.
func (s *sealer) openOwn(name, wanted string, text []byte) (key string, value []byte, err error) {
	damaged := fmt.Errorf("%w: it was changed, or written by another vault", ErrDamaged)
	if sealed, ours := bytes.CutPrefix(text, []byte(magicWithoutKey)); ours {
		value, err := s.aead.Open([]byte{}, nil, sealed, s.additionalData(magicWithoutKey, wanted))
		if err != nil {
			return "", nil, damaged
		}
		return wanted, value, nil
	}
	sealed, ours := bytes.CutPrefix(text, []byte(magic))
	if !ours {
		return "", nil, fmt.Errorf("%w: not an encrypted file", ErrDamaged)
	}
	plain, err := s.aead.Open([]byte{}, nil, sealed, s.additionalData(magic, name))
	const prefix = 2 // bytes, the length of the key
	if err != nil || len(plain) < prefix || len(plain)-prefix < int(binary.BigEndian.Uint16(plain)) {
		return "", nil, damaged
	}
	end := prefix + int(binary.BigEndian.Uint16(plain))
	return string(plain[prefix:end]), plain[end:], nil
}
