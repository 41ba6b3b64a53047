package vault

import (
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

// Places of the key of a vault.
const (
	InKeyring    = "keyring"
	InFile       = "file"
	InPassphrase = "passphrase"
)

const (
	headName = "vault.json" // says how the vault is sealed
	keyName  = "vault.key"  // the key, when it is in a file
	headLock = "vault.lock"

	// maxHead bounds the two files above, in bytes.
	maxHead = 4 << 10
	// headVersion is raised when older programs can no longer read what newer ones write.
	headVersion = 1
	// iterations of PBKDF2 with SHA-256 for a new vault: a third of a second on a slow machine.
	iterations = 600_000
	// leastIterations and mostIterations bound what a file may ask for: it is nobody's to weaken or to stall.
	leastIterations, mostIterations = 100_000, 10_000_000
	// leastPassphrase is how long a passphrase has to be, in bytes: a shorter one is found by trying.
	leastPassphrase = 8
)

// A head is what vault.json holds. Nothing in it is secret.
type head struct {
	Version    int    `json:"version"`
	ID         string `json:"id"`
	Key        string `json:"key"`
	Salt       []byte `json:"salt,omitempty"`
	Iterations int    `json:"iterations,omitempty"`
	// Check is an empty value, sealed: whoever opens it has the right key.
	Check []byte `json:"check"`
}

// checkName is what the check is bound to: all that the key depends on.
func (h *head) checkName() string {
	return fmt.Sprintf("check\n%d\n%s\n%x\n%d", h.Version, h.Key, h.Salt, h.Iterations)
}

// readHead returns the head, nil if there is no vault.
func (v *Vault) readHead() (*head, error) {
	file := filepath.Join(v.dir, headName)
	text, err := readPrivate(file, maxHead)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, v.checkEmpty()
	}
	if err == nil {
		err = checkPrivate(v.dir)
	}
	if err != nil {
		return nil, err
	}
	var h head
	switch err := json.Unmarshal(text, &h); {
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", file, ErrDamaged, err)
	case h.Version != headVersion:
		return nil, fmt.Errorf("%s: %w: it has version %d, and this program knows %d", file, ErrDamaged, h.Version, headVersion)
	case h.Key != InKeyring && h.Key != InFile && h.Key != InPassphrase:
		return nil, fmt.Errorf("%s: %w: it has the key in an unknown place", file, ErrDamaged)
	case h.Key == InPassphrase && (h.Iterations < leastIterations || h.Iterations > mostIterations):
		return nil, fmt.Errorf("%s: %w: it asks for %d iterations", file, ErrDamaged, h.Iterations)
	}
	return &h, nil
}

// checkEmpty tells a vault that is not there from one that has lost its head.
func (v *Vault) checkEmpty() error {
	files, err := os.ReadDir(v.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".sealed") {
			return fmt.Errorf("%s: %w: there are sealed files, and no %s to open them with; remove the directory, and log in again",
				v.dir, ErrDamaged, headName)
		}
	}
	return nil
}

// unlock returns what opens the values, from missing if there is no vault. What it found before serves as long as the vault
// is the same: it may have been removed meanwhile, and made anew.
func (v *Vault) unlock(ctx context.Context, missing func(ctx context.Context) (*sealer, error)) (*sealer, error) {
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	h, err := v.readHead()
	if err != nil {
		return nil, err
	}
	var s *sealer
	switch {
	case h != nil && v.seal != nil && v.seal.vault == h.ID:
		return v.seal, nil
	case h != nil:
		s, err = v.openHead(ctx, h)
	default:
		s, err = missing(ctx)
	}
	if err != nil {
		return nil, err
	}
	v.seal = s
	return s, nil
}

// noHead is for a reader who has seen a sealed file a moment ago.
func (v *Vault) noHead(context.Context) (*sealer, error) {
	return nil, fmt.Errorf("%s: %w: the vault is gone", v.dir, ErrKey)
}

// openHead gets the key of a vault that is there.
func (v *Vault) openHead(ctx context.Context, h *head) (*sealer, error) {
	key, err := v.key(ctx, h)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", v.dir, ErrKey, err)
	}
	s, err := openSealer(h.ID, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", v.dir, ErrKey, err)
	}
	if _, err := s.open(h.checkName(), h.Check); err == nil {
		return s, nil
	}
	if h.Key == InPassphrase {
		return nil, fmt.Errorf("%s: %w: the passphrase is not the one that it was sealed with", v.dir, ErrKey)
	}
	return nil, fmt.Errorf("%s: %w: the key (in the %s) is not the one that it was sealed with", v.dir, ErrKey, h.Key)
}

func (v *Vault) key(ctx context.Context, h *head) ([]byte, error) {
	if v.passphrase != "" && h.Key != InPassphrase {
		return nil, fmt.Errorf("a passphrase is given, and the vault was made with its key in the %s", h.Key)
	}
	var text string
	switch h.Key {
	case InPassphrase:
		if v.passphrase == "" {
			return nil, errors.New("it was made with a passphrase, and none is given")
		}
		return pbkdf2.Key(sha256.New, v.passphrase, h.Salt, h.Iterations, keySize)
	case InKeyring:
		found, err := v.keys.get(ctx, h.ID)
		if err != nil {
			return nil, fmt.Errorf("system keyring: %w", err)
		}
		text = found
	default:
		found, err := readPrivate(filepath.Join(v.dir, keyName), maxHead)
		if err != nil {
			return nil, err
		}
		text = strings.TrimSpace(string(found))
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("what lies in the %s is no key", h.Key)
	}
	return key, nil
}

// makeHead makes the vault, unless another process was faster.
func (v *Vault) makeHead(ctx context.Context) (*sealer, error) {
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return nil, err
	}
	if err := checkPrivate(v.dir); err != nil {
		return nil, err
	}
	l, err := lockFile(ctx, filepath.Join(v.dir, headLock))
	if err != nil {
		return nil, err
	}
	defer l.unlock()
	h, err := v.readHead()
	if err != nil {
		return nil, err
	}
	if h != nil {
		return v.openHead(ctx, h)
	}
	h = &head{Version: headVersion, ID: hex.EncodeToString(random(16))}
	key, err := v.makeKey(ctx, h)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", v.dir, ErrKey, err)
	}
	s, err := openSealer(h.ID, key)
	if err != nil {
		return nil, err
	}
	h.Check = s.seal(h.checkName(), nil)
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	return s, writeFile(filepath.Join(v.dir, headName), append(text, '\n'))
}

// makeKey makes a key and puts it into the best place that there is.
func (v *Vault) makeKey(ctx context.Context, h *head) ([]byte, error) {
	if v.passphrase != "" {
		if len(v.passphrase) < leastPassphrase {
			return nil, fmt.Errorf("the passphrase has less than %d characters", leastPassphrase)
		}
		h.Key, h.Salt, h.Iterations = InPassphrase, random(16), iterations
		return pbkdf2.Key(sha256.New, v.passphrase, h.Salt, h.Iterations, keySize)
	}
	key := random(keySize)
	text := base64.StdEncoding.EncodeToString(key)
	if v.keys.put(ctx, h.ID, text) == nil {
		h.Key = InKeyring
		return key, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	h.Key = InFile
	return key, writeFile(filepath.Join(v.dir, keyName), []byte(text+"\n"))
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails: it ends the program instead
	return b
}
