package vault_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zalando/go-keyring"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(child(role))
	}
	keyring.MockInit() // tests must not use the real keyring
	os.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/no/bus")
	os.Exit(testhome.Main(m, mcptest.Main))
}

// secret must not be in any file in plain text.
const secret = "s3cret-refresh-token"

func open(t *testing.T, opts vault.Options) *vault.Vault {
	t.Helper()
	v, err := vault.New(&opts)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// newFileVault returns a vault whose key is in a file, and its directory.
func newFileVault(t *testing.T) (*vault.Vault, string) {
	t.Helper()
	disableKeyring(t)
	dir := filepath.Join(t.TempDir(), "vault")
	return open(t, vault.Options{Dir: dir}), dir
}

func disableKeyring(t testing.TB) {
	t.Helper()
	keyring.MockInitWithError(errors.New("no keyring here"))
	t.Cleanup(keyring.MockInit)
}

func put(t *testing.T, v *vault.Vault, key, value string) {
	t.Helper()
	if err := v.Update(t.Context(), key, func([]byte) ([]byte, error) { return []byte(value), nil }); err != nil {
		t.Fatal(err)
	}
}

func checkValue(t *testing.T, v *vault.Vault, key, want string) {
	t.Helper()
	got, err := v.Load(t.Context(), key)
	if err != nil || string(got) != want {
		t.Errorf("value of %s: %q, %v, want %q", key, got, err, want)
	}
}

// onlyFile returns the file of a vault with a suffix, of which there must be one.
func onlyFile(t *testing.T, dir, suffix string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil || len(found) != 1 {
		t.Fatalf("files with %s: %q, %v, want one", suffix, found, err)
	}
	return found[0]
}

func TestValuesPersist(t *testing.T) {
	v, dir := newFileVault(t)
	checkValue(t, v, "a", "")
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory after Load: %v, want that it does not exist", err)
	}
	put(t, v, "a", secret)
	put(t, v, "https://b.example/ \x00ü", "")
	again := open(t, vault.Options{Dir: dir})
	checkValue(t, again, "a", secret)
	checkValue(t, again, "c", "")
	if got, err := again.Load(t.Context(), "https://b.example/ \x00ü"); got == nil || len(got) != 0 || err != nil {
		t.Errorf("an empty value: got %v, %v, want an empty slice that is not nil", got, err)
	}
	broken := errors.New("broken")
	err := again.Update(t.Context(), "a", func(old []byte) ([]byte, error) {
		if string(old) != secret {
			t.Errorf("Update called the function with %q, want %q", old, secret)
		}
		return []byte("other"), broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("Update: %v, want %v", err, broken)
	}
	checkValue(t, v, "a", secret)
	for range 2 {
		if err := v.Update(t.Context(), "a", func([]byte) ([]byte, error) { return nil, nil }); err != nil {
			t.Error(err)
		}
		if got, err := again.Load(t.Context(), "a"); got != nil || err != nil {
			t.Errorf("a removed value: %q, %v, want nil", got, err)
		}
	}
}

// Requirement: AUTH-13
func TestFilesAreEncrypted(t *testing.T) {
	v, dir := newFileVault(t)
	put(t, v, "https://as.example/key", secret)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 3 {
		t.Fatalf("files %v, %v, want at least 3", files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil || bytes.Contains(text, []byte(secret)) || strings.Contains(string(text)+f.Name(), "example") {
			t.Errorf("%s contains %q, %v, want neither the value nor the key in plain text", f.Name(), text, err)
		}
		if info, err := f.Info(); runtime.GOOS != "windows" && (err != nil || info.Mode() != 0o600) {
			t.Errorf("%s: mode %v, %v, want 0600", f.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm() != 0o700) {
		t.Errorf("directory: mode %v, %v, want 0700", info.Mode(), err)
	}
}

func TestValuesAreBounded(t *testing.T) {
	v, _ := newFileVault(t)
	put(t, v, "a", secret)
	put(t, v, strings.Repeat("k", 4<<10), strings.Repeat("x", 1<<20))
	checkValue(t, v, strings.Repeat("k", 4<<10), strings.Repeat("x", 1<<20))
	tooLarge := func([]byte) ([]byte, error) { return make([]byte, 1<<20+1), nil }
	if err := v.Update(t.Context(), "a", tooLarge); err == nil {
		t.Error("Update with a value of more than 1 MiB succeeded, want an error")
	}
	checkValue(t, v, "a", secret)
	if _, err := v.Load(t.Context(), strings.Repeat("k", 4<<10+1)); err == nil {
		t.Error("Load with a key of more than 4 KiB succeeded, want an error")
	}
}

func TestFilesAccessibleToOthersAreRejected(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("file modes do not control access on Windows")
	}
	for _, test := range []struct {
		name string
		mode os.FileMode
	}{
		{"", 0o750}, {"", 0o705}, {"", 0o701}, {"vault.json", 0o640},
		{"vault.key", 0o644}, {"vault.key", 0o602}, {"*.sealed", 0o604},
	} {
		v, dir := newFileVault(t)
		put(t, v, "a", secret)
		found, err := filepath.Glob(filepath.Join(dir, test.name))
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		if err := os.Chmod(found[0], test.mode); err != nil {
			t.Fatal(err)
		}
		fresh := open(t, vault.Options{Dir: dir})
		if got, err := fresh.Load(t.Context(), "a"); !errors.Is(err, vault.ErrExposed) ||
			!strings.Contains(err.Error(), "chmod go= "+found[0]) {
			t.Errorf("%q with mode %o: Load: %q, %v, want ErrExposed with the command", test.name, test.mode, got, err)
		}
		if err := fresh.Update(t.Context(), "a", mustNotUpdate(t)); !errors.Is(err, vault.ErrExposed) {
			t.Errorf("%q with mode %o: Update: %v, want ErrExposed", test.name, test.mode, err)
		}
	}
	disableKeyring(t)
	readable := open(t, vault.Options{Dir: readableDir(t)})
	if err := readable.Update(t.Context(), "a", nil); !errors.Is(err, vault.ErrExposed) {
		t.Errorf("Update in a directory that others can read: %v, want ErrExposed", err)
	}
}

// mustNotUpdate returns a function for Update that fails the test.
func mustNotUpdate(t *testing.T) func([]byte) ([]byte, error) {
	return func([]byte) ([]byte, error) {
		t.Error("Update called the function, want an error before")
		return nil, nil
	}
}

func readableDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLinksAndSpecialFilesAreRejected(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links need a privilege on Windows")
	}
	v, dir := newFileVault(t)
	put(t, v, "a", secret)
	file := onlyFile(t, dir, ".sealed")
	for name, replace := range map[string]func() error{
		"a link":      func() error { return os.Symlink(file+".real", file) },
		"a directory": func() error { return os.Mkdir(file, 0o700) },
	} {
		if err := os.Rename(file, file+".real"); err != nil {
			t.Fatal(err)
		}
		if err := replace(); err != nil {
			t.Fatal(err)
		}
		if got, err := v.Load(t.Context(), "a"); !errors.Is(err, vault.ErrDamaged) {
			t.Errorf("%s: got %q, %v, want ErrDamaged", name, got, err)
		}
		if err := errors.Join(os.Remove(file), os.Rename(file+".real", file)); err != nil {
			t.Fatal(err)
		}
	}
	checkValue(t, v, "a", secret)
}

// A changed file is an error, and the file is kept.
func TestTamperingIsDetected(t *testing.T) {
	v, dir := newFileVault(t)
	put(t, v, "a", secret)
	file := onlyFile(t, dir, ".sealed")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string][]byte{"empty": {}, "longer": append(bytes.Clone(good), 0), "foreign": []byte("{}"),
		"large": make([]byte, 2<<20)}
	for n := range good {
		changed["cut at "+string(rune('0'+n))] = good[:n]
		for bit := range 8 {
			flipped := bytes.Clone(good)
			flipped[n] ^= 1 << bit
			changed["flipped "+string(flipped)] = flipped
		}
	}
	for name, text := range changed {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := v.Load(t.Context(), "a"); !errors.Is(err, vault.ErrDamaged) || got != nil ||
			!strings.Contains(err.Error(), file) {
			t.Fatalf("%q: Load: %q, %v, want ErrDamaged with the file name", name, got, err)
		}
		if err := v.Update(t.Context(), "a", mustNotUpdate(t)); !errors.Is(err, vault.ErrDamaged) {
			t.Fatalf("%q: Update: %v, want ErrDamaged", name, err)
		}
		if kept, err := os.ReadFile(file); err != nil || !bytes.Equal(kept, text) {
			t.Fatalf("%q: the file became %q, %v, want it unchanged", name, kept, err)
		}
	}
}

// A value is bound to its key and its vault.
func TestFilesCannotBeSwapped(t *testing.T) {
	v, dir := newFileVault(t)
	put(t, v, "a", secret)
	first := onlyFile(t, dir, ".sealed")
	aside := filepath.Join(t.TempDir(), "aside")
	if err := os.Rename(first, aside); err != nil {
		t.Fatal(err)
	}
	put(t, v, "b", "other")
	second := onlyFile(t, dir, ".sealed")
	if err := os.Rename(aside, second); err != nil {
		t.Fatal(err)
	}
	if got, err := v.Load(t.Context(), "b"); !errors.Is(err, vault.ErrDamaged) {
		t.Errorf("Load with the file of another key: %q, %v, want ErrDamaged", got, err)
	}
}

func TestMissingMetadataIsAnError(t *testing.T) {
	v, dir := newFileVault(t)
	put(t, v, "a", secret)
	if err := os.Remove(filepath.Join(dir, "vault.json")); err != nil {
		t.Fatal(err)
	}
	fresh := open(t, vault.Options{Dir: dir})
	if got, err := fresh.Load(t.Context(), "a"); !errors.Is(err, vault.ErrDamaged) {
		t.Errorf("Load: %q, %v, want ErrDamaged", got, err)
	}
	if err := fresh.Update(t.Context(), "b", nil); !errors.Is(err, vault.ErrDamaged) {
		t.Errorf("Update: %v, want ErrDamaged", err)
	}
	if _, err := fresh.Describe(); !errors.Is(err, vault.ErrDamaged) {
		t.Errorf("Describe: %v, want ErrDamaged", err)
	}
}

// The directory can be removed while programs use the vault.
func TestVaultIsRecreated(t *testing.T) {
	first, dir := newFileVault(t)
	remove := func() {
		t.Helper()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	put(t, first, "a", "1")
	remove()
	put(t, open(t, vault.Options{Dir: dir}), "b", "1")
	put(t, first, "a", "2")
	checkValue(t, first, "b", "1")
	checkValue(t, open(t, vault.Options{Dir: dir}), "a", "2")

	remove()
	put(t, first, "a", "3")
	checkValue(t, open(t, vault.Options{Dir: dir}), "a", "3")

	if runtime.GOOS != "windows" { // on Windows, open files cannot be removed
		err := first.Update(t.Context(), "a", func([]byte) ([]byte, error) {
			remove()
			put(t, open(t, vault.Options{Dir: dir}), "b", "4")
			return []byte("4"), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		checkValue(t, open(t, vault.Options{Dir: dir}), "a", "4")
	}

	remove()
	put(t, open(t, vault.Options{Dir: dir, Passphrase: "correct horse battery"}), "b", "1")
	if err := first.Update(t.Context(), "a", mustNotUpdate(t)); !errors.Is(err, vault.ErrKey) {
		t.Errorf("Update in a vault with another key: %v, want ErrKey", err)
	}
}

func TestUpdatesOfAKeyAreSerialized(t *testing.T) {
	v, dir := newFileVault(t)
	other := open(t, vault.Options{Dir: dir})
	put(t, v, "a", "")
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			used := v
			if i%2 == 1 {
				used = other
			}
			err := used.Update(t.Context(), "a", func(old []byte) ([]byte, error) { return append(old, 'x'), nil })
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	checkValue(t, v, "a", strings.Repeat("x", 20))
}

func TestCancelledContextEndsTheWaitForTheLock(t *testing.T) {
	v, _ := newFileVault(t)
	err := v.Update(t.Context(), "a", func([]byte) ([]byte, error) {
		why := errors.New("no time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, why)
		defer cancel()
		if err := v.Update(ctx, "a", mustNotUpdate(t)); !errors.Is(err, why) {
			t.Errorf("concurrent Update: %v, want %v", err, why)
		}
		// An update of another key does not wait.
		put(t, v, "b", "1")
		return []byte("1"), nil
	})
	if err != nil {
		t.Error(err)
	}
	checkValue(t, v, "a", "1")
	checkValue(t, v, "b", "1")
}

func TestRelativeDirectoryIsRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := vault.New(&vault.Options{Dir: "vault"}); err == nil || !strings.Contains(err.Error(), `"vault": must be absolute`) {
		t.Errorf("got error %v, want one that names the directory and the rule", err)
	}
	t.Setenv("HOME", ".")
	t.Setenv("XDG_CONFIG_HOME", "")
	if _, err := vault.New(nil); err == nil && os.Getenv("AppData") == "" {
		t.Error("the default directory below a relative $HOME was accepted")
	}
}
