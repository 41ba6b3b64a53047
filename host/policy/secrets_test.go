package policy_test

import (
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/policy"
)

func TestRedactSecrets(t *testing.T) {
	digits := strings.Repeat("a1", 30)
	for text, want := range map[string]string{
		"use npm_" + digits[:36] + " now":               "use [x] now",
		"AGE-SECRET-KEY-1" + strings.Repeat("Q", 58):    "[x]",
		"postgres://ann:hunter2@db.example.com/x":       "postgres://ann:[x]@db.example.com/x",
		`{"Authorization": "bearer ` + digits + `"}`:    `{"Authorization": "bearer [x]"}`,
		"-----BEGIN RSA PRIVATE KEY-----\nMII\nthe end": "[x]",
		"sha256 " + digits + " of gh-pages":             "sha256 " + digits + " of gh-pages",
		"":                                              "",
	} {
		if got := policy.RedactSecrets(text, "[x]"); got != want {
			t.Errorf("RedactSecrets(%q) = %q, want %q", text, got, want)
		}
	}
}
