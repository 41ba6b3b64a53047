package authserver

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/seal"
)

const (
	sealKeyLen  = 32 // AES-256
	maxSealID   = 64 // readable names, such as the names of NewSealKey
	maxSealKeys = 32

	sealPurpose = "patchbay authserver" // see seal.NewKeyRing
)

// errUnsealed reports that a sealed value cannot be opened with the present keys. It does not mean
// that the value ended: other keys may open it.
var errUnsealed = errors.New("authserver: a sealed value cannot be opened")

// errChanged is an errUnsealed for a value that was modified or that belongs to another record.
var errChanged = fmt.Errorf("%w: it was modified, or belongs to another record", errUnsealed)

// A SealKey encrypts the secrets that an authorization server must read again, such as the tokens
// of identity providers, before they are written to a [Store].
type SealKey struct {
	// ID identifies the key in what it sealed, unencrypted. It contains 1 to 64 printable ASCII
	// characters without spaces.
	ID string
	// Key contains 32 random bytes.
	Key []byte

	file string // that the key was loaded from, or ""
}

// NewSealKey returns a random key. Its ID contains the current time.
func NewSealKey() SealKey {
	key := make([]byte, sealKeyLen)
	_, _ = rand.Read(key) // never fails
	return SealKey{ID: time.Now().UTC().Format("20060102T150405") + "-" + strings.ToLower(rand.Text()[:6]), Key: key}
}

// LoadSealKeys reads keys for Options.SealKeys from a file. If the file does not exist,
// LoadSealKeys creates it with a new key and mode 0600. It refuses a file that other users can
// read.
//
// Each line of the file contains the ID of a key, a space, and its 32 bytes in base64. Lines that
// begin with # are comments. The first key seals, all of them open.
//
// Keep the file and its backups apart from the store and its backups: with both, anyone knows the
// secrets. [New] logs a warning if both files are in the same directory.
func LoadSealKeys(path string) ([]SealKey, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		keys := []SealKey{NewSealKey()}
		// Unlike Rename, Link does not replace an existing file.
		if err = writeSealKeys(path, keys, os.Link); err == nil {
			return loadedFrom(path, keys), nil
		}
		if errors.Is(err, fs.ErrExist) { // created by another process
			text, err = os.ReadFile(path)
		}
	}
	if err == nil {
		err = checkPrivateFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("authserver: load seal keys: %w", err)
	}
	keys, err := parseSealKeys(text)
	if err != nil {
		return nil, fmt.Errorf("authserver: load seal keys from %s: %w", path, err)
	}
	return loadedFrom(path, keys), nil
}

func loadedFrom(path string, keys []SealKey) []SealKey {
	for i := range keys {
		keys[i].file = path
	}
	return keys
}

// warnOfKeyPlace logs a warning if a copy of the directory of the store, such as a backup, contains
// the seal keys too. Only a store in a file returns a path.
func (s *Server) warnOfKeyPlace() {
	store, ok := s.store.(interface{ Path() string })
	if !ok {
		return
	}
	const text = "authorization server: a copy of the store has its seal key too; keep the keys and their backups apart"
	if len(s.o.SealKeys) == 0 {
		s.log.Warn(text, "reason", "no seal keys are configured", "store", store.Path())
	}
	for _, k := range s.o.SealKeys {
		if k.file != "" && realDir(k.file) == realDir(store.Path()) {
			s.log.Warn(text, "reason", "the files are in the same directory", "store", store.Path(), "keys", k.file)
			return
		}
	}
}

func realDir(path string) string {
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return path
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

// RotateSealKeys inserts a new key as the first key in a file of [LoadSealKeys], and keeps at most
// keep of the old keys. Load the file again for [Server.ReplaceSealKeys], or restart the server.
// The server seals everything that it changes with the new key, and the signing keys when it
// starts.
//
// If several servers share a store, insert the new key after the first key in all files, load them
// in all servers, and only then move it to the front: a server answers 503 if it cannot open a
// secret.
//
// A secret whose key was removed cannot be opened until the key is added again. [New] returns an
// error if it cannot open any signing key. Requests that need the tokens of an identity provider
// get 503 until the user logs in again. Keep old keys for as long as Lifetimes.Refresh, unless they
// have leaked.
func RotateSealKeys(path string, keep int) error {
	keys, err := LoadSealKeys(path)
	if err != nil {
		return err
	}
	keys = slices.Insert(keys[:min(max(keep, 0), len(keys), maxSealKeys-1)], 0, NewSealKey())
	if err := writeSealKeys(path, keys, os.Rename); err != nil {
		return fmt.Errorf("authserver: rotate seal keys: %w", err)
	}
	return nil
}

// writeSealKeys writes the file atomically. The function place moves the temporary file to its
// path.
func writeSealKeys(path string, keys []SealKey, place func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new*") // 0600
	if err != nil {
		return err
	}
	for _, k := range keys {
		_, writeErr := fmt.Fprintf(f, "%s %s\n", k.ID, base64.StdEncoding.EncodeToString(k.Key))
		err = errors.Join(err, writeErr)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = place(f.Name(), path)
	}
	if removeErr := os.Remove(f.Name()); !errors.Is(removeErr, fs.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	return err
}

func parseSealKeys(text []byte) ([]SealKey, error) {
	var keys []SealKey
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, encoded, _ := strings.Cut(line, " ")
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
		if err != nil {
			return nil, fmt.Errorf("line %d: want an ID, a space and a key in base64", i+1) // err would quote the key
		}
		keys = append(keys, SealKey{ID: id, Key: key})
	}
	return keys, checkSealKeys(keys)
}

func checkSealKeys(keys []SealKey) error {
	if len(keys) == 0 || len(keys) > maxSealKeys {
		return fmt.Errorf("%d keys, want 1 to %d", len(keys), maxSealKeys)
	}
	seen := map[string]bool{}
	for i, k := range keys {
		switch {
		case k.ID == "" || len(k.ID) > maxSealID || !isPrintable(k.ID):
			return fmt.Errorf("key %d: invalid ID: must have 1 to %d printable ASCII characters without spaces",
				i+1, maxSealID)
		case len(k.Key) != sealKeyLen:
			return fmt.Errorf("key %d: %d bytes, want %d", i+1, len(k.Key), sealKeyLen)
		case seen[k.ID]:
			return fmt.Errorf("key %d: duplicate ID", i+1)
		}
		seen[k.ID] = true
	}
	return nil
}

func keyRing(keys []SealKey) ([]seal.Key, error) {
	if err := checkSealKeys(keys); err != nil {
		return nil, fmt.Errorf("seal keys: %w", err)
	}
	ring := make([]seal.Key, len(keys))
	for i, k := range keys {
		ring[i] = seal.Key{ID: k.ID, Secret: k.Key}
	}
	return ring, nil
}

func newKeyRing(keys []SealKey) (*seal.KeyRing, error) {
	ring, err := keyRing(keys)
	if err != nil {
		return nil, err
	}
	return seal.NewKeyRing(sealPurpose, ring...)
}

// ReplaceSealKeys replaces Options.SealKeys while the server runs, such as after [RotateSealKeys].
// On an error the keys stay as they were. It is safe for concurrent use.
func (s *Server) ReplaceSealKeys(keys []SealKey) error {
	ring, err := keyRing(keys)
	if err == nil {
		err = s.seals.Replace(ring...)
	}
	if err != nil {
		return fmt.Errorf("authserver: replace %w", err)
	}
	return nil
}

// openSealed opens the value that was sealed for the record of this kind and key. It reports
// whether the value should be sealed again because its key is not the first key.
func openSealed(ring *seal.KeyRing, sealed []byte, kind, key string) (secret []byte, isOld bool, err error) {
	secret, isFirst, err := ring.Open(sealed, kind, key)
	var unknown *seal.UnknownKeyError
	switch {
	case errors.As(err, &unknown):
		return nil, false, fmt.Errorf("%w: seal key %.64q is missing", errUnsealed, unknown.ID)
	case err != nil:
		return nil, false, errChanged
	}
	return secret, !isFirst, nil
}

// checkPrivateFile refuses a file that other users can access. Windows lacks permission bits;
// there the folder's access rules apply.
func checkPrivateFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: not a regular file", path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s: mode %04o lets other users access the file: run chmod 600", path, info.Mode().Perm())
	}
	return nil
}
