package root

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/install"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// editHome sets the user's home, with state and configurations, to an empty directory, and the
// current directory to a project.
func editHome(t *testing.T) (home, project string) {
	t.Helper()
	freshVault(t)
	home, project = t.TempDir(), t.TempDir()
	for name, dir := range map[string]string{"HOME": home, "USERPROFILE": home, "CODEX_HOME": "",
		"XDG_CONFIG_HOME": filepath.Join(home, ".config"), "AppData": filepath.Join(home, ".config"),
		userdir.EnvState: filepath.Join(home, "state"), config.PathEnv: ""} {
		t.Setenv(name, dir)
	}
	t.Chdir(project)
	return home, project
}

func ownPath(t *testing.T) string {
	t.Helper()
	dir, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "patchbay", "mcp.json")
}

func textOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func mustRun(t *testing.T, args ...string) outcome {
	t.Helper()
	o := patchbay(t, "", args...)
	if o.status != exit.OK {
		t.Fatalf("patchbay %q: %+v", args, o)
	}
	return o
}

func writeConfig(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, text)
}

func TestInstallWritesOneEntryAndUninstallRemovesIt(t *testing.T) {
	home, _ := editHome(t)
	path := filepath.Join(home, "dotfiles", "cursor.json")
	const text = "{\n  // mine\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}, // first\n  },\n}\n"
	writeConfig(t, path, text)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(home, ".cursor"), 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(home, ".cursor", "mcp.json")
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	o := mustRun(t, "gateway", "install", "--command", "patchbay", "--client", "cursor", "--dry-run")
	if textOf(t, path) != text || !strings.Contains(o.stdout, "+    \"patchbay\": {") ||
		!strings.Contains(o.stdout, "+++ "+link) {
		t.Errorf("--dry-run: %+v", o)
	}
	o = mustRun(t, "--json", "gateway", "install", "--command", "patchbay", "--client", "cursor")
	var report struct{ Clients []install.InstallReport }
	if err := json.Unmarshal([]byte(o.stdout), &report); err != nil || len(report.Clients) != 1 {
		t.Fatalf("%v: %s", err, o.stdout)
	}
	if r := report.Clients[0]; !r.Changed || r.File != link || textOf(t, r.Backup) != text {
		t.Errorf("got %+v", r)
	}
	after := textOf(t, path)
	for _, kept := range []string{"// mine", "\"a\": {\"command\": \"x\"}, // first\n", `"args": ["gateway", "--stdio"]`} {
		if !strings.Contains(after, kept) {
			t.Errorf("%q is missing in %s", kept, after)
		}
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is gone: %v", err)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
		t.Errorf("permissions %v, %v", info.Mode(), err)
	}
	if o := mustRun(t, "gateway", "install", "--command", "patchbay", "--client", "cursor"); !strings.Contains(o.stderr, "stays as it is") {
		t.Errorf("again: %+v", o)
	}
	mustRun(t, "gateway", "uninstall", "--client", "cursor")
	if got := textOf(t, path); got != text {
		t.Errorf("after uninstall: %s", got)
	}
	mustRun(t, "gateway", "uninstall", "--client", "cursor")
	if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
		t.Errorf("files are left: %v, %v", all, err)
	}
}

func TestInstallRefusesFilesThatItCannotEdit(t *testing.T) {
	home, _ := editHome(t)
	path := filepath.Join(home, ".cursor", "mcp.json")
	for text, want := range map[string]string{
		`{"mcpServers": {`:   "line 1, column 17",
		`{"mcpServers": []}`: "must be an object",
		`{"mcpServers": {"patchbay": {"command": "something"}}}`: "another server",
	} {
		writeConfig(t, path, text)
		o := patchbay(t, "", "gateway", "install", "--command", "patchbay", "--client", "cursor")
		if o.status == exit.OK || !strings.Contains(o.stderr, want) || textOf(t, path) != text {
			t.Errorf("%s: %+v, want %q", text, o, want)
		}
	}
	if o := patchbay(t, "", "gateway", "install", "--command", "patchbay", "--client", "zed"); o.status != exit.Failure ||
		!strings.Contains(o.stderr, "not installed") {
		t.Errorf("without the application: %+v", o)
	}
	if o := patchbay(t, "", "gateway", "install", "--client", "curser"); o.status != exit.Usage ||
		!strings.Contains(o.stderr, `did you mean "cursor"`) {
		t.Errorf("misspelt: %+v", o)
	}
}

func TestInstallIntoEveryApplication(t *testing.T) {
	for _, app := range configs.Clients() {
		t.Run(app, func(t *testing.T) {
			home, _ := editHome(t)
			path, _, err := configs.ClientFile(app, false)
			if err != nil || !strings.HasPrefix(path, home) {
				t.Fatal(path, err)
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			mustRun(t, "gateway", "install", "--command", "/opt/patchbay", "--client", app, "--profile", "work")
			found := false
			for f, err := range configs.All() {
				if err != nil {
					t.Fatal(err)
				}
				s, err := f.Server("patchbay")
				if err != nil || strings.Join(s.Args, " ") != "gateway --stdio --profile work" {
					t.Errorf("got %+v, %v", s, err)
				}
				found = true
			}
			if !found {
				t.Fatal("no server")
			}
			mustRun(t, "gateway", "uninstall", "--client", app)
			for f := range configs.All() {
				t.Errorf("%s still has %q", f.Path, f.Names())
			}
		})
	}
}
