package vault_test

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
)

func TestKeysAreListed(t *testing.T) {
	v, dir := newFileVault(t)
	if keys, err := v.Keys(t.Context()); keys != nil || err != nil {
		t.Errorf("without a vault: %q, %v, want none", keys, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory after Keys: %v, want that it does not exist", err)
	}
	long := strings.Repeat("k", 4<<10)
	for _, key := range []string{"b", "", "a \x00\u00fc", long, "gone"} {
		put(t, v, key, secret)
	}
	if err := v.Update(t.Context(), "gone", func([]byte) ([]byte, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	again := open(t, vault.Options{Dir: dir})
	want := []string{"", "a \x00\u00fc", "b", long}
	if keys, err := again.Keys(t.Context()); !slices.Equal(keys, want) || err != nil {
		t.Errorf("got %q, %v, want %q", keys, err, want)
	}
	damaged := filepath.Join(dir, "damaged.sealed")
	if err := os.WriteFile(damaged, []byte("patchbay sealed 2\nx"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := again.Keys(t.Context())
	if !slices.Equal(keys, want) || !errors.Is(err, vault.ErrDamaged) || !strings.Contains(err.Error(), damaged) {
		t.Errorf("with a damaged file: %q, %v, want the others and ErrDamaged", keys, err)
	}
	if err := errors.Join(os.Remove(damaged), os.Remove(filepath.Join(dir, "vault.key"))); err != nil {
		t.Fatal(err)
	}
	if keys, err := open(t, vault.Options{Dir: dir}).Keys(t.Context()); keys != nil || !errors.Is(err, vault.ErrKey) {
		t.Errorf("without the key: %q, %v, want ErrKey", keys, err)
	}
}

// Values whose files do not have their keys can be read and replaced.
func TestFilesWithoutKeysAreRead(t *testing.T) {
	v, dir := newFileVault(t)
	put(t, v, "other", "x")
	name := sha256.Sum256([]byte("old"))
	file := filepath.Join(dir, hex.EncodeToString(name[:16])+".sealed")
	if err := os.WriteFile(file, sealWithoutKey(t, dir, "old"), 0o600); err != nil {
		t.Fatal(err)
	}
	checkValue(t, v, "old", secret)
	if keys, err := v.Keys(t.Context()); !slices.Equal(keys, []string{"other"}) || err != nil {
		t.Errorf("got %q, %v, want the other one", keys, err)
	}
	put(t, v, "old", "new")
	checkValue(t, v, "old", "new")
	if keys, err := v.Keys(t.Context()); !slices.Equal(keys, []string{"old", "other"}) || err != nil {
		t.Errorf("after an update: %q, %v, want both", keys, err)
	}
	if err := os.WriteFile(file, sealWithoutKey(t, dir, "swapped"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := v.Load(t.Context(), "old"); !errors.Is(err, vault.ErrDamaged) {
		t.Errorf("the file of another key: %q, %v, want ErrDamaged", got, err)
	}
}

// sealWithoutKey encrypts the secret as the first version of the format did.
func sealWithoutKey(t *testing.T, dir, key string) []byte {
	t.Helper()
	var metadata struct{ ID string }
	text, err := os.ReadFile(filepath.Join(dir, "vault.json"))
	if err == nil {
		err = json.Unmarshal(text, &metadata)
	}
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := os.ReadFile(filepath.Join(dir, "vault.key"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(encoded)))
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce)
	const magic = "patchbay sealed 1\n"
	return append([]byte(magic), aead.Seal(nonce, nonce, []byte(secret), []byte(magic+metadata.ID+"\n"+key))...)
}
