package root

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/install"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
)

// An application starts its entry without the passphrase of the vault. `gateway install` says that such an entry needs
// a running gateway, and the test shows it: a server gets its secret only while a gateway runs.
func TestInstallSaysThatTheEntryNeedsAGateway(t *testing.T) {
	editHome(t)
	file, cursor := filepath.Join(t.TempDir(), "mcp.json"), filepath.Join(t.TempDir(), "cursor.json")
	writeFile(t, file, strings.Replace(demoServers(t, "one", "two"), `"env":{`, `"env":{"TOKEN":"${secret:demo}",`, 1))
	install := func(want bool) {
		t.Helper()
		words := []string{"gateway", "install", "--dry-run", "--client", "cursor", "--file", cursor, "--command", "patchbay"}
		if o := mustRun(t, words...); strings.Contains(o.stderr, "only while a gateway runs") != want {
			t.Errorf("the need of a gateway is named: %v: %s", !want, o.stderr)
		}
		var report struct{ Clients []install.InstallReport }
		o := mustRun(t, append(words, "--json")...)
		if err := json.Unmarshal([]byte(o.stdout), &report); err != nil || report.Clients[0].NeedsGateway != want {
			t.Errorf("got %s, %v; want needsGateway %v", o.stdout, err, want)
		}
	}
	install(false)
	t.Setenv(secrets.EnvPassphrase, "correct horse battery")
	install(true) // the first value will create the vault with the passphrase
	if o := patchbay(t, "the value", "gateway", "secret", "set", "demo"); o.status != exit.OK {
		t.Fatalf("%+v", o)
	}
	install(true)
	g := startGateway(t, nil, "--config", file)
	t.Setenv(secrets.EnvPassphrase, "")
	install(true)
	call := func() bool {
		c, _ := stdioGateway(t, t.TempDir(), file, "2026-07-28")
		defer c.Close()
		res, err := c.CallTool(t.Context(), "one__add", map[string]any{"a": 1, "b": 2})
		return err == nil && res.Text() == "3"
	}
	if !call() {
		t.Error("while a gateway with the passphrase runs, the call failed")
	}
	g.stop()
	if call() {
		t.Error("without a gateway and a passphrase, the server got its secret")
	}
	t.Setenv(secrets.EnvPassphrase, "correct horse battery")
	if o := patchbay(t, "", "auth", "key", "file"); o.status != exit.OK {
		t.Fatalf("%+v", o)
	}
	t.Setenv(secrets.EnvPassphrase, "")
	install(false)
	if !call() {
		t.Error("with the key in a file, the call failed")
	}
}
