package config_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// load writes a file with one server, a, and returns the server.
func load(t *testing.T, entry string) *config.Server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, []byte(`{"servers": {"a": `+entry+`}, "inputs": [{"id": "pw", "password": true},
		{"id": "region"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.Server("a")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func needShell(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the command lines are those of a Unix shell")
	}
}

func TestExpandReadsSecretsFilesAndCommands(t *testing.T) {
	needShell(t)
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("OF_THE_USER", "visible")
	if err := os.WriteFile(filepath.Join(home, "token"), []byte("t0ken ${A}\r\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := variables(map[string]string{"secret:db": "s3cret", "input:pw": "hunter2", "input:region": "eu", "A": "1"})
	for text, want := range map[string]string{
		"${secret:db}":                     "s3cret",
		"${secret:db}/${input:pw}":         "s3cret/hunter2",
		"${file:~/token}":                  "t0ken ${A}", // not expanded again
		"${file:" + home + "/token}":       "t0ken ${A}",
		"${exec:echo $OF_THE_USER; echo}!": "visible!",
		"${exec:printf 'a b'}":             "a b",
		"${secret:none}":                   `!secret "none" is not set`,
		"${secret:a b}":                    `!secret "a b" is not set`,
		"${file:none}":                     "!${file:none}: ",
		"${file:~}":                        "!${file:~}: ",
		"${file:" + home + "}":             "!must be a regular file",
		"${file:/dev/zero}":                "!must be a regular file",
		"${exec:echo why >&2; exit 3}":     `!${exec:echo why >&2; exit 3}: exit status 3: "why"`,
		"${exec:yes}":                      "!more than 65536 bytes of output",
		`${exec:printf 'a\\0b'}`:           "!text without NUL",
		"${file:}":                         "!invalid variable",
		"${exec:}":                         "!invalid variable",
		"${secret:}":                       "!invalid variable",
	} {
		s := load(t, `{"command": "x", "args": ["`+text+`"]}`)
		got, err := s.Expand(t.Context(), env)
		if problem, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), problem) || !strings.Contains(err.Error(), `server "a": args[0]: `) {
				t.Errorf("%s: got %v, want %q", text, err, problem)
			}
		} else if err != nil || got.Args[0] != want {
			t.Errorf("%s: got %+v, %v, want %q", text, got, err, want)
		}
	}
}

func TestFileOfAnEntryIsRelativeToTheConfiguration(t *testing.T) {
	s := load(t, `{"command": "x", "args": ["${file:mcp.json}"]}`)
	t.Chdir(t.TempDir())
	got, err := s.Expand(t.Context(), os.LookupEnv)
	if err != nil || !strings.HasPrefix(got.Args[0], `{"servers"`) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A variable that is missing concerns its server alone.
func TestMissingValueNamesVariableAndServer(t *testing.T) {
	f := parse(t, `{"servers": {"a": {"command": "x", "env": {"K": "${GONE}"}, "args": ["${secret:gone}"]},
		"b": {"command": "x"}}}`)
	for name, want := range map[string][]string{"b": nil,
		"a": {`server "a": `, `env "K": environment variable GONE is not set`, `args[0]: secret "gone" is not set`}} {
		s, err := f.Server(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.Expand(t.Context(), variables(nil)); (err == nil) != (want == nil) {
			t.Errorf("server %s: error %v", name, err)
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("server %s: error %v, want %s", name, err, text)
			}
		}
	}
}

func TestCommandOfSeveralVariablesRunsOnce(t *testing.T) {
	needShell(t)
	mark := filepath.Join(t.TempDir(), "mark")
	s := load(t, `{"command": "x", "args": ["${exec:echo x >>`+mark+`; echo y}", "${exec:echo x >>`+mark+`; echo y}"]}`)
	if _, err := s.Expand(t.Context(), os.LookupEnv); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(mark); string(text) != "x\n" {
		t.Errorf("the command has written %q, want one line", text)
	}
}

// Another author's file runs no commands for its variables, also after the user has trusted it.
func TestProjectFileHasNoCommandsInVariables(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	s := load(t, `{"command": "x", "env": {"A": "${exec:touch `+filepath.ToSlash(mark)+`}"}}`)
	s.Project = true
	if _, err := s.Expand(t.Context(), os.LookupEnv); err == nil || !strings.Contains(err.Error(), "refused in a project file") {
		t.Errorf("got %v, want an error", err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command has run")
	}
}

func TestHeaderCommandAddsHeaders(t *testing.T) {
	needShell(t)
	server := func(helper string) *config.Server {
		return &config.Server{Name: "a", Type: config.TypeHTTP, URL: "https://example.com/${P}", HeaderCommand: helper,
			Header: map[string]string{"authorization": "old", "X-B": "2"}}
	}
	env := variables(map[string]string{"P": "mcp"})
	s := server(`printf '{"Authorization": "Bearer %s", "x-url": "%s"}' "$CLAUDE_CODE_MCP_SERVER_NAME" "$CLAUDE_CODE_MCP_SERVER_URL"`)
	got, err := s.Expand(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"Authorization": "Bearer a", "X-Url": "https://example.com/mcp", "X-B": "2"}
	if diff := cmp.Diff(want, got.Header); diff != "" || !slices.Contains(got.Secrets(), "Bearer a") {
		t.Errorf("secrets %q, headers (-want +got):\n%s", got.Secrets(), diff)
	}
	if s.Header["authorization"] != "old" || len(s.Header) != 2 {
		t.Errorf("Expand changed the headers of its receiver: %v", s.Header)
	}
	for helper, problem := range map[string]string{
		"exit 1":                             "exit status 1",
		"echo no JSON":                       "invalid output: want a JSON object",
		"echo '[]'":                          "invalid output: want a JSON object",
		`echo '{"A": 1}'`:                    `invalid header "A"`,
		`echo '{"A b": "1"}'`:                `invalid header "A b"`,
		`printf '%s' '{"A": "1\r\nB: 2"}'`:   `invalid header "A"`,
		`echo '{"A": "s3cret", "A": "oth"}'`: "invalid output",
	} {
		if _, err := server(helper).Expand(t.Context(), env); err == nil || strings.Contains(err.Error(), "s3cret") ||
			!strings.Contains(err.Error(), `server "a": headersHelper: `+problem) {
			t.Errorf("%s: got %v, want %s", helper, err, problem)
		}
	}
	command := server("exit 1")
	command.Type, command.Command, command.URL = config.TypeStdio, "x", ""
	if _, err := command.Expand(t.Context(), env); err != nil {
		t.Errorf("of a command: %v, want the helper unused", err)
	}
}

// Secrets has what logs must not show, and leaves out what they may.
func TestExpandedServerKnowsItsSecrets(t *testing.T) {
	needShell(t)
	s := load(t, `{"url": "https://ann:passw0rd@example.com/${PATH_NAME}?api_key=k3y%20two&q=search", "headers":
		{"Authorization": "Bearer ${LITERAL}", "X-Region": "${input:region}", "X-A": "${secret:db}", "X-B": "${input:pw}",
		"X-C": "${MY_TOKEN}", "X-D": "${exec:echo '-----BEGIN KEY-----'; echo abcdef}", "X-E": "${secret:short}",
		"X-Api-Key": "${UNSET:-fallback}"}}`)
	got, err := s.Expand(t.Context(), variables(map[string]string{"PATH_NAME": "public", "LITERAL": "l1teral",
		"input:region": "eu-west", "secret:db": `quo"ted`, "input:pw": "hunter2", "MY_TOKEN": "t0k&n", "secret:short": "abc"}))
	if err != nil {
		t.Fatal(err)
	}
	secrets := got.Secrets()
	for _, secret := range []string{"passw0rd", "k3y two", "k3y%20two", "k3y+two", "Bearer l1teral", "l1teral", `quo"ted`,
		`quo\"ted`, "hunter2", "t0k&n", "t0k%26n", "-----BEGIN KEY-----\nabcdef", "abcdef", "fallback"} {
		if !slices.Contains(secrets, secret) {
			t.Errorf("Secrets() lacks %q", secret)
		}
	}
	for _, public := range []string{"public", "eu-west", "search", "abc", "", "Bearer"} {
		if slices.Contains(secrets, public) {
			t.Errorf("Secrets() has %q", public)
		}
	}
	for i := range secrets[1:] {
		if len(secrets[i]) < len(secrets[i+1]) {
			t.Errorf("%q before %q, want the longest first", secrets[i], secrets[i+1])
		}
	}
	if len(s.Secrets()) > 0 {
		t.Errorf("unexpanded server has secrets %q", s.Secrets())
	}
	command := load(t, `{"command": "x", "env": {"DB_PASSWORD": "pa55word", "MODE": "production"}}`)
	if got, err = command.Expand(t.Context(), os.LookupEnv); err != nil || !cmp.Equal(got.Secrets(), []string{"pa55word"}) {
		t.Errorf("of a command: %q, %v, want pa55word", got.Secrets(), err)
	}
}

// Trust covers all that determines what a server does.
func TestTrustCoversHelperAndSettings(t *testing.T) {
	const entry = `{"url": "https://example.com", "headersHelper": "echo", "allowedTools": ["a"], "excludedTools": ["b"]}`
	server := func(entry, settings string) *config.Server {
		t.Helper()
		f := parse(t, `{"servers": {"a": `+entry+`}, "patchbay": {"servers": {"a": `+settings+`}}}`)
		f.Project = true
		s, err := f.Server("a")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	store := &config.TrustStore{Dir: filepath.Join(t.TempDir(), "trusted")}
	if err := store.Trust(server(entry, `{"roots": "none"}`)); err != nil {
		t.Fatal(err)
	}
	if store.NeedsTrust(server(entry, `{"roots": "none"}`)) {
		t.Error("an equal entry needs trust")
	}
	for _, change := range [][2]string{{`"echo"`, `"echo x"`}, {`["a"]`, `["a", "c"]`}, {`["b"]`, `[]`}} {
		if !store.NeedsTrust(server(strings.Replace(entry, change[0], change[1], 1), `{"roots": "none"}`)) {
			t.Errorf("with %s in place of %s the entry is still trusted", change[1], change[0])
		}
	}
	if !store.NeedsTrust(server(entry, `{"roots": "pass"}`)) {
		t.Error("with other settings the entry is still trusted")
	}
}
