package vault_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zalando/go-keyring"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
)

func TestKeyIsInTheKeyring(t *testing.T) {
	keyring.MockInit()
	dir := filepath.Join(t.TempDir(), "vault")
	v := open(t, vault.Options{Dir: dir})
	if d, err := v.Describe(); err != nil || d != (vault.Description{Dir: dir}) {
		t.Errorf("before the first value: %+v, %v, want no key", d, err)
	}
	put(t, v, "a", secret)
	if d, err := v.Describe(); err != nil || d != (vault.Description{Dir: dir, Key: vault.InKeyring}) {
		t.Errorf("after the first value: %+v, %v, want the key in the keyring", d, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "vault.key")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of the key: %v, want that it does not exist", err)
	}
	checkValue(t, open(t, vault.Options{Dir: dir}), "a", secret)

	keyring.MockInit() // an empty keyring
	withoutKey := open(t, vault.Options{Dir: dir})
	if got, err := withoutKey.Load(t.Context(), "a"); !errors.Is(err, vault.ErrKey) ||
		!strings.Contains(err.Error(), "the key is missing") {
		t.Errorf("Load without the key: %q, %v, want ErrKey", got, err)
	}
	if err := withoutKey.Update(t.Context(), "b", nil); !errors.Is(err, vault.ErrKey) {
		t.Errorf("Update without the key: %v, want ErrKey", err)
	}
	disableKeyring(t)
	if got, err := withoutKey.Load(t.Context(), "a"); !errors.Is(err, vault.ErrKey) {
		t.Errorf("Load without the keyring: %q, %v, want ErrKey", got, err)
	}
}

func TestAnotherKeyDoesNotOpenTheVault(t *testing.T) {
	v, dir := newFileVault(t)
	put(t, v, "a", secret)
	other, otherDir := newFileVault(t)
	put(t, other, "a", "x")
	key, err := os.ReadFile(filepath.Join(otherDir, "vault.key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"for another vault": key, "empty": {}, "short": []byte("AAAA\n"), "not base64": bytes.Repeat([]byte("!"), 44),
		"large": bytes.Repeat([]byte("A"), 1<<20),
	} {
		if err := os.WriteFile(filepath.Join(dir, "vault.key"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := open(t, vault.Options{Dir: dir}).Load(t.Context(), "a"); !errors.Is(err, vault.ErrKey) ||
			got != nil {
			t.Errorf("a key that is %s: %q, %v, want ErrKey", name, got, err)
		}
	}
}

func TestPassphraseIsRequired(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "vault")
	const right = "correct horse battery"
	v := open(t, vault.Options{Dir: dir, Passphrase: right})
	put(t, v, "a", secret)
	if d, err := v.Describe(); err != nil || d.Key != vault.InPassphrase {
		t.Errorf("description %+v, %v, want the key in the passphrase", d, err)
	}
	checkValue(t, open(t, vault.Options{Dir: dir, Passphrase: right}), "a", secret)
	for name, wrong := range map[string]string{"wrong": "Correct horse battery", "absent": ""} {
		v := open(t, vault.Options{Dir: dir, Passphrase: wrong})
		got, err := v.Load(t.Context(), "a")
		if !errors.Is(err, vault.ErrKey) || got != nil || strings.Contains(err.Error(), "horse") {
			t.Errorf("%s passphrase: Load: %q, %v, want ErrKey without the passphrase", name, got, err)
		}
		if err := v.Update(t.Context(), "a", nil); !errors.Is(err, vault.ErrKey) {
			t.Errorf("%s passphrase: Update: %v, want ErrKey", name, err)
		}
	}
	short := open(t, vault.Options{Dir: t.TempDir() + "/vault", Passphrase: "short"})
	if err := short.Update(t.Context(), "a", nil); !errors.Is(err, vault.ErrKey) {
		t.Errorf("a short passphrase: %v, want ErrKey", err)
	}
	other, otherDir := newFileVault(t)
	put(t, other, "a", secret)
	got, err := open(t, vault.Options{Dir: otherDir, Passphrase: right}).Load(t.Context(), "a")
	if !errors.Is(err, vault.ErrKey) {
		t.Errorf("a passphrase for a vault without one: %q, %v, want ErrKey", got, err)
	}
}

// The key derivation cannot be weakened by changing the metadata.
func TestChangedMetadataIsRejected(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "vault")
	const right = "correct horse battery"
	put(t, open(t, vault.Options{Dir: dir, Passphrase: right}), "a", secret)
	file := filepath.Join(dir, "vault.json")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ old, new string }{
		{`"iterations":600000`, `"iterations":1`},
		{`"iterations":600000`, `"iterations":600001`},
		{`"iterations":600000`, `"iterations":2000000000`},
		{`"key":"passphrase"`, `"key":"file"`},
		{`"key":"passphrase"`, `"key":"unknown"`},
		{`"version":1`, `"version":2`},
		{`"version":1`, `"version":1,"version":1`},
		{`{`, `[`},
	} {
		if !bytes.Contains(good, []byte(test.old)) {
			t.Fatalf("metadata %s does not contain %s", good, test.old)
		}
		if err := os.WriteFile(file, bytes.Replace(good, []byte(test.old), []byte(test.new), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := open(t, vault.Options{Dir: dir, Passphrase: right}).Load(t.Context(), "a")
		if !errors.Is(err, vault.ErrDamaged) && !errors.Is(err, vault.ErrKey) || got != nil {
			t.Errorf("metadata with %s: %q, %v, want ErrDamaged or ErrKey", test.new, got, err)
		}
	}
}

// FuzzLoad replaces the files of a vault: Load returns the stored value or an error.
func FuzzLoad(f *testing.F) {
	disableKeyring(f)
	dir := filepath.Join(f.TempDir(), "vault")
	v, err := vault.New(&vault.Options{Dir: dir})
	if err != nil {
		f.Fatal(err)
	}
	if err := v.Update(f.Context(), "a", func([]byte) ([]byte, error) { return []byte(secret), nil }); err != nil {
		f.Fatal(err)
	}
	sealed, err := filepath.Glob(filepath.Join(dir, "*.sealed"))
	if err != nil || len(sealed) != 1 {
		f.Fatal(sealed, err)
	}
	names := []string{filepath.Join(dir, "vault.json"), filepath.Join(dir, "vault.key"), sealed[0]}
	good := make([][]byte, len(names))
	for i, name := range names {
		if good[i], err = os.ReadFile(name); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(good[0], good[1], good[2])
	f.Add([]byte(`{"version":1,"key":"file","id":"","check":""}`), good[1], good[2])
	f.Add(good[0], good[1], []byte("patchbay sealed 1\n"))
	f.Fuzz(func(t *testing.T, head, key, value []byte) {
		for i, text := range [][]byte{head, key, value} {
			if err := os.WriteFile(names[i], text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		v, err := vault.New(&vault.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.Load(t.Context(), "a")
		if err == nil && string(got) != secret || err != nil && got != nil {
			t.Fatalf("Load: %q, %v, want %q or an error", got, err, secret)
		}
	})
}
