package root

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
)

// Errors name settings and flags, and no fields of Go.
func TestErrorsNameNoFieldsOfGo(t *testing.T) {
	freshVault(t)
	url := listenHTTP(t, newServer("demo"))
	for want, args := range map[string][]string{
		`invalid client metadata URL: `: {"auth", "login", url, "--no-browser", "--client-metadata-url", "http://x"},
		`invalid client id "ä"`:         {"auth", "login", url, "--no-browser", "--client-id", "ä", "--issuer", "https://a.example"},
		`invalid scope "a b"`:           {"auth", "login", url, "--no-browser", "--scope", "a b"},
		`invalid header "Mcp-Method"`:   {"tools", url, "--header", "Mcp-Method: x"},
		`invalid header "A b"`:          {"tools", url, "--header", "A b: x"},
	} {
		if o := patchbay(t, "", args...); o.status == exit.OK || !strings.Contains(o.stderr, want) || strings.Contains(o.stderr, "Options") {
			t.Errorf("%q: %+v, want %q", args, o, want)
		}
	}
}

// Credentials for an http URL of another machine are refused before anything is sent. The address is
// reserved for documentation, so nothing answers there.
func TestCredentialsAreNotSentInTheClear(t *testing.T) {
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, `{"mcpServers": {"remote": {"url": "http://192.0.2.1/mcp", "headers": {"X-Api-Key": "secret"}}}}`)
	for _, args := range [][]string{
		{"tools", "http://192.0.2.1/mcp", "--header", "Authorization: Bearer secret"},
		{"tools", "http://user:secret@192.0.2.1/mcp"},
		{"tools", "remote", "--config", file},
	} {
		o := patchbay(t, "", args...)
		if o.status == exit.OK || !strings.Contains(o.stderr, "readable on the network") ||
			!strings.Contains(o.stderr, "--insecure-http") || strings.Contains(o.stderr, "secret") {
			t.Errorf("%q: %+v, want a refusal that names --insecure-http", args, o)
		}
	}
	o := patchbay(t, "", "tools", "remote", "--config", file, "--insecure-http", "--timeout", "50ms")
	if o.status == exit.OK || strings.Contains(o.stderr, "readable on the network") {
		t.Errorf("with --insecure-http: %+v, want a timeout", o)
	}
}
