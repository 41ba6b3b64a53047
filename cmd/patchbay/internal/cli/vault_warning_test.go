package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// The key of the vault beside the vault protects only against those who read one of the two files.
func TestKeyFileIsAWarningAtLogin(t *testing.T) {
	dir := freshVault(t)
	server := protected(t)
	const warning = "patchbay: warning: "
	for _, when := range []string{"the vault is created", "the vault exists"} {
		o := withBrowser(t, newUserBrowser(t), "auth", "login", server)
		if o.status != exitOK || strings.Count(o.stderr, warning) != 1 ||
			!strings.Contains(o.stderr, filepath.Join(dir, "vault.key")) || !strings.Contains(o.stderr, "store secrets again") ||
			!strings.Contains(o.stderr, envPassphrase) {
			t.Errorf("login when %s: exit code %d, %s, want one warning with the file and %s", when, o.status, o.stderr,
				envPassphrase)
		}
	}
	if o := patchbay(t, "", "call", server, "who_am_i"); o.status != exitOK || strings.Contains(o.stderr, warning) {
		t.Errorf("use of the login: exit code %d, %s, want no warning", o.status, o.stderr)
	}
	freshVault(t)
	t.Setenv(envPassphrase, "correct horse")
	if o := withBrowser(t, newUserBrowser(t), "auth", "login", server); strings.Contains(o.stderr, warning) {
		t.Errorf("login with a passphrase: %s, want no warning", o.stderr)
	}
}

// A login that a command asks for stores a key as well.
func TestKeyFileIsAWarningWhenACommandLogsIn(t *testing.T) {
	freshVault(t)
	o := withBrowser(t, newUserBrowser(t), "call", protected(t), "who_am_i")
	if o.status != exitOK || strings.Count(o.stderr, "patchbay: warning: ") != 1 {
		t.Errorf("exit code %d, %s, want one warning", o.status, o.stderr)
	}
}
