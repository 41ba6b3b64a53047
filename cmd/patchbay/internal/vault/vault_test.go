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

	"github.com/patchbay-mcp/patchbay/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(child(role))
	}
	keyring.MockInit() // tests must not use the real keyring
	os.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/no/bus")
	os.Exit(mcptest.Main(m))
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

// inFile returns a vault, and its directory, whose key is in a file.
func inFile(t *testing.T) (*vault.Vault, string) {
	t.Helper()
	noKeyring(t)
	dir := filepath.Join(t.TempDir(), "vault")
	return open(t, vault.Options{Dir: dir}), dir
}

func noKeyring(t testing.TB) {
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

func wants(t *testing.T, v *vault.Vault, key, want string) {
	t.Helper()
	got, err := v.Load(t.Context(), key)
	if err != nil || string(got) != want {
		t.Errorf("%s is %q, %v, want %q", key, got, err, want)
	}
}

// only returns the one file of a vault with a suffix.
func only(t *testing.T, dir, suffix string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil || len(found) != 1 {
		t.Fatalf("files with %s: %q, %v", suffix, found, err)
	}
	return found[0]
}

func TestValuesPersist(t *testing.T) {
	v, dir := inFile(t)
	wants(t, v, "a", "")
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("looking makes the vault: %v", err)
	}
	put(t, v, "a", secret)
	put(t, v, "https://b.example/ \x00ü", "")
	again := open(t, vault.Options{Dir: dir})
	wants(t, again, "a", secret)
	wants(t, again, "c", "")
	if got, err := again.Load(t.Context(), "https://b.example/ \x00ü"); got == nil || len(got) != 0 || err != nil {
		t.Errorf("an empty value is %v, %v: it is there all the same", got, err)
	}
	broken := errors.New("broken")
	err := again.Update(t.Context(), "a", func(old []byte) ([]byte, error) {
		if string(old) != secret {
			t.Errorf("the value is %q", old)
		}
		return []byte("other"), broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	wants(t, v, "a", secret)
	for range 2 {
		if err := v.Update(t.Context(), "a", func([]byte) ([]byte, error) { return nil, nil }); err != nil {
			t.Error(err)
		}
		if got, err := again.Load(t.Context(), "a"); got != nil || err != nil {
			t.Errorf("a removed value is %q, %v", got, err)
		}
	}
}

func TestFilesAreEncrypted(t *testing.T) {
	v, dir := inFile(t)
	put(t, v, "https://as.example/key", secret)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 3 {
		t.Fatalf("the files are %v, %v", files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil || bytes.Contains(text, []byte(secret)) || strings.Contains(string(text)+f.Name(), "example") {
			t.Errorf("%s holds %q, %v", f.Name(), text, err)
		}
		if info, err := f.Info(); runtime.GOOS != "windows" && (err != nil || info.Mode() != 0o600) {
			t.Errorf("%s has mode %v, %v", f.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm() != 0o700) {
		t.Errorf("the directory has mode %v, %v", info.Mode(), err)
	}
}

func TestValuesAreBounded(t *testing.T) {
	v, _ := inFile(t)
	put(t, v, "a", secret)
	put(t, v, strings.Repeat("k", 4<<10), strings.Repeat("x", 1<<20))
	wants(t, v, strings.Repeat("k", 4<<10), strings.Repeat("x", 1<<20))
	if err := v.Update(t.Context(), "a", func([]byte) ([]byte, error) {
		return make([]byte, 1<<20+1),
			nil
	}); err == nil {
		t.Error("a value of more than 1 MiB is accepted")
	}
	wants(t, v, "a", secret)
	if _, err := v.Load(t.Context(), strings.Repeat("k", 4<<10+1)); err == nil {
		t.Error("a key of more than 4 KiB is accepted")
	}
}

func TestFilesAccessibleToOthersAreRejected(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes say nothing there")
	}
	for _, test := range []struct {
		name string
		mode os.FileMode
	}{
		{"", 0o750}, {"", 0o705}, {"", 0o701}, {"vault.json", 0o640}, {"vault.key", 0o644}, {"vault.key",
			0o602}, {"*.sealed", 0o604},
	} {
		v, dir := inFile(t)
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
			t.Errorf("%q with mode %o: got %q, %v", test.name, test.mode, got, err)
		}
		if err := fresh.Update(t.Context(), "a",
			func([]byte) ([]byte, error) {
				t.Error("it is changed")
				return nil,
					nil
			}); !errors.Is(err, vault.ErrExposed) {
			t.Errorf("%q with mode %o: Update: %v", test.name, test.mode, err)
		}
	}
	noKeyring(t)
	if err := open(t, vault.Options{Dir: shared(t)}).Update(t.Context(), "a", nil); !errors.Is(err, vault.ErrExposed) {
		t.Errorf("a vault is made in a directory that is open to others: %v", err)
	}
}

func shared(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLinksAndSpecialFilesAreRejected(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links want rights there")
	}
	v, dir := inFile(t)
	put(t, v, "a", secret)
	file := only(t, dir, ".sealed")
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
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		if err := errors.Join(os.Remove(file), os.Rename(file+".real", file)); err != nil {
			t.Fatal(err)
		}
	}
	wants(t, v, "a", secret)
}

// A changed file is an error, and the file is kept.
func TestTamperingIsDetected(t *testing.T) {
	v, dir := inFile(t)
	put(t, v, "a", secret)
	file := only(t, dir, ".sealed")
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
			t.Fatalf("%q: got %q, %v", name, got, err)
		}
		err := v.Update(t.Context(), "a", func([]byte) ([]byte, error) { t.Error("it is changed"); return nil, nil })
		if !errors.Is(err, vault.ErrDamaged) {
			t.Fatalf("%q: Update: %v", name, err)
		}
		if kept, err := os.ReadFile(file); err != nil || !bytes.Equal(kept, text) {
			t.Fatalf("%q: the file is %q now, %v", name, kept, err)
		}
	}
}

// A value is bound to its key and its vault.
func TestFilesCannotBeSwapped(t *testing.T) {
	v, dir := inFile(t)
	put(t, v, "a", secret)
	first := only(t, dir, ".sealed")
	aside := filepath.Join(t.TempDir(), "aside")
	if err := os.Rename(first, aside); err != nil {
		t.Fatal(err)
	}
	put(t, v, "b", "other")
	second := only(t, dir, ".sealed")
	if err := os.Rename(aside, second); err != nil {
		t.Fatal(err)
	}
	if got, err := v.Load(t.Context(), "b"); !errors.Is(err, vault.ErrDamaged) {
		t.Errorf("the value of another key is given: %q, %v", got, err)
	}
}

func TestVaultWithoutMetadata(t *testing.T) {
	v, dir := inFile(t)
	put(t, v, "a", secret)
	if err := os.Remove(filepath.Join(dir, "vault.json")); err != nil {
		t.Fatal(err)
	}
	fresh := open(t, vault.Options{Dir: dir})
	if got, err := fresh.Load(t.Context(), "a"); !errors.Is(err, vault.ErrDamaged) {
		t.Errorf("got %q, %v", got, err)
	}
	if err := fresh.Update(t.Context(), "b", nil); !errors.Is(err, vault.ErrDamaged) {
		t.Errorf("a new vault is made over an old one: %v", err)
	}
	if _, err := fresh.Describe(); !errors.Is(err, vault.ErrDamaged) {
		t.Errorf("the description is %v", err)
	}
}

// The directory can be removed while programs use the vault.
func TestVaultIsRecreated(t *testing.T) {
	long, dir := inFile(t)
	remove := func() {
		t.Helper()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	put(t, long, "a", "1")
	remove()
	put(t, open(t, vault.Options{Dir: dir}), "b", "1")
	put(t, long, "a", "2")
	wants(t, long, "b", "1")
	wants(t, open(t, vault.Options{Dir: dir}), "a", "2")

	remove()
	put(t, long, "a", "3")
	wants(t, open(t, vault.Options{Dir: dir}), "a", "3")

	if runtime.GOOS != "windows" { // on Windows, open files cannot be removed
		err := long.Update(t.Context(), "a", func([]byte) ([]byte, error) {
			remove()
			put(t, open(t, vault.Options{Dir: dir}), "b", "4")
			return []byte("4"), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		wants(t, open(t, vault.Options{Dir: dir}), "a", "4")
	}

	remove()
	put(t, open(t, vault.Options{Dir: dir, Passphrase: "correct horse battery"}), "b", "1")
	err := long.Update(t.Context(), "a", func([]byte) ([]byte, error) { t.Error("it is changed"); return nil, nil })
	if !errors.Is(err, vault.ErrKey) {
		t.Errorf("in a vault that it has no key to: %v", err)
	}
}

func TestUpdatesOfAKeyAreSerialized(t *testing.T) {
	v, dir := inFile(t)
	other := open(t, vault.Options{Dir: dir})
	put(t, v, "a", "")
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			of := v
			if i%2 == 1 {
				of = other
			}
			err := of.Update(t.Context(), "a", func(old []byte) ([]byte, error) { return append(old, 'x'), nil })
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	wants(t, v, "a", strings.Repeat("x", 20))
}

func TestCancelledContextEndsWait(t *testing.T) {
	v, _ := inFile(t)
	err := v.Update(t.Context(), "a", func([]byte) ([]byte, error) {
		why := errors.New("no time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, why)
		defer cancel()
		if err := v.Update(ctx, "a", func([]byte) ([]byte, error) {
			t.Error("two at a time")
			return nil,
				nil
		}); !errors.Is(err, why) {
			t.Errorf("waiting ends with %v", err)
		}
		// An update of another key does not wait.
		put(t, v, "b", "1")
		return []byte("1"), nil
	})
	if err != nil {
		t.Error(err)
	}
	wants(t, v, "a", "1")
	wants(t, v, "b", "1")
}
