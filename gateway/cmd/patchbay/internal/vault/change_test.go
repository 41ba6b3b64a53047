package vault_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zalando/go-keyring"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
)

const (
	oldPassphrase = "correct horse battery"
	newPassphrase = "staple horse battery"
)

// The key of a vault moves between all locations, with all values, and the old key opens nothing.
func TestKeyIsChanged(t *testing.T) {
	locations := []string{vault.InKeyring, vault.InFile, vault.InPassphrase}
	for _, from := range locations {
		for _, to := range append(locations, "") {
			t.Run(from+" to "+to, func(t *testing.T) { changeKey(t, from, to) })
		}
	}
}

func changeKey(t *testing.T, from, to string) {
	keyring.MockInit()
	dir := filepath.Join(t.TempDir(), "vault")
	opts, changed := vault.Options{Dir: dir}, vault.Options{Dir: dir}
	switch from {
	case vault.InFile:
		disableKeyring(t)
	case vault.InPassphrase:
		opts.Passphrase = oldPassphrase
	}
	v := open(t, opts)
	put(t, v, "a", secret)
	put(t, v, "b", "2")
	keys, err := filepath.Glob(filepath.Join(dir, "*.key"))
	if err != nil {
		t.Fatal(err)
	}
	if from == vault.InFile && to == vault.InKeyring {
		keyring.MockInit()
	}
	if to == vault.InPassphrase || to == "" && from == vault.InPassphrase {
		changed.Passphrase = newPassphrase
	}
	before := readTree(t, dir)
	other := open(t, opts) // of another process
	checkValue(t, other, "a", secret)
	if err := v.ChangeKey(t.Context(), to, changed.Passphrase); err != nil {
		t.Fatal(err)
	}
	for name, text := range before {
		if strings.HasSuffix(name, ".sealed") && readTree(t, dir)[name] == text {
			t.Errorf("%s is encrypted with the old key", name)
		}
	}
	for _, key := range keys {
		if _, err := os.Stat(key); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file of the old key: %v, want that it does not exist", err)
		}
	}
	put(t, v, "c", "3") // the vault that changed the key goes on
	again := open(t, changed)
	for key, want := range map[string]string{"a": secret, "b": "2", "c": "3"} {
		checkValue(t, again, key, want)
	}
	if changed.Passphrase == "" && opts.Passphrase == "" {
		checkValue(t, other, "c", "3")
	}
	if from == vault.InPassphrase {
		if got, err := open(t, opts).Load(t.Context(), "a"); !errors.Is(err, vault.ErrKey) {
			t.Errorf("with the old passphrase: %q, %v, want ErrKey", got, err)
		}
	}
}

// readTree returns the files of a directory by their names.
func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[f.Name()] = string(text)
	}
	return all
}

func TestKeyIsNotChanged(t *testing.T) {
	v, dir := newFileVault(t)
	if err := v.ChangeKey(t.Context(), vault.InFile, ""); err == nil {
		t.Error("an empty vault: the key was changed")
	}
	put(t, v, "a", secret)
	before := readTree(t, dir)
	for _, location := range []string{vault.InKeyring, vault.InPassphrase} { // no keyring, a short passphrase
		if err := v.ChangeKey(t.Context(), location, "short"); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("%s: got %v, want an error", location, err)
		}
	}
	if after := readTree(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("files after a change that failed: %q, want %q", after, before)
	}
	checkValue(t, v, "a", secret)
}

// If a process is killed while it changes the key, no value is lost, including values that other
// processes write meanwhile. The next change finishes the first.
func TestKilledChangeOfTheKeyLosesNoValue(t *testing.T) {
	v, dir := newFileVault(t)
	for i := range 20 {
		put(t, v, fmt.Sprint("value ", i), fmt.Sprint(secret, i))
	}
	put(t, v, "n", "00000000")
	updates := 0
	for round := range 20 {
		cmd := command(t, roleRekey, dir)
		cmd.Env = append(cmd.Env, "DBUS_SESSION_BUS_ADDRESS=unix:path=/no/bus")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		lines.Scan()
		kill := time.AfterFunc(time.Duration(round)*3*time.Millisecond, func() { _ = cmd.Process.Kill() })
		for more := true; more; more = lines.Scan() { // at least one update during a change
			if err := v.Update(t.Context(), "n", increment); err != nil {
				t.Fatal(err)
			}
			updates++
		}
		kill.Stop()
		_ = cmd.Wait() // it was killed
		fresh := open(t, vault.Options{Dir: dir})
		for i := range 20 {
			checkValue(t, fresh, fmt.Sprint("value ", i), fmt.Sprint(secret, i))
		}
		checkValue(t, fresh, "n", fmt.Sprintf("%0*d", width, updates))
	}
	if err := v.ChangeKey(context.WithoutCancel(t.Context()), "", ""); err != nil {
		t.Fatal(err)
	}
	keys, err := filepath.Glob(filepath.Join(dir, "*.key"))
	if err != nil || len(keys) != 1 || strings.Contains(readTree(t, dir)["vault.json"], "previous") {
		t.Errorf("after the last change: keys %q, %v, want one", keys, err)
	}
	checkValue(t, open(t, vault.Options{Dir: dir}), "value 7", secret+"7")
}
