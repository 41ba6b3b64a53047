package root

import (
	"path/filepath"
	"strings"
	"testing"
)

// What the user is asked to trust shows all that runs, and settings.
func TestTrustShowsHeaderCommandAndSettings(t *testing.T) {
	p := newHostileProject(t)
	entry := `{"mcpServers": {"send": {"url": "` + p.url + `", "headersHelper": "touch ` + filepath.ToSlash(p.mark) + `"}},
		"patchbay": {"servers": {"send": {"roots":
			"pass"}}}}`
	writeProjectFile(t, ".mcp.json", entry)
	o := patchbay(t, "", "trust", "send", "--yes")
	for _, text := range []string{"runs a command line for headers: 'touch " + filepath.ToSlash(p.mark) + "'\n",
		`with the settings '{"roots":"pass"}'` + "\n"} {
		if !strings.Contains(o.stderr, text) {
			t.Errorf("patchbay trust printed %q, want %q", o.stderr, text)
		}
	}
	if o.status != 0 || p.used() {
		t.Errorf("exit code %d, used %t", o.status, p.used())
	}
	if o := patchbay(t, "", "trust", "--json"); !strings.Contains(o.stdout, `"trusted":true`) {
		t.Errorf("got %s, want a trusted server", o.stdout)
	}
	writeProjectFile(t, ".mcp.json", strings.Replace(entry, "pass", "none", 1))
	if o := patchbay(t, "", "tools", "send"); o.status == 0 || p.used() || !strings.Contains(o.stderr, "not trusted") {
		t.Errorf("with other settings: exit code %d, used %t, %s", o.status, p.used(), o.stderr)
	}
}

// Messages about a server do not show the secrets that its entry refers to.
func TestMessagesDoNotShowSecretsOfTheConfiguration(t *testing.T) {
	newHostileProject(t)
	t.Setenv("ACME_TOKEN", "t0k-en/1")
	writeProjectFile(t, "own.json", `{"mcpServers": {
		"command": {"command": "patchbay-test-absent", "args": ["--auth=${ACME_TOKEN}", "${file:key}"]},
		"url": {"url": "http://127.0.0.1:1/${ACME_TOKEN}/mcp?key=${file:key}"}}}`)
	writeProjectFile(t, "key", "s3cret k3y\n")
	for _, name := range []string{"command", "url"} {
		o := patchbay(t, "", "tools", name, "--config", "own.json", "-v")
		if all := o.stdout + o.stderr; o.status == 0 || !strings.Contains(all, "***") ||
			strings.Contains(all, "t0k-en") || strings.Contains(all, "k3y") {
			t.Errorf("%s: exit code %d\n%s", name, o.status, all)
		}
	}
}
