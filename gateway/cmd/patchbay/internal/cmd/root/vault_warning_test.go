package root

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
)

// The key of the vault beside the vault protects only against those who read one of the two files.
func TestKeyFileIsAWarningAtLogin(t *testing.T) {
	dir := freshVault(t)
	server := protected(t)
	const warning = "patchbay: warning: "
	for _, when := range []string{"the vault is created", "the vault exists"} {
		o := withBrowser(t, newUserBrowser(t), "auth", "login", server)
		if o.status != exit.OK || strings.Count(o.stderr, warning) != 1 ||
			!strings.Contains(o.stderr, filepath.Join(dir, "vault.key")) || !strings.Contains(o.stderr, "patchbay auth key keyring") {
			t.Errorf("login when %s: exit code %d, %s, want one warning with the file and the command", when, o.status, o.stderr)
		}
	}
	if o := patchbay(t, "", "call", server, "who_am_i"); o.status != exit.OK || strings.Contains(o.stderr, warning) {
		t.Errorf("use of the login: exit code %d, %s, want no warning", o.status, o.stderr)
	}
	freshVault(t)
	t.Setenv(secrets.EnvPassphrase, "correct horse")
	if o := withBrowser(t, newUserBrowser(t), "auth", "login", server); strings.Contains(o.stderr, warning) {
		t.Errorf("login with a passphrase: %s, want no warning", o.stderr)
	}
}

// A login that a command asks for stores a key as well.
func TestKeyFileIsAWarningWhenACommandLogsIn(t *testing.T) {
	freshVault(t)
	o := withBrowser(t, newUserBrowser(t), "call", protected(t), "who_am_i")
	if o.status != exit.OK || strings.Count(o.stderr, "patchbay: warning: ") != 1 {
		t.Errorf("exit code %d, %s, want one warning", o.status, o.stderr)
	}
}

// A change of the key encrypts all values again. The error of a vault that cannot be opened says what to do.
func TestKeyOfTheVaultIsChanged(t *testing.T) {
	const passphrase = "correct horse battery"
	freshVault(t)
	if o := patchbay(t, "", "auth", "key"); o.status == exit.OK {
		t.Errorf("an empty vault: exit code %d, %s", o.status, o.stdout)
	}
	run := func(stdin string, want int, text string, args ...string) {
		t.Helper()
		o := patchbay(t, stdin, args...)
		if o.status != want || !strings.Contains(o.stdout+o.stderr, text) {
			t.Errorf("%q: exit code %d, %s%s, want %d and %q", args, o.status, o.stdout, o.stderr, want, text)
		}
	}
	run("s3cret value", exit.OK, "Stored", "gateway", "secret", "set", "files")
	run("", exit.OK, "which is in the file", "auth", "key")
	run(passphrase+"\n", exit.OK, secrets.EnvPassphrase, "auth", "key", "passphrase")
	run("", exit.Failure, "set "+secrets.EnvPassphrase, "gateway", "secret", "list")
	t.Setenv(secrets.EnvPassphrase, "another horse battery")
	run("", exit.Failure, "wrong passphrase; without the right passphrase, remove the directory", "gateway", "secret", "list")
	t.Setenv(secrets.EnvPassphrase, passphrase)
	run("", exit.OK, "files", "gateway", "secret", "list")
	run("", exit.OK, "which is in the file", "auth", "key", "file")
	run("", exit.Failure, "unset the passphrase", "gateway", "secret", "list")
	t.Setenv(secrets.EnvPassphrase, "")
	run("", exit.OK, "files", "gateway", "secret", "list")
	run("", exit.Usage, "want one of keyring, file, passphrase", "auth", "key", "cloud")
}
