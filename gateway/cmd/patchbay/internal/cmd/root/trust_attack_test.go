package root

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
)

// writeEntry makes name the only server of the project file.
func writeEntry(t *testing.T, name string, entry map[string]any) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"servers": map[string]any{name: entry}})
	if err != nil {
		t.Fatal(err)
	}
	writeProjectFile(t, ".mcp.json", string(text))
}

// What the user is asked about is what would run, in every character.
//
// Requirement: HOST-30
func TestTrustQuestionShowsWhatWouldRun(t *testing.T) {
	for name, test := range map[string]struct {
		entry map[string]any
		want  string // on the terminal
	}{
		"spaces in a value": {map[string]any{"command": "true", "env": map[string]any{"A": "x  y\nz"}},
			`with A=$'x\040\040y\012z'`},
		"spaces in a name":   {map[string]any{"command": "true", "env": map[string]any{"A\n  B": "x"}}, `$'A\012\040\040B'=x`},
		"direction":          {map[string]any{"command": "./\u202Ehs.nur", "args": []any{"\u200b"}}, `$'./\342\200\256hs.nur' $'\342\200\213'`},
		"blank characters":   {map[string]any{"command": "true", "args": []any{"a\u2800b"}}, `$'a\342\240\200b'`},
		"empty argument":     {map[string]any{"command": "true", "args": []any{"", "a b"}}, `true '' 'a b'`},
		"Windows path":       {map[string]any{"command": `C:\tools\run.exe`}, `'C:\tools\run.exe'`},
		"directory":          {map[string]any{"command": "true", "cwd": "a  b\u202E"}, `in the directory $'a\040\040b\342\200\256'`},
		"similar letters":    {map[string]any{"command": "./g\u0456t"}, "letters are not ASCII"},
		"default":            {map[string]any{"command": "${X:-sh}"}, "or by the text after :-"},
		"user in the URL":    {map[string]any{"url": "https://api.github.com@evil.example/mcp"}, "host evil.example"},
		"letters in the URL": {map[string]any{"url": "https://g\u0456thub.com/mcp"}, "letters are not ASCII"},
		"encoded host":       {map[string]any{"url": "https://xn--gthub-n4a.com/mcp"}, "warning: the host name is encoded"},
		"variable in the host": {map[string]any{"url": "https://api.github.com${X:-.evil.example}/mcp"},
			"warning: the host depends on variables"},
		"header": {map[string]any{"url": "https://a.example", "headers": map[string]any{"A": "b  c\r\nD: e"}},
			`with the header A: $'b\040\040c\015\012D:\040e'`},
		"backslash in the host": {map[string]any{"url": `https://a.example\@b.example`}, "invalid server URL"},
	} {
		t.Run(name, func(t *testing.T) {
			newHostileProject(t)
			writeEntry(t, "x", test.entry)
			o := atTerminal(t, "n\n", nil, "tools", "x")
			if o.status != exit.Usage || !strings.Contains(o.stderr, test.want) {
				t.Errorf("exit code %d, stderr %s, want %s", o.status, o.stderr, test.want)
			}
		})
	}
}

// An entry that would push its first line off the screen is not asked about.
func TestTrustRefusesToAskAboutWhatDoesNotFit(t *testing.T) {
	many := map[string]any{}
	for i := range 30 {
		many[strings.Repeat("A", i+1)] = ""
	}
	for name, entry := range map[string]map[string]any{
		"long argument":  {"command": "true", "args": []any{strings.Repeat("x ", 2000)}},
		"many arguments": {"command": "true", "args": strings.Split(strings.Repeat("-v ", 1500), " ")},
		"many variables": {"command": "true", "env": many},
		"many headers":   {"url": "https://a.example", "headers": many},
		"long URL":       {"url": "https://a.example/" + strings.Repeat("x", 4000)},
	} {
		t.Run(name, func(t *testing.T) {
			newHostileProject(t)
			writeEntry(t, "x", entry)
			o := atTerminal(t, "y\n", nil, "tools", "x")
			if o.status != exit.Usage || !strings.Contains(o.stderr, "too long to show") || len(o.stderr) > 1000 {
				t.Errorf("exit code %d, %d bytes on stderr: %.300s", o.status, len(o.stderr), o.stderr)
			}
			if o := patchbay(t, "", "trust", "x", "--yes"); o.status != exit.OK {
				t.Errorf("trust --yes: exit code %d, %s", o.status, o.stderr)
			}
		})
	}
}

// Names of the project file are on the screen also when no question is asked.
func TestStrangeServerNames(t *testing.T) {
	for _, name := range []string{strings.Repeat("long", 50_000), "a\nServer b is trusted.\n", "a\x1b]0;x\x07", "",
		"--yes", "a'; touch mark; '", "\u202Eab", strings.Repeat("w\n", 300)} {
		p := newHostileProject(t)
		writeEntry(t, name, map[string]any{"command": "touch", "args": []any{p.mark}})
		for _, args := range [][]string{{"trust"}, {"tools", "unknown"}, {"tools", name}, {"trust", name},
			{"__complete", "tools", ""}} {
			for _, o := range []outcome{patchbay(t, "", args...), atTerminal(t, "\n", nil, args...)} {
				text := o.stdout + o.stderr
				if p.used() || len(text) > 4000 || strings.ContainsAny(text, "\x07\u202E") ||
					strings.Contains(text, "\nServer b") {
					t.Errorf("%.60q: used %t, %d bytes: %.300q", args, p.used(), len(text), text)
				}
			}
		}
	}
}

// A changing reader changes the project file before the user's answer is read.
type changingReader struct {
	change func()
	answer io.Reader
}

func (r *changingReader) Read(b []byte) (int, error) {
	r.change()
	return r.answer.Read(b)
}

// What was shown is what is trusted and used, though the file has changed meanwhile.
func TestFileThatChangesDuringTheQuestion(t *testing.T) {
	for _, args := range [][]string{{"ping", "x"}, {"trust", "x"}} {
		p := newHostileProject(t)
		writeEntry(t, "x", map[string]any{"command": "false"})
		answer := &changingReader{answer: strings.NewReader("y\n"), change: func() {
			writeEntry(t, "x", map[string]any{"command": "touch", "args": []any{p.mark}})
		}}
		o := atTerminal(t, "", func(p *cmdutil.Factory) { p.IO.In = term.NewInput(answer) }, args...)
		if p.used() {
			t.Fatalf("%q: the changed command has run: %s", args, o.stderr)
		}
		if o := patchbay(t, "", "ping", "x"); p.used() || !strings.Contains(o.stderr, "is not trusted") {
			t.Errorf("%q: the changed entry is trusted: %s", args, o.stderr)
		}
	}
}

// A repository can have files where a relative state directory would be.
func TestRelativeStateDirectoryIsRefused(t *testing.T) {
	p := newHostileProject(t)
	if o := patchbay(t, "", "trust", "send", "--yes"); o.status != exit.OK {
		t.Fatalf("trust: exit code %d, %s", o.status, o.stderr)
	}
	for variable, value := range map[string]string{userdir.EnvState: "state", "HOME": "."} {
		t.Setenv(userdir.EnvState, "")
		t.Setenv("XDG_STATE_HOME", "state")
		t.Setenv(variable, value)
		if variable == "HOME" {
			if err := os.MkdirAll(filepath.Join(".local", "state", "patchbay"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if o := patchbay(t, "", "tools", "send"); p.used() || !strings.Contains(o.stderr, "must be absolute") {
			t.Errorf("%s=%s: used %t, %s", variable, value, p.used(), o.stderr)
		}
	}
}

func TestConfigThatIsNoFile(t *testing.T) {
	p := newHostileProject(t)
	if o := patchbay(t, "", "tools", "send", "--config", "."); o.status != exit.Usage || p.used() {
		t.Errorf("--config with a directory: exit code %d, %s", o.status, o.stderr)
	}
}

// A shell inserts the common beginning of several completions as it is: a later Enter would run it.
func TestCompletionOffersNothingThatAShellRuns(t *testing.T) {
	newHostileProject(t)
	for _, word := range []string{"$(touch${IFS}mark)", "`touch${IFS}mark`", "${HOME}", ";id;", "&id&", "|id", ">mark",
		"'", `"`, `\x`, "!1"} {
		entry := map[string]any{"command": "true"}
		text, err := json.Marshal(map[string]any{"servers": map[string]any{"gh" + word + "a": entry,
			"gh" + word + "b": entry, "ghi": entry}})
		if err != nil {
			t.Fatal(err)
		}
		writeProjectFile(t, ".mcp.json", string(text))
		if o := patchbay(t, "", "__complete", "tools", "gh"); !strings.HasPrefix(o.stdout, "ghi\n:") {
			t.Errorf("%s: completions %q, want only ghi", word, o.stdout)
		}
	}
}

// hostileFile returns a file in the format of an application, with the servers run, a command, and
// send, a URL.
func (p *hostileProject) hostileFile(t *testing.T, app string) string {
	t.Helper()
	const variable = "${" + secretVariable + "}"
	if app == "codex" {
		return "[mcp_servers.run]\ncommand='touch'\nargs=['" + filepath.ToSlash(p.mark) + "']\nenv_vars=['" + secretVariable +
			"']\n[mcp_servers.send]\nurl='" + p.url + "'\nbearer_token_env_var='" + secretVariable + "'\n"
	}
	run := map[string]any{"command": "touch", "args": []string{p.mark}, "env": map[string]string{"A": variable}}
	send := map[string]any{"url": p.url, "headers": map[string]string{"X-Secret": variable},
		"headersHelper": "touch '" + p.mark + "'; echo '{}'"}
	file := map[string]any{}
	servers := map[string]any{"run": run, "send": send}
	switch app {
	case "vscode":
		run["envFile"] = "${workspaceFolder}/secret.env"
		send["headers"] = map[string]string{"X-Secret": variable + "${input:key}"}
		file["inputs"] = []any{map[string]any{"id": "key", "type": "promptString", "default": "x"}}
		file["servers"] = servers
	case "zed":
		file["context_servers"] = servers
	case "opencode":
		run["command"], run["args"] = []string{"touch", p.mark}, nil
		send["headers"] = map[string]string{"X-Secret": "{env:" + secretVariable + "}"}
		file["mcp"] = servers
	case "goose": // reads YAML, and so JSON
		run["cmd"], run["type"] = "touch", "stdio"
		send["uri"], send["type"] = p.url, "streamable_http"
		file["extensions"] = servers
	default:
		file["mcpServers"] = servers
	}
	text, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// newHostileRepository changes to a repository without files, which is not the home directory.
func newHostileRepository(t *testing.T) *hostileProject {
	t.Helper()
	p := newHostileProject(t)
	home := t.TempDir()
	for _, name := range []string{"HOME", "USERPROFILE"} {
		t.Setenv(name, home)
	}
	for _, name := range []string{"XDG_CONFIG_HOME", "AppData"} {
		t.Setenv(name, filepath.Join(home, ".config"))
	}
	t.Setenv("CODEX_HOME", "")
	if err := os.Remove(".mcp.json"); err != nil {
		t.Fatal(err)
	}
	writeProjectFile(t, filepath.Join(".git", "HEAD"), "")
	writeProjectFile(t, "secret.env", "B=s3cret\n")
	return p
}

// targetVerbs returns the words of all commands that take a target, as far as the target.
func targetVerbs() (verbs [][]string) {
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		if strings.Contains(cmd.Use, " TARGET") {
			verb := strings.Fields(cmd.CommandPath())[1:]
			if strings.Contains(cmd.Use, " FILE TARGET") {
				verb = append(verb, "new.jsonl")
			}
			verbs = append(verbs, verb)
		}
		for _, sub := range cmd.Commands() {
			add(sub)
		}
	}
	add(rootCommand(newRun(strings.NewReader(""), io.Discard, io.Discard)))
	return verbs
}

// refuses runs a command in a pipe and on a terminal whose user does not agree. Nothing must be used
// or shown that is not in the project file.
func (p *hostileProject) refuses(t *testing.T, wantRefusal bool, args ...string) {
	t.Helper()
	for where, o := range map[string]outcome{"pipe": patchbay(t, "y\n", args...), "terminal": atTerminal(t, "n\n", nil, args...)} {
		refused := o.status != exit.OK && strings.Contains(o.stderr, "not trusted")
		if p.used() || strings.Contains(o.stdout+o.stderr, "s3cret") || wantRefusal && !refused {
			t.Fatalf("%q, %s: used %t, exit code %d, %s", args, where, p.used(), o.status, o.stdout+o.stderr)
		}
	}
}

// A cloned repository with the project file of an application: no verb runs or sends anything,
// replaces a variable or asks for an input.
func TestProjectFilesOfEveryApplicationNeedTrust(t *testing.T) {
	newHostileRepository(t)
	files := map[string]string{} // path: application
	for _, app := range configs.Applications() {
		for _, path := range configs.Paths(app) {
			if !filepath.IsAbs(path) {
				files[path] = app
			}
		}
	}
	verbs := targetVerbs()
	if len(files) < 7 || len(verbs) < 20 {
		t.Fatalf("project files %q, verbs %q: want all", files, verbs)
	}
	help := patchbay(t, "", "help", "trust").stdout
	for path, app := range files {
		t.Run(path, func(t *testing.T) {
			if !strings.Contains(help, filepath.ToSlash(path)) {
				t.Error("the help of trust does not name the file")
			}
			p := newHostileRepository(t)
			writeProjectFile(t, path, p.hostileFile(t, app))
			writeProjectFile(t, filepath.Join("sub", "x"), "")
			verbs := verbs
			for _, dir := range []string{".", "sub"} {
				t.Chdir(dir)
				if dir == "sub" {
					verbs = verbs[:3]
				}
				for _, verb := range verbs {
					p.refuses(t, true, append(slices.Clone(verb), "run")...)
					p.refuses(t, true, append(slices.Clone(verb), app+":send")...)
					p.refuses(t, false, slices.Concat([]string{"__complete"}, verb, []string{""})...)
					p.refuses(t, false, slices.Concat([]string{"__complete"}, verb, []string{"send", ""})...)
					p.refuses(t, false, slices.Concat([]string{"__complete"}, verb, []string{app + ":run", ""})...)
				}
				p.refuses(t, true, "trust", app+":run")
				for _, args := range [][]string{{"servers"}, {"servers", app, "--json"}, {"trust"}, {"trust", "--json"}} {
					p.refuses(t, false, args...)
				}
			}
			if o := atTerminal(t, "y\n\n", nil, "ping", app+":send"); p.requests.Load() == 0 {
				t.Errorf("after trust nothing was sent: %s", o.stderr)
			}
			p.requests.Store(0)
			if o := atTerminal(t, "y\n", nil, "ping", app+":run"); !p.used() {
				t.Errorf("after trust nothing was run: %s", o.stderr)
			}
		})
	}
}

// A repository whose files have the places of a user's files below the home directory.
func TestFilesOfUsersInARepositoryAreNotRead(t *testing.T) {
	for _, app := range configs.Applications() {
		t.Run(app, func(t *testing.T) {
			p := newHostileRepository(t)
			home, err := os.UserHomeDir()
			if err != nil {
				t.Fatal(err)
			}
			paths := configs.Paths(app)
			for _, path := range paths {
				file, err := filepath.Rel(home, path)
				if err != nil || slices.Contains(paths, file) {
					continue // is a project file
				}
				writeProjectFile(t, file, p.hostileFile(t, app))
				for _, args := range [][]string{{"ping", "run"}, {"ping", app + ":send"}, {"servers", app}, {"__complete", "ping", ""}} {
					o := atTerminal(t, "y\ny\n", nil, args...)
					if p.used() || strings.Contains(o.stdout, "run") || args[0] == "ping" && o.status != exit.Usage {
						t.Errorf("%s, %q: used %t, exit code %d, %s", file, args, p.used(), o.status, o.stdout+o.stderr)
					}
				}
				writeProjectFile(t, path, p.hostileFile(t, app))
				if o := patchbay(t, "", "servers", app); !strings.Contains(o.stdout, "run\t"+app+"\tstdio\town") {
					t.Errorf("%s: the list is %q, want the server of the user", path, o.stdout+o.stderr)
				}
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
