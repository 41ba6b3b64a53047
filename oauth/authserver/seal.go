package authserver

import (
	"bufio"
	"bytes"
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
	maxSealID   = 64 // for a name that people can read
	maxSealKeys = 32 // more were never taken away

	sealPurpose = "patchbay authserver" // see seal.NewKeyRing
)

// errUnsealed is within the error for what none of the keys has sealed for this place, whatever the reason is. It never
// says that what was sealed is over: with the right keys it can be opened again.
var errUnsealed = errors.New("authserver: a sealed record cannot be opened")

// errChanged is the errUnsealed for what was sealed elsewhere, or changed since.
var errChanged = fmt.Errorf("%w: it was changed, or is in another's place", errUnsealed)

// A SealKey seals the secrets that an authorization server has to read again, such as the tokens of third parties,
// before they come to a [Store].
type SealKey struct {
	// ID tells keys apart, and stands open beside what was sealed: 1 to 64 printable ASCII characters without spaces.
	ID string
	// Key has 32 random bytes.
	Key []byte
}

// NewSealKey makes a key whose ID tells when it was made.
func NewSealKey() SealKey {
	key := make([]byte, sealKeyLen)
	_, _ = rand.Read(key) // it never fails: it ends the program instead
	return SealKey{ID: time.Now().UTC().Format("20060102T150405") + "-" + strings.ToLower(rand.Text()[:6]), Key: key}
}

// LoadSealKeys reads keys for Options.SealKeys from a file: one a line, its ID, a space, its 32 bytes in base64; lines that
// begin with # say something else. The first one seals, all of them open. If there is no such file, one with a new key is
// made, 0600. A file that others may read is refused.
//
// The file belongs elsewhere than the store, and so do their backups: whoever has both has the secrets.
func LoadSealKeys(path string) ([]SealKey, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		keys := []SealKey{NewSealKey()}
		if err = writeSealKeys(path, keys, os.Link); err == nil { // unlike Rename, Link spares a file that is there
			return keys, nil
		}
		if errors.Is(err, fs.ErrExist) { // another process was faster
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
	return keys, nil
}

// RotateSealKeys puts a new key in front of those of a file that [LoadSealKeys] reads, and keeps at most keep of the old
// ones. What a server changes is sealed with the new key, and the signing keys are at its start. A server reads the file
// when it starts.
//
// Where several servers share a store, none may seal with a key that another one does not have yet: put the new key below
// the first one in the file of each, start each again, and only then put it in front.
//
// What was sealed with a key that is gone is not lost as long as the key may come back: [New] fails if it concerns all
// signing keys, and says what to remove if it is gone for good; what rests on the tokens of a third party is refused with
// 503 until the key is back, or the user logs out and in again. So keep old keys for as long as Lifetimes.Refresh, unless
// they have leaked.
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

// writeSealKeys writes the file as a whole or not at all: place puts it where it belongs.
func writeSealKeys(path string, keys []SealKey, place func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(formatSealKeys(keys))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = place(f.Name(), path)
	}
	if removeErr := os.Remove(f.Name()); !errors.Is(removeErr, fs.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	return err
}

func formatSealKeys(keys []SealKey) []byte {
	var b bytes.Buffer
	for _, k := range keys {
		b.WriteString(k.ID + " " + base64.StdEncoding.EncodeToString(k.Key) + "\n")
	}
	return b.Bytes()
}

func parseSealKeys(text []byte) ([]SealKey, error) {
	var keys []SealKey
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, encoded, _ := strings.Cut(line, " ")
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
		if err != nil {
			return nil, fmt.Errorf("line %d is not an id, a space and a key in base64", n) // err would quote the key
		}
		keys = append(keys, SealKey{ID: id, Key: key})
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return keys, checkSealKeys(keys)
}

func checkSealKeys(keys []SealKey) error {
	if len(keys) == 0 || len(keys) > maxSealKeys {
		return fmt.Errorf("there are %d keys, want 1 to %d", len(keys), maxSealKeys)
	}
	seen := map[string]bool{}
	for i, k := range keys {
		switch {
		case k.ID == "" || len(k.ID) > maxSealID || strings.ContainsFunc(k.ID, func(r rune) bool { return r <= ' ' || r > '~' }):
			return fmt.Errorf("key %d: its id has to have 1 to %d printable ASCII characters", i+1, maxSealID)
		case len(k.Key) != sealKeyLen:
			return fmt.Errorf("key %d: it has %d bytes, want %d", i+1, len(k.Key), sealKeyLen)
		case seen[k.ID]:
			return fmt.Errorf("key %d: its id is that of another one", i+1)
		}
		seen[k.ID] = true
	}
	return nil
}

// keyRing returns the key ring of these keys.
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

// ReplaceSealKeys replaces Options.SealKeys while the server runs, such as after [RotateSealKeys]. On an error the keys
// stay as they were. It is safe for concurrent use.
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

// openSealed opens what was sealed for the record of this kind and key. It reports whether the value should be sealed
// again because its key is not the first one.
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

// checkPrivateFile refuses a file that other users can access. Windows has no permission bits; there the folder's access rules
// apply.
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
