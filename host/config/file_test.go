package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// fullConfig has every feature of configuration files.
const fullConfig = "\uFEFF" + `{
	// servers of the project
	"mcpServers": {
		"files": {
			"command": "npx", /* fetched
			                     at need */
			"args": ["-y", "@acme/files", "${HOME}/src", "//no comment", "a,]",],
			"env": {"TOKEN": "${TOKEN:-none}", "PORT": 8080, "DEBUG": true, "GONE": null},
			"cwd": "work",
			"disabled": true,
			"alwaysAllow": ["read"],
		},
		"web": {"url": "https://${HOST:-example.com}/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
		"old": {"type": "sse", "url": "http://127.0.0.1/sse"},
		"new": {"type": "streamable-http", "url": "http://127.0.0.1/mcp"},
		"broken": {"type": "carrier-pigeon"},
	},
	"inputs": [],
}
`

func parse(t *testing.T, text string) *config.File {
	t.Helper()
	c, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// variables returns a lookup function.
func variables(set map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := set[name]; return v, ok }
}

func TestConfigAllowsCommentsAndTrailingCommas(t *testing.T) {
	c := parse(t, fullConfig)
	if diff := cmp.Diff([]string{"files", "web", "old", "new", "broken"}, c.Names()); diff != "" {
		t.Error(diff)
	}
	if got := string(c.Extra["inputs"]); got != "[]" {
		t.Errorf("inputs is %q, want it unchanged", got)
	}
	env := variables(map[string]string{"HOME": "/home/ann", "TOKEN": "t0k"})
	for name, want := range map[string]*config.Server{
		"files": {Name: "files", Type: config.TypeStdio, Command: "npx",
			Args: []string{"-y", "@acme/files", "/home/ann/src", "//no comment", "a,]"},
			Env:  map[string]string{"TOKEN": "t0k", "PORT": "8080", "DEBUG": "true"}, Dir: "work", Disabled: true},
		"web": {Name: "web", Type: config.TypeHTTP, URL: "https://example.com/mcp",
			Header: map[string]string{"Authorization": "Bearer t0k"}},
		"old": {Name: "old", Type: config.TypeSSE, URL: "http://127.0.0.1/sse"},
		"new": {Name: "new", Type: config.TypeHTTP, URL: "http://127.0.0.1/mcp"},
	} {
		s, err := c.Server(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "files" && string(s.Extra["alwaysAllow"]) != `["read"]` {
			t.Errorf("alwaysAllow is %q, want it unchanged", s.Extra["alwaysAllow"])
		}
		if s, err = s.Expand(t.Context(), env); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, s, cmpopts.IgnoreFields(config.Server{}, "Extra"),
			cmpopts.IgnoreUnexported(config.Server{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, err := c.Server("broken"); err == nil ||
		!strings.Contains(err.Error(), `server "broken": type: invalid value "carrier-pigeon"`) {
		t.Errorf("Server(broken): %v, want an error", err)
	}
	if _, err := c.Server("absent"); err == nil {
		t.Error("Server(absent) returned no error")
	}
}

func TestConfigMayNameItsServersServers(t *testing.T) {
	c := parse(t, `{"servers": {"a": {"command": "x"}}, "inputs": [{"id": "k"}]}`)
	if !c.Has("a") || c.Has("b") {
		t.Errorf("names %q, want a only", c.Names())
	}
}

func TestConfigErrorsNameThePlaceAndTheRule(t *testing.T) {
	for text, want := range map[string]string{
		``:                                "line 1, column 1",
		`[]`:                              "must be a JSON object",
		`{}`:                              "must have a member",
		`{"mcpServers": []}`:              "invalid mcpServers: must be an object",
		"{\n  \"a\": 1,,\n}":              "line 2, column 10",
		`{"a": [,]}`:                      "line 1, column 8",
		`{,}`:                             "line 1, column 2",
		`{"a": /* 1}`:                     "line 1, column 7: unterminated comment",
		`{"a": "//}`:                      "malformed",
		`{"servers": {"a": {}, "a": {}}}`: "duplicate key",
		`{"servers": {"a": {}}, "mcpServers": {"a": {}}}`:                    `duplicate server "a"`,
		`{"servers": {}}` + strings.Repeat(" ", 4<<20):                       "bytes",
		`{"a": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`: "nested too deeply",
	} {
		if _, err := config.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: got %v, want %q", text, err, want)
		}
	}
	for entry, want := range map[string]string{
		`1`:                                  "must be an object",
		`{}`:                                 "missing command",
		`{"type": "http"}`:                   "missing url",
		`{"type": "stdio", "url": "x"}`:      "missing command",
		`{"command": "x", "url": "y"}`:       "set type",
		`{"command": 1}`:                     "command: must be a string",
		`{"command": "x", "args": "y"}`:      "args: must be an array",
		`{"command": "x", "args": [1]}`:      "args: element 0",
		`{"command": "x", "env": []}`:        "env: must be an object",
		`{"command": "x", "env": {"A": []}}`: `env: "A": must be a string`,
		`{"url": 1}`:                         "url: must be a string",
		`{"url": "x", "headers": "y"}`:       "headers: must be an object",
		`{"type": 1}`:                        "type: must be a string",
	} {
		c := parse(t, `{"servers": {"s": `+entry+`, "good": {"command": "x"}}}`)
		if _, err := c.Server("s"); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), `server "s"`) {
			t.Errorf("%s: got %v, want %q", entry, err, want)
		}
		if _, err := c.Server("good"); err != nil {
			t.Errorf("server good beside %s: error %v, want none", entry, err)
		}
	}
}

func TestExpandReplacesEnvironmentVariables(t *testing.T) {
	env := variables(map[string]string{"A": "1", "EMPTY": "", "NESTED": "${A}", "LONG": strings.Repeat("x", 1<<19)})
	for text, want := range map[string]string{
		"":                 "",
		"plain $A $ {A}":   "plain $A $ {A}",
		"${A}${A}":         "11",
		"x${A}y":           "x1y",
		"${env:A}":         "1",
		"${EMPTY}":         "",
		"${EMPTY:-d}":      "d",
		"${NONE:-}":        "",
		"${NONE:-a b:-c$}": "a b:-c$",
		"${NESTED}":        "${A}", // not expanded again
		"${NONE}":          "!environment variable NONE is not set",
		"${input:key}":     "!is not set",
		"${}":              "!invalid variable",
		"${1A}":            "!invalid variable",
		"${A":              "!unterminated ${",
		"${LONG}${LONG}x":  "!too large",
	} {
		c := parse(t, `{"servers": {"s": {"command": "x", "args": ["`+text+`"]}}}`)
		s, err := c.Server("s")
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Expand(t.Context(), env)
		if problem, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), problem) ||
				!strings.Contains(err.Error(), `server "s": args[0]`) {
				t.Errorf("%q: got %v, want %q", text, err, problem)
			}
			continue
		}
		if err != nil || got.Args[0] != want {
			t.Errorf("%q: got %q, %v, want %q", text, got.Args, err, want)
		}
		if s.Args[0] != text {
			t.Errorf("Expand changed its receiver: got %q, want %q", s.Args[0], text)
		}
	}
}

func TestConfigFilesAreFoundInOrder(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("HOME", dir)
	t.Setenv("AppData", filepath.Join(dir, "config"))
	t.Setenv(config.PathEnv, "")
	user, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, server string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(`{"mcpServers": {"`+server+`": {"command": "x", "cwd": "sub"}}}`),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	names := func(path string) (all []string, err error) {
		configs, err := config.LoadAll(path)
		for _, c := range configs {
			all = append(all, c.Names()...)
		}
		return all, err
	}
	if got, err := names(""); err != nil || got != nil {
		t.Errorf("without files: got %q, %v, want no servers", got, err)
	}
	write(filepath.Join(user, "patchbay", "mcp.json"), "user")
	write("mcp.json", "plain")
	write(".mcp.json", "hidden")
	write("other/mcp.json", "other")
	for path, want := range map[string][]string{"": {"user", "hidden", "plain"}, "other/mcp.json": {"other"}} {
		if got, err := names(path); err != nil || !cmp.Equal(got, want) {
			t.Errorf("LoadConfigs(%q): got %q, %v, want %q", path, got, err, want)
		}
	}
	if _, err := names("absent.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: %v, want %v", err, fs.ErrNotExist)
	}
	if err := os.WriteFile("mcp.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := names(""); err == nil || !strings.Contains(err.Error(), "mcp.json: line 1") ||
		!cmp.Equal(got, []string{"user", "hidden"}) {
		t.Errorf("with a malformed file: got %q, %v, want its error and the servers of the others", got, err)
	}
	t.Setenv(config.PathEnv, "other/mcp.json")
	if got, err := names(""); err != nil || !cmp.Equal(got, []string{"other"}) {
		t.Errorf("file named by %s: got %q, %v, want other", config.PathEnv, got, err)
	}
	configs, _ := config.LoadAll("")
	s, err := configs[0].Server("other")
	if err != nil {
		t.Fatal(err)
	}
	if s, err = s.Expand(t.Context(), os.LookupEnv); err != nil || s.Dir != filepath.Join("other", "sub") {
		t.Errorf("Dir = %q, %v, want it relative to the file", s.Dir, err)
	}
}

// Standard JSON is accepted as by encoding/json, and servers of an accepted file can be parsed and
// expanded.
func FuzzParse(f *testing.F) {
	f.Add([]byte(fullConfig))
	f.Add([]byte(`{"servers":{"a":{"command":"${A:-b}","args":["//",",]"]}}}`))
	f.Add([]byte("{/**/\"servers\"//\n:{},}"))
	f.Add([]byte(`{"a":[1,"/*"],"servers":{"\u0061":{"url":"x"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := config.Parse(text)
		var plain struct {
			A map[string]any `json:"mcpServers"`
			B map[string]any `json:"servers"`
		}
		strict := json.Unmarshal(text, &plain) == nil && plain.A != nil && plain.B == nil
		if strict && err != nil && !strings.Contains(err.Error(), "nested") {
			t.Fatalf("valid JSON: error %v, want none", err)
		}
		if err != nil {
			return
		}
		if names := c.Names(); strict && len(names) != len(plain.A) {
			t.Errorf("got %q, want the keys of %v", names, plain.A)
		}
		for _, name := range c.Names() {
			if _, has := plain.A[name]; strict && !has {
				t.Errorf("Names() contains %q, which the text does not", name)
			}
			s, err := c.Server(name)
			if err != nil {
				continue
			}
			if (s.Type == config.TypeStdio && s.Command == "") || (s.Type != config.TypeStdio && s.URL == "") {
				t.Errorf("server %q has neither command nor URL: %+v", name, s)
			}
			noVariables := func(string) (string, bool) { return "", false }
			if e, err := s.Expand(t.Context(), noVariables); err == nil && !strings.Contains(string(text), "$") && e.Command != s.Command {
				t.Errorf("server %q: the command %q became %q", name, s.Command, e.Command)
			}
		}
	})
}

// A server without a name is an error of its entry; the other servers are used.
func TestServerWithoutAName(t *testing.T) {
	f, err := config.Parse([]byte(`{"mcpServers": {"": {"command": "x"}, " ": {"command": "x"}, "ok": {"command": "x"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"": `invalid server name ""`, " ": `invalid server name " "`, "ok": ""} {
		if _, err := f.Server(name); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("server %q: error %v, want %q", name, err, want)
		}
	}
}
