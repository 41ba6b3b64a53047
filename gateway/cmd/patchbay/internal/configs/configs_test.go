package configs_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// newHome sets the user's home to an empty directory, and the current directory to a project in
// another one.
func newHome(t *testing.T) (home, project string) {
	t.Helper()
	home, project = t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	t.Setenv("AppData", filepath.Join(home, ".config"))
	t.Setenv("CODEX_HOME", "")
	t.Setenv(config.PathEnv, "")
	t.Chdir(project)
	return home, project
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// list returns the targets of all servers with their project, and the errors.
func list(t *testing.T, path string) (targets, problems []string) {
	t.Helper()
	for f, err := range configs.Files(path) {
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		for _, name := range f.Names() {
			target := f.Target(name)
			if f.Project {
				target += " (project)"
			}
			targets = append(targets, target)
		}
	}
	return targets, problems
}

func server(t *testing.T, app, name string) *config.Server {
	t.Helper()
	for f, err := range configs.Files("") {
		if err == nil && f.App == app && f.Has(name) {
			s, err := f.Server(name)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
	t.Fatalf("found no server %s:%s", app, name)
	return nil
}

func TestUsersFilesOfEveryApplication(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the paths of testdata are those of Linux")
	}
	home, project := newHome(t)
	files, err := filepath.Abs(filepath.Join(filepath.Dir(testdata(t)), "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(home, os.DirFS(filepath.Join(files, "home"))); err != nil {
		t.Fatal(err)
	}
	claude := filepath.Join(home, ".claude.json")
	text, err := os.ReadFile(claude)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	quoted, _ := json.Marshal(dir)
	write(t, claude, strings.ReplaceAll(string(text), `"PROJECT"`, string(quoted)))
	got, problems := list(t, "")
	want := []string{"own", "claude-code:airtable", "claude-code:local", "claude-desktop:filesystem",
		"vscode:github", "vscode:perplexity", "cursor:linear", "cursor:tools", "codex:context7", "codex:figma",
		"gemini:cloud", "gemini:events", "gemini:pythonTools", "windsurf:api", "windsurf:jetbrains",
		"cline:linear", "cline:local-server", "opencode:context7", "opencode:everything", "zed:local", "zed:older",
		"zed:remote", "goose:brave", "goose:remote"}
	if diff := cmp.Diff(want, got); diff != "" || problems != nil {
		t.Errorf("targets (-want +got):\n%s%q", diff, problems)
	}
	t.Setenv("TOKEN", "t0k")
	t.Setenv("A", "wrong")
	lookup := func(name string) (string, bool) {
		if name == "input:perplexity-key" {
			return "typed", true
		}
		return os.LookupEnv(name)
	}
	expanded := func(app, name string) *config.Server {
		t.Helper()
		s, err := server(t, app, name).Expand(t.Context(), lookup)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	type check struct{ got, want any }
	for name, c := range map[string]check{
		"Claude Desktop replaces nothing": {expanded("claude-desktop", "filesystem").Args[1], "${A} $A"},
		"Claude Code, local scope":        {expanded("claude-code", "local").URL, "https://local.example/mcp"},
		"Claude Code, default":            {expanded("claude-code", "airtable").Env["KEY"], "none"},
		"VS Code, input":                  {expanded("vscode", "perplexity").Env["KEY"], "typed"},
		"VS Code, env file":               {expanded("vscode", "perplexity").Env["FROM_FILE"], "a b"},
		"VS Code, workspace":              {expanded("vscode", "perplexity").Args[0], project + "/x"},
		"Cursor, home":                    {expanded("cursor", "tools").Args[0], home + "/" + filepath.Base(project)},
		"Cursor, header":                  {expanded("cursor", "linear").Header["Authorization"], "Bearer t0k"},
		"Codex, bearer token":             {expanded("codex", "figma").Header["Authorization"], "Bearer t0k"},
		"Codex, header of environment":    {expanded("codex", "figma").Header["X-Token"], "t0k"},
		"Codex, header":                   {expanded("codex", "figma").Header["X-Region"], "${A}"},
		"Codex, forwarded":                {expanded("codex", "context7").Env, map[string]string{"LIT": "$A ${A}", "TOKEN": "t0k", "UNSET_X": ""}},
		"Codex, disabled":                 {expanded("codex", "context7").Disabled, true},
		"Gemini, dollar":                  {expanded("gemini", "pythonTools").Env["KEY"], "t0k"},
		"Gemini, HTTP":                    {expanded("gemini", "cloud").Type, config.TypeHTTP},
		"Gemini, SSE":                     {expanded("gemini", "events").Type, config.TypeSSE},
		"Windsurf":                        {expanded("windsurf", "api").Header["Authorization"], "Bearer t0k"},
		"Cline, transport":                {expanded("cline", "linear").Type, config.TypeHTTP},
		"Cline, disabled":                 {expanded("cline", "linear").Disabled, true},
		"Cline, no commands":              {expanded("cline", "local-server").Args[1], "${exec:touch pwned}"},
		"Cline, no helper":                {expanded("cline", "local-server").HeaderCommand, ""},
		"opencode, command":               {expanded("opencode", "everything").Args, []string{"-y", "@modelcontextprotocol/server-everything", "${A}"}},
		"opencode, environment":           {expanded("opencode", "everything").Env, map[string]string{"KEY": "t0k", "UNSET": ""}},
		"opencode, disabled":              {expanded("opencode", "everything").Disabled, true},
		"opencode, file":                  {expanded("opencode", "context7").Header["CONTEXT7_API_KEY"], "# variables\nexport FROM_FILE=\"a b\"\nKEY=replaced"},
		"Zed":                             {expanded("zed", "local").Args[0], "${A}"},
		"Zed, older":                      {expanded("zed", "older").Command, "some-command"},
		"Goose, command":                  {expanded("goose", "brave").Command, "npx"},
		"Goose, keys":                     {expanded("goose", "brave").Env, map[string]string{"TOKEN": "t0k", "MODE": "${A}"}},
		"Goose, headers":                  {expanded("goose", "remote").Header["Authorization"], "Bearer t0k of ${A}"},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// projectFiles has a file of every application that reads one in a project.
var projectFiles = map[string]string{
	".mcp.json":             `{"mcpServers": {"a": {"command": "x"}}}`,
	"mcp.json":              `{"servers": {"b": {"command": "x"}}}`,
	".vscode/mcp.json":      `{"servers": {"a": {"command": "x"}},}`,
	".cursor/mcp.json":      `{"mcpServers": {"a": {"command": "x"}}}`,
	".codex/config.toml":    "[mcp_servers.a]\ncommand = 'x'\n",
	".gemini/settings.json": `{"mcpServers": {"a": {"command": "x"}}}`,
	"opencode.json":         `{"mcp": {"a": {"type": "local", "command": ["x"]}}}`,
	".zed/settings.json":    "{// settings\n\"context_servers\": {\"a\": {\"command\": \"x\"}}}",
}

var projectTargets = []string{"a (project)", "b (project)", "vscode:a (project)", "cursor:a (project)",
	"codex:a (project)", "gemini:a (project)", "opencode:a (project)", "zed:a (project)"}

func TestProjectFilesAreThoseOfTheRepository(t *testing.T) {
	home, project := newHome(t)
	for path, text := range projectFiles {
		write(t, filepath.Join(project, path), text)
	}
	if got, problems := list(t, ""); !cmp.Equal(got, projectTargets) || problems != nil {
		t.Errorf("in the project: %q, %q", got, problems)
	}
	write(t, filepath.Join(project, "sub", "dir", "x"), "")
	t.Chdir(filepath.Join(project, "sub", "dir"))
	if got, _ := list(t, ""); got != nil {
		t.Errorf("below, without a repository: %q, want none", got)
	}
	write(t, filepath.Join(project, ".git", "HEAD"), "")
	if got, problems := list(t, ""); !cmp.Equal(got, projectTargets) || problems != nil {
		t.Errorf("below, in the repository: %q, %q", got, problems)
	}
	s, err := server(t, "cursor", "a").Expand(t.Context(), os.LookupEnv)
	if err != nil || s.Dir != filepath.Join("..", "..") {
		t.Errorf("Dir = %q, %v, want that of the project", s.Dir, err)
	}
	write(t, filepath.Join(home, ".cursor", "mcp.json"), projectFiles[".cursor/mcp.json"])
	t.Chdir(home)
	if got, _ := list(t, ""); !cmp.Equal(got, []string{"cursor:a"}) {
		t.Errorf("in the home directory: %q, want the user's own server", got)
	}
}

// The user's own files come first.
func TestOrderOfFiles(t *testing.T) {
	home, project := newHome(t)
	write(t, filepath.Join(project, ".mcp.json"), projectFiles[".mcp.json"])
	write(t, filepath.Join(home, ".codex", "config.toml"), projectFiles[".codex/config.toml"])
	if got, _ := list(t, ""); !cmp.Equal(got, []string{"codex:a", "a (project)"}) {
		t.Errorf("got %q", got)
	}
}

func TestHostileProjectFiles(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, projectFiles[".mcp.json"])
	for path, valid := range projectFiles {
		for name, change := range map[string]func(path string) error{
			"link": func(path string) error { return os.Symlink(secret, path) },
			"link of the folder": func(path string) error {
				if filepath.Dir(path) == "." {
					return os.Symlink(secret, path)
				}
				write(t, filepath.Join(filepath.Dir(secret), "folder", filepath.Base(path)), valid)
				_ = os.Remove(filepath.Dir(path))
				return os.Symlink(filepath.Join(filepath.Dir(secret), "folder"), filepath.Dir(path))
			},
			"directory": func(path string) error { return os.Mkdir(path, 0o700) },
			"device":    func(path string) error { return os.Symlink("/dev/zero", path) },
			"too large": func(path string) error {
				return os.WriteFile(path, []byte(strings.Repeat(" ", 1<<20)+valid), 0o600)
			},
			"nested": func(path string) error {
				return os.WriteFile(path, []byte("mcp_servers="+strings.Repeat("[", 200_000)), 0o600)
			},
			"dotted": func(path string) error {
				return os.WriteFile(path, []byte("mcp_servers"+strings.Repeat(".a", 100_000)+"=1"), 0o600)
			},
			"control": func(path string) error { return os.WriteFile(path, []byte("\x1b]0;x\x07"), 0o600) },
			"text":    func(path string) error { return os.WriteFile(path, []byte("a: [b\n"), 0o600) },
			"list":    func(path string) error { return os.WriteFile(path, []byte(`[1]`), 0o600) },
		} {
			t.Run(path+" "+name, func(t *testing.T) {
				newHome(t)
				write(t, filepath.Join(filepath.Dir(path), "x"), "")
				_ = os.Remove(filepath.Join(filepath.Dir(path), "x"))
				if err := change(path); err != nil {
					t.Skip(err)
				}
				got, problems := list(t, "")
				if name == "list" && strings.HasSuffix(path, ".toml") {
					return // a table header
				}
				if got != nil || len(problems) != 1 || len(problems[0]) > 500 || strings.Contains(problems[0], "\x1b") {
					t.Errorf("got %q, %.600q, want one error", got, problems)
				}
			})
		}
	}
}

// A relative directory of the user would be another one in each project.
func TestRelativeUserDirectoriesAreNotUsed(t *testing.T) {
	_, project := newHome(t)
	for _, name := range []string{"HOME", "USERPROFILE", "XDG_CONFIG_HOME", "AppData", "CODEX_HOME"} {
		t.Setenv(name, ".")
	}
	for _, path := range []string{"config.toml", ".cursor/mcp.json", ".claude.json", "Code/User/mcp.json"} {
		write(t, filepath.Join(project, path), projectFiles[".cursor/mcp.json"])
	}
	if got, _ := list(t, ""); !cmp.Equal(got, []string{"cursor:a (project)"}) {
		t.Errorf("got %q, want only the project file", got)
	}
}

func TestNamedFileHasTheFormatOfItsName(t *testing.T) {
	_, project := newHome(t)
	for path, text := range projectFiles {
		write(t, filepath.Join(project, "x", path), text)
		got, problems := list(t, filepath.Join(project, "x", path))
		if len(got) != 1 || strings.Contains(got[0], "project)") || problems != nil {
			t.Errorf("%s: %q, %q, want a server of the user", path, got, problems)
		}
	}
	if _, problems := list(t, "absent.json"); len(problems) != 1 {
		t.Errorf("absent file: %q, want an error", problems)
	}
}

// Trust is for the entry in its file, with its inputs and the path of its env file.
func TestTrustCoversInputsAndEnvFile(t *testing.T) {
	newHome(t)
	const entry = `{"inputs": [{"id": "k", "type": "promptString", "description": "Key"}], "servers":
		{"a": {"command": "x", "envFile": "${workspaceFolder}/.env", "env": {"K": "${input:k}"}}}}`
	write(t, ".vscode/mcp.json", entry)
	store := &config.TrustStore{Dir: filepath.Join(t.TempDir(), "trusted")}
	if err := store.Trust(server(t, "vscode", "a")); err != nil {
		t.Fatal(err)
	}
	write(t, ".cursor/mcp.json", strings.Replace(entry, `"servers"`, `"mcpServers"`, 1))
	if err := store.Trust(server(t, "cursor", "a")); err != nil {
		t.Fatal(err)
	}
	if store.NeedsTrust(server(t, "vscode", "a")) {
		t.Error("trust in the server of another file has ended the trust")
	}
	for _, change := range [][2]string{{`"Key"`, `"Your bank password"`}, {"/.env", "/.env2"},
		{"promptString\"", `promptString", "default": "x"`},
		{`"promptString"`, `"promptString", "password": true`}, {`"promptString"`, `"pickString", "options": ["x"]`}} {
		write(t, ".vscode/mcp.json", strings.Replace(entry, change[0], change[1], 1))
		if !store.NeedsTrust(server(t, "vscode", "a")) {
			t.Errorf("with %q the entry is still trusted", change[1])
		}
	}
}

// All applications can read a file with settings, and their errors have the lines of the file.
func TestSettingsInTheFileOfAnApplication(t *testing.T) {
	home, _ := newHome(t)
	file := func(settings string) string {
		return "{\n\t\"mcpServers\": {\"b\": {\"command\": \"x\"}, \"a\": {\"serverUrl\": \"https://example.com\"}},\n" +
			"\t// settings\n\t\"patchbay\": {\"servers\": {\"b\": " + settings + "}}\n}"
	}
	path := filepath.Join(home, ".codeium", "windsurf", "mcp_config.json")
	write(t, path, file(`{"idle": "1m"}`))
	for f := range configs.Files("") {
		s, err := gatewayconfig.Read(f.File)
		if err != nil || s.Servers["b"].Idle != config.Duration(time.Minute) || s.Servers["a"].Share != config.ShareCaller {
			t.Errorf("got %+v, %v", s, err)
		}
	}
	write(t, path, file(`{"idel": "1m"}`))
	for f := range configs.Files("") {
		if _, err := gatewayconfig.Read(f.File); err == nil ||
			!strings.HasPrefix(err.Error(), path+": line 4, column 33: patchbay.servers.b.idel: unknown member") {
			t.Errorf("got %v, want the line and the column", err)
		}
	}
}

// testdata returns the absolute path of testdata, before the test changes the directory.
func testdata(*testing.T) string { return testdataDir }

var testdataDir = func() string {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		panic(err)
	}
	return dir
}()

// Texts of project files never make the reader fail otherwise than by an error, and what it returns
// can be parsed.
func FuzzProjectFile(f *testing.F) {
	paths := slices.Sorted(maps.Keys(projectFiles))
	add := func(path, text string) { f.Add(uint8(slices.Index(paths, path)), text) }
	for path, text := range projectFiles {
		add(path, text)
	}
	add(".codex/config.toml", "[mcp_servers.a]\nurl='x'\nenv_http_headers={A='B'}\nenv_vars=['A',{name='B'}]\nhttp_headers=1")
	add(".zed/settings.json", `{"context_servers":{"a":{"command":{"path":1}},"b":[]}}`)
	f.Fuzz(func(t *testing.T, n uint8, text string) {
		path := paths[int(n)%len(paths)]
		newHome(t)
		write(t, path, text)
		for f, err := range configs.Files("") {
			if err != nil {
				continue
			}
			for _, name := range f.Names() {
				s, err := f.Server(name)
				if err == nil && !s.Project {
					t.Errorf("server %q of %s needs no trust", name, path)
				}
			}
		}
	})
}
