package vault

import (
	"cmp"
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
)

// Locations of the key of a vault.
const (
	InKeyring    = "keyring"
	InFile       = "file"
	InPassphrase = "passphrase"
)

const (
	metadataName = "vault.json" // the metadata
	keyName      = "vault.key"  // the key, if it is in a file
	metadataLock = "vault.lock"

	// maxMetadata bounds the two files above, in bytes.
	maxMetadata = 4 << 10
	// metadataVersion is the version of the format.
	metadataVersion = 1
	// changedVersion is the version of a vault whose key was changed. Older versions of this program, which
	// cannot open such a vault, report its version.
	changedVersion = 2
	// iterations of PBKDF2 with SHA-256 for a new vault: a third of a second on a slow machine.
	iterations = 600_000
	// minIterations and maxIterations bound a file's iterations: neither weak nor a denial of
	// service.
	minIterations, maxIterations = 100_000, 10_000_000
	// minPassphrase limits how short a passphrase may be, in bytes, because it could be guessed.
	minPassphrase = 8
)

// A metadata is the content of vault.json. It must not contain secrets.
type metadata struct {
	Version    int    `json:"version"`
	ID         string `json:"id"`
	Key        string `json:"key"`
	Salt       []byte `json:"salt,omitempty"`
	Iterations int    `json:"iterations,omitempty"`
	Check      []byte `json:"check"` // an encrypted empty value, to verify the key with

	KeyFile  string `json:"keyFile,omitempty"`  // name of the key file, if it is not keyName
	Previous []byte `json:"previous,omitempty"` // encrypted id and key before an unfinished change
}

// checkName is the name that the check is bound to: everything that the key depends on.
func (m *metadata) checkName() string {
	return fmt.Sprintf("check\n%d\n%s\n%x\n%d%s", m.Version, m.Key, m.Salt, m.Iterations, m.KeyFile)
}

// readMetadata returns the metadata, or nil if there is no vault.
func (v *Vault) readMetadata() (*metadata, error) {
	file := filepath.Join(v.dir, metadataName)
	text, err := readPrivate(file, maxMetadata)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, v.checkEmpty()
	}
	if err != nil {
		return nil, err
	}
	var m metadata
	switch err := json.Unmarshal(text, &m); {
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", file, ErrDamaged, err)
	case m.Version != metadataVersion && m.Version != changedVersion:
		return nil, fmt.Errorf("%s: %w: unsupported version %d, want at most %d", file, ErrDamaged, m.Version,
			changedVersion)
	case m.KeyFile != "" && (m.KeyFile != filepath.Base(m.KeyFile) || !strings.HasSuffix(m.KeyFile, ".key")):
		return nil, fmt.Errorf("%s: %w: invalid keyFile %q", file, ErrDamaged, m.KeyFile)
	case m.Key != InKeyring && m.Key != InFile && m.Key != InPassphrase:
		return nil, fmt.Errorf("%s: %w: unknown key location %q", file, ErrDamaged, m.Key)
	case m.Key == InPassphrase && (m.Iterations < minIterations || m.Iterations > maxIterations):
		return nil, fmt.Errorf("%s: %w: %d iterations, want %d to %d", file, ErrDamaged, m.Iterations,
			minIterations, maxIterations)
	}
	return &m, nil
}

// checkEmpty returns an error if there are encrypted files without metadata.
func (v *Vault) checkEmpty() error {
	files, err := os.ReadDir(v.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".sealed") {
			return fmt.Errorf("%s: %w: encrypted files without %s; remove the directory, and log in again",
				v.dir, ErrDamaged, metadataName)
		}
	}
	return nil
}

// unlock returns the sealer of the vault or, without a vault, the result of missing. It is cached
// by the ID of the vault, which may be removed and created again.
func (v *Vault) unlock(ctx context.Context, missing func(ctx context.Context) (*sealer, error)) (*sealer, error) {
	select {
	case v.unlocking <- struct{}{}:
		defer func() { <-v.unlocking }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	m, err := v.readMetadata()
	if err != nil {
		return nil, err
	}
	var s *sealer
	switch {
	case m != nil && v.cached != nil && v.cached.vault == m.ID:
		return v.cached, nil
	case m != nil:
		s, err = v.openExisting(ctx, m)
		if again, errAgain := v.readMetadata(); err != nil && errAgain == nil && again != nil && again.ID != m.ID {
			s, err = v.openExisting(ctx, again) // the key changed meanwhile
		}
	default:
		s, err = missing(ctx)
	}
	if err != nil {
		return nil, err
	}
	v.cached = s
	return s, nil
}

func (v *Vault) openExisting(ctx context.Context, m *metadata) (*sealer, error) {
	key, err := v.key(ctx, m)
	var s *sealer
	if err == nil {
		s, err = sealerOf(m.ID, key)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", v.dir, ErrKey, err)
	}
	if _, _, err := s.open(m.checkName(), m.checkName(), m.Check); err == nil {
		return s, s.openPrevious(m)
	}
	if m.Key == InPassphrase {
		return nil, fmt.Errorf("%s: %w: wrong passphrase; without the right passphrase, remove the directory, "+
			"and log in again", v.dir, ErrKey)
	}
	return nil, fmt.Errorf("%s: %w: the key in the %s is wrong; without the right key, remove the directory, and "+
		"log in again", v.dir, ErrKey, m.Key)
}

func (v *Vault) key(ctx context.Context, m *metadata) ([]byte, error) {
	if v.passphrase != "" && m.Key != InPassphrase {
		return nil, fmt.Errorf("a passphrase is set, but the key of this vault is in the %s: unset the passphrase; "+
			"\"patchbay auth key passphrase\" changes where the key is", m.Key)
	}
	var text string
	var err error
	switch m.Key {
	case InPassphrase:
		if v.passphrase == "" {
			return nil, errors.New("it requires a passphrase: set PATCHBAY_VAULT_PASSPHRASE; " +
				"\"patchbay auth key file\" makes it open without")
		}
		return pbkdf2.Key(sha256.New, v.passphrase, m.Salt, m.Iterations, keySize)
	case InKeyring:
		if text, err = v.keys.get(ctx, m.ID); err != nil {
			return nil, fmt.Errorf("system keyring: %w; unlock it, or use the session in which the key was stored: "+
				"there, \"patchbay auth key file\" makes the vault open without a keyring", err)
		}
	default:
		file, err := readPrivate(v.keyFile(m), maxMetadata)
		if err != nil {
			return nil, err
		}
		text = strings.TrimSpace(string(file))
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("invalid key in the %s", m.Key)
	}
	return key, nil
}

// create creates the vault, unless another process created it first.
func (v *Vault) create(ctx context.Context) (*sealer, error) {
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return nil, err
	}
	if err := checkPrivate(v.dir); err != nil {
		return nil, err
	}
	l, err := lockFile(ctx, filepath.Join(v.dir, metadataLock))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	m, err := v.readMetadata()
	if err != nil {
		return nil, err
	}
	if m != nil {
		return v.openExisting(ctx, m)
	}
	m = &metadata{Version: metadataVersion, ID: hex.EncodeToString(random(16))}
	key, err := v.makeKey(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", v.dir, ErrKey, err)
	}
	s, err := sealerOf(m.ID, key)
	if err != nil {
		return nil, err
	}
	return s, v.writeMetadata(m, s)
}

func (v *Vault) writeMetadata(m *metadata, s *sealer) error {
	m.Check = s.seal(m.checkName(), "", nil)
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(v.dir, metadataName), append(text, '\n'))
}

// makeKey returns a new key, stored in the best available location.
func (v *Vault) makeKey(ctx context.Context, m *metadata) ([]byte, error) {
	if v.passphrase != "" {
		return v.makeKeyIn(ctx, m, InPassphrase, v.passphrase)
	}
	key, reason := v.makeKeyIn(ctx, m, InKeyring, "")
	if reason == nil || ctx.Err() != nil {
		return key, reason
	}
	key, err := v.makeKeyIn(ctx, m, InFile, "")
	if err == nil {
		v.inFile(v.keyFile(m), reason)
	}
	return key, err
}

// makeKeyIn returns a new key, stored in a location.
func (v *Vault) makeKeyIn(ctx context.Context, m *metadata, location, passphrase string) ([]byte, error) {
	m.Key = location
	if location == InPassphrase {
		if len(passphrase) < minPassphrase {
			return nil, fmt.Errorf("the passphrase is too short: want at least %d bytes", minPassphrase)
		}
		m.Salt, m.Iterations = random(16), iterations
		return pbkdf2.Key(sha256.New, passphrase, m.Salt, m.Iterations, keySize)
	}
	key := random(keySize)
	text := base64.StdEncoding.EncodeToString(key)
	if location == InFile {
		return key, writeFile(v.keyFile(m), []byte(text+"\n"))
	}
	err := v.keys.put(ctx, m.ID, text)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return key, err
}

// keyFile returns the path of the file that contains the key if neither the keyring nor a passphrase is used.
func (v *Vault) keyFile(m *metadata) string { return filepath.Join(v.dir, cmp.Or(m.KeyFile, keyName)) }

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
