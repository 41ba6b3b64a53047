package root

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/config"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// tenApplications have files in testdata/applications, in the forms that their documentation has, with
// a server that is called like the application. docs/applications.md names the sources.
var tenApplications = []string{"claude-code", "claude-desktop", "cline", "codex", "cursor", "gemini", "goose", "vscode",
	"windsurf", "zed"}

// applicationsHome copies testdata/applications to the user's home. The servers are demo servers in
// child processes.
func applicationsHome(t *testing.T) (home string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the paths of testdata are those of Linux")
	}
	source, err := filepath.Abs(filepath.Join("testdata", "applications"))
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home, _ = editHome(t)
	if err := os.CopyFS(home, os.DirFS(source)); err != nil {
		t.Fatal(err)
	}
	for _, app := range tenApplications {
		path := clientFile(t, app)
		writeFile(t, path, strings.ReplaceAll(textOf(t, path), "SERVER", exe))
	}
	t.Setenv("PATCHBAY_TEST_VALUE", "1")
	return home
}

func clientFile(t *testing.T, app string) string {
	t.Helper()
	path, _, err := configs.ClientFile(app, false)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The servers of ten applications are imported and served over stdio. Then each application gets the
// gateway and loses it again: every byte of its file is as before.
func TestTenApplications(t *testing.T) {
	mcptest.NoLeaks(t)
	applicationsHome(t)
	own := ownPath(t)
	const mine = "{\n  // my servers\n  \"mcpServers\": {\n    \"mine\": {\"url\": \"http://127.0.0.1:1/mcp\", \"disabled\": true} // later\n  }\n}\n"
	writeConfig(t, own, mine)

	o := mustRun(t, "--json", "gateway", "import")
	var report config.ImportReport
	if err := json.Unmarshal([]byte(o.stdout), &report); err != nil {
		t.Fatal(err)
	}
	var names []string
	leftOut := map[string][]string{}
	for _, s := range report.Servers {
		if s.Status != "added" || s.From != s.Name+":"+s.Name {
			t.Errorf("got %+v", s)
		}
		names = append(names, s.Name)
		leftOut[s.Name] = s.LeftOut
	}
	slices.Sort(names)
	if diff := cmp.Diff(tenApplications, names); diff != "" {
		t.Errorf("imported (-want +got):\n%s", diff)
	}
	if !slices.Contains(leftOut["cline"], "alwaysAllow") || !slices.Contains(leftOut["gemini"], "trust") {
		t.Errorf("left out %v, want the consent that files give", leftOut)
	}
	text := textOf(t, own)
	if !strings.HasPrefix(text, "{\n  // my servers\n") || !strings.Contains(text, " // later\n") {
		t.Errorf("comments are lost:\n%s", text)
	}
	if o := mustRun(t, "gateway", "validate"); !strings.Contains(o.stderr, "valid, with 11 servers") {
		t.Errorf("validate: %+v", o)
	}
	o = mustRun(t, "--json", "gateway", "import")
	if textOf(t, own) != text || strings.Contains(o.stdout, `"added"`) {
		t.Errorf("again: %s", o.stdout)
	}
	useImported(t, own)
	installEverywhere(t)
}

// useImported calls a tool of each server through the gateway, as an application does.
func useImported(t *testing.T, own string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := mcp.Command(exe, "gateway", "--stdio", "--config", own)
	command.Env = append(os.Environ(), mainEnv+"=1")
	c, err := mcp.Connect(t.Context(), command, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, app := range tenApplications {
		res, err := c.CallTool(t.Context(), app+"__add", map[string]any{"a": 20, "b": 22})
		for range 20 { // each call waits for some seconds; machines may be slower
			if err != nil || !res.IsError || !strings.Contains(fmt.Sprint(res.Meta), "starting") {
				break
			}
			res, err = c.CallTool(t.Context(), app+"__add", map[string]any{"a": 20, "b": 22})
		}
		if err != nil || res.IsError || res.Text() != "42" {
			t.Errorf("%s: %+v, %v", app, res, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func installEverywhere(t *testing.T) {
	t.Helper()
	for _, app := range tenApplications {
		path := clientFile(t, app)
		before := textOf(t, path)
		mustRun(t, "gateway", "install", "--client", app, "--command", "/opt/patchbay")
		after := textOf(t, path)
		for line := range strings.Lines(before) {
			if comment := anyComment.FindString(line); comment != "" && !strings.Contains(after, comment) {
				t.Errorf("%s: the comment %q is lost:\n%s", app, comment, after)
			}
		}
		if s, err := configs.Entry(app, []byte(after), "patchbay"); err != nil || s.Command != "/opt/patchbay" {
			t.Errorf("%s: %+v, %v in\n%s", app, s, err, after)
		}
		if s, err := configs.Entry(app, []byte(after), app); err != nil || s.Command == "" {
			t.Errorf("%s: %+v, %v in\n%s", app, s, err, after)
		}
		mustRun(t, "gateway", "uninstall", "--client", app)
		if diff := cmp.Diff(before, textOf(t, path)); diff != "" {
			t.Errorf("%s: after uninstall (-before +after):\n%s", app, diff)
		}
	}
}

var anyComment = regexp.MustCompile(`(//|/\*|# ).*`)

func TestImportOne(t *testing.T) {
	home := applicationsHome(t)
	writeConfig(t, ownPath(t), `{"mcpServers": {"zed": {"command": "other"}}}`)
	o := mustRun(t, "gateway", "import", "zed:zed", "--dry-run")
	if !strings.Contains(o.stdout, `"zed-zed"`) || strings.Contains(textOf(t, ownPath(t)), "zed-zed") {
		t.Errorf("--dry-run: %+v", o)
	}
	mustRun(t, "gateway", "import", "zed:zed", "--as", "editor")
	mustRun(t, "gateway", "import", "codex")
	if o := mustRun(t, "gateway", "list"); !strings.Contains(o.stdout, "editor\tenabled") ||
		!strings.Contains(o.stdout, "codex\tenabled") || !regexp.MustCompile(`goose\tenabled\t.*\tyou\n`).MatchString(o.stdout) {
		t.Errorf("list: %+v", o)
	}
	if o := patchbay(t, "", "gateway", "import", "zed:absent"); o.status != exit.NotFound {
		t.Errorf("absent: %+v", o)
	}
	writeConfig(t, filepath.Join(home, ".codex", "config.toml"), "[mcp_servers.x\n")
	if o := patchbay(t, "", "gateway", "import", "codex"); o.status == exit.OK || !strings.Contains(o.stderr, "invalid TOML") {
		t.Errorf("invalid file: %+v", o)
	}
}

// A server of a project is imported after the user has trusted it, with the paths of the project, and
// without commands that a project file must not run.
func TestImportFromProject(t *testing.T) {
	_, project := editHome(t)
	writeConfig(t, ".mcp.json", `{"mcpServers": {"a": {"command": "./run", "args": ["${workspaceFolder}", "${exec:touch x}"],
		"envFile": "vars"}}}`)
	if o := mustRun(t, "gateway", "import"); strings.Contains(o.stdout, "project") || strings.Contains(o.stdout, "added") {
		t.Errorf("without naming it: %+v", o)
	}
	if o := patchbay(t, "", "gateway", "import", "project"); o.status == exit.OK || !strings.Contains(o.stderr, "not trusted") {
		t.Errorf("without trust: %+v", o)
	}
	mustRun(t, "trust", "a", "--yes")
	mustRun(t, "gateway", "import", "project")
	s, err := configs.Entry("patchbay", []byte(textOf(t, ownPath(t))), "a")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := filepath.EvalSymlinks(s.Dir); err != nil || s.EnvFile != filepath.Join(s.Dir, "vars") ||
		!slices.Equal(s.Args, []string{s.Dir, "${$}{exec:touch x}"}) || dir == "" {
		t.Errorf("got %+v, %v, in %s", s, err, project)
	}
}
