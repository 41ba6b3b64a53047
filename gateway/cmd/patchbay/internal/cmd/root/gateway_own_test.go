package root

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	configcmd "github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/config"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configedit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
	"github.com/patchbay-mcp/patchbay/host/config"
)

func TestAddServer(t *testing.T) {
	editHome(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SECRET_VALUE", "hunter2hunter2")
	o := mustRun(t, "gateway", "add", "demo", "--env", serveEnv+"=1", "--env", "API_TOKEN=${SECRET_VALUE}", "--", exe)
	for _, want := range []string{exe, "with the variables API_TOKEN, " + serveEnv} {
		if !strings.Contains(o.stderr, want) {
			t.Errorf("stderr %q, want %q", o.stderr, want)
		}
	}
	if !strings.Contains(o.stdout, "add\t") || strings.Contains(o.stdout+o.stderr, "hunter2") {
		t.Errorf("got %+v, want the tools and no secrets", o)
	}
	text := textOf(t, ownPath(t))
	if !strings.Contains(text, `"API_TOKEN": "${SECRET_VALUE}"`) {
		t.Errorf("got %s", text)
	}
	if info, err := os.Stat(ownPath(t)); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("permissions %v, %v", info.Mode(), err)
	}
	if o := mustRun(t, "call", "demo", "add", "a=1", "b=2"); strings.TrimSpace(o.stdout) != "3" {
		t.Errorf("call: %+v", o)
	}
	url := listenHTTP(t, newServer("demo"))
	o = mustRun(t, "--json", "gateway", "add", "web", url, "--header", "X-Test: 1")
	var r configcmd.AddReport
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || len(r.Tools) == 0 || !r.Changed || r.Headers[0] != "X-Test" {
		t.Errorf("%v, %+v", err, r)
	}
}

// The gateway does not get the flag --insecure-http, so the command stores the setting in the entry.
func TestAddStoresInsecureHTTP(t *testing.T) {
	editHome(t)
	const url = "http://192.0.2.1/mcp" // nothing answers at this address, which is for documentation
	add := []string{"gateway", "add", "--no-connect", "--insecure-http", "--header", "X-Api-Key: k1", "remote", url}
	mustRun(t, add...)
	if o := patchbay(t, "", "tools", "@host", "--timeout", "50ms"); strings.Contains(o.stderr, "insecureHTTP") {
		t.Errorf("the gateway refuses the entry: %+v", o)
	}
	mustRun(t, append(add, "--replace")...)
	text, err := jsonc.Remove([]byte(textOf(t, ownPath(t))), []string{"patchbay", "servers", "remote", "insecureHTTP"})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, ownPath(t), string(text))
	if o := patchbay(t, "", "tools", "@host", "--timeout", "5s"); !strings.Contains(o.stderr, `"insecureHTTP": true`) {
		t.Errorf("without the setting: %+v, want a refusal that names it", o)
	}
}

func TestAddServerRefuses(t *testing.T) {
	editHome(t)
	mustRun(t, "gateway", "add", "x", "--no-connect", "--", "true")
	text := textOf(t, ownPath(t))
	for name, c := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"a name that is there":     {[]string{"x", "--no-connect", "--", "false"}, exit.Usage, "--replace"},
		"a command without dashes": {[]string{"y", "npx", "server"}, exit.Usage, "after --"},
		"an invalid name":          {[]string{"a:b", "--", "true"}, exit.Usage, "invalid name"},
		"an invalid URL":           {[]string{"y", "ftp://x"}, exit.Usage, "invalid server URL"},
		"a header of a command":    {[]string{"y", "--header", "A: b", "--", "true"}, exit.Usage, "--header is for URLs"},
		"a server that fails":      {[]string{"y", "--", "/nonexistent/patchbay-test"}, exit.Unreachable, "was not added"},
		"no arguments":             {nil, exit.Usage, "want NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			o := patchbay(t, "", append([]string{"gateway", "add"}, c.args...)...)
			if o.status != c.status || !strings.Contains(o.stderr, c.want) || textOf(t, ownPath(t)) != text {
				t.Errorf("got %+v, want %d and %q", o, c.status, c.want)
			}
		})
	}
}

const ownServers = `{
  // all servers
  "mcpServers": {
    "a": {"command": "x", "enabled": false}, // first
    // second
    "b": {
      "command": "y" // the program
    }
  },
  "patchbay": {
    "servers": {"a": {"idle": "1m"}, /* of b */ "b": {"idle": "2m"}},
    "profiles": {"p": {"servers": ["a", "b"]}, "q": {"servers": ["b"]}}
  }
}
`

func TestRemoveEnableAndDisable(t *testing.T) {
	editHome(t)
	writeConfig(t, ownPath(t), ownServers)
	settings := func() (*config.File, *gatewayconfig.Settings) {
		t.Helper()
		f, err := config.Parse([]byte(textOf(t, ownPath(t))))
		if err != nil {
			t.Fatal(err)
		}
		s, err := gatewayconfig.Read(f)
		if err != nil {
			t.Fatal(err)
		}
		return f, s
	}
	mustRun(t, "gateway", "enable", "a")
	mustRun(t, "gateway", "disable", "b")
	f, _ := settings()
	a, _ := f.Server("a")
	b, _ := f.Server("b")
	if a.Disabled || !b.Disabled {
		t.Errorf("got %+v and %+v", a, b)
	}
	mustRun(t, "gateway", "enable", "b")
	if want := strings.Replace(ownServers, `, "enabled": false`, "", 1); textOf(t, ownPath(t)) != want {
		t.Errorf("got %s\nwant %s", textOf(t, ownPath(t)), want)
	}
	o := mustRun(t, "--json", "gateway", "remove", "b", "--dry-run")
	if !strings.Contains(o.stdout, `-    \"b\": {`) {
		t.Errorf("--dry-run: %s", o.stdout)
	}
	mustRun(t, "gateway", "remove", "b")
	f, s := settings()
	if f.Has("b") || len(s.Profiles["p"].Servers) != 1 || len(s.Profiles["q"].Servers) != 0 ||
		s.Profiles["q"].Servers == nil {
		t.Errorf("got %+v", s.Profiles)
	}
	text := textOf(t, ownPath(t))
	for _, comment := range []string{"// all servers", "// first", "// second", "/* of b */"} {
		if !strings.Contains(text, comment) {
			t.Errorf("%q is lost in %s", comment, text)
		}
	}
	if o := patchbay(t, "", "gateway", "remove", "aa"); o.status != exit.NotFound ||
		!strings.Contains(o.stderr, `did you mean "a"`) {
		t.Errorf("unknown: %+v", o)
	}
}

func TestValidateCountsAndNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mcp.json")
	o := patchbay(t, "", "gateway", "validate", file)
	if o.status != exit.NotFound || !strings.Contains(o.stderr, "configuration file "+file+" does not exist") {
		t.Errorf("a file that does not exist: %+v", o)
	}
	writeFile(t, file, `{"mcpServers": {"one": {}}}`)
	if o := patchbay(t, "", "gateway", "validate", file); !strings.Contains(o.stderr, "is invalid: 1 error.") {
		t.Errorf("one error: %+v", o)
	}
}

func TestValidate(t *testing.T) {
	editHome(t)
	t.Setenv("SET", "1")
	path := ownPath(t)
	rules := func(all ...string) string {
		return "{\"mcpServers\": {\"a\": {\"url\": \"https://x\"}},\n\"patchbay\": {\"policy\": {\"rules\": [\n" +
			strings.Join(all, ",\n") + "]}}}"
	}
	for name, c := range map[string]struct {
		text, want string
		status     int
	}{
		"valid":           {`{"mcpServers": {"a": {"url": "https://example.com/${SET}"}}}`, "", exit.OK},
		"syntax":          {"{\n  \"mcpServers\": {,}\n}", ":2:18: ", exit.Failure},
		"type of member":  {"{\"mcpServers\": {\n  \"a\": {\"command\": 1}}}", ":2:9: mcpServers/a/command: ", exit.Failure},
		"missing command": {"{\"mcpServers\": {\n  \"a\": {\"args\": []}}}", ":2:3: server \"a\": missing command", exit.Failure},
		"setting": {"{\"mcpServers\": {\"a\": {\"url\": \"https://x\"}},\n\"patchbay\": {\"listn\": 1}}",
			":2:14: patchbay.listn: unknown member", exit.Failure},
		"rule": {rules(`{"when": "tool.annotation.readOnly", "do": "deny"}`), ":3:15: patchbay.policy.rules[0].when: ", exit.Failure},
		"rules": {rules(`{"when": "method == 'x'", "do": "deny"}`, `{"when": "servr.name == 'a'", "do": "deny"}`,
			`{"when": "method == 'x' and true", "do": "ask"}`), ":4:", exit.Failure},
		"key of the hook": {strings.Replace(rules(`{"do": "hook"}`), `"rules"`,
			`"hook": {"url": "https://x", "secret": "UNSET_KEY"}, "rules"`, 1),
			":2:54: warning: the variable UNSET_KEY is not set", exit.OK},
		"misspelt settings": {"{\"mcpServers\": {\"a\": {\"url\": \"https://x\"}},\n\"patchbuy\": {\"policy\": {}}}",
			":2:1: warning: unknown member \"patchbuy\" (did you mean \"patchbay\"?): it has no effect", exit.OK},
		"unknown member": {"{\"mcpServers\": {\n  \"a\": {\"url\": \"https://x\", \"hedders\": {}}}}",
			":2:29: warning: server \"a\": unknown member \"hedders\" (did you mean \"headers\"?)", exit.OK},
		"variable": {"{\"mcpServers\": {\n  \"a\": {\"url\": \"https://x/${UNSET_X}\"}}}", ":2:3: warning: ", exit.OK},
		"command":  {"{\"mcpServers\": {\n  \"a\": {\"command\": \"no-such-command-x\"}}}", ":2:9: warning: ", exit.OK},
	} {
		t.Run(name, func(t *testing.T) {
			writeConfig(t, path, c.text)
			o := patchbay(t, "", "gateway", "validate")
			if want := path + c.want; o.status != c.status || c.want == "" && o.stdout != "" ||
				c.want != "" && !strings.HasPrefix(o.stdout, want) {
				t.Errorf("got %+v, want %d and %s", o, c.status, want)
			}
			if name == "rules" && strings.Count(o.stdout, ": patchbay.policy.rules[") != 2 {
				t.Errorf("got %+v, want both invalid rules", o)
			}
			var v hosting.Validation
			if err := json.Unmarshal([]byte(patchbay(t, "", "--json", "gateway", "validate", path).stdout), &v); err != nil ||
				v.Valid != (c.status == exit.OK) {
				t.Errorf("JSON: %v, %+v", err, v)
			}
		})
	}
	writeConfig(t, ".codex/config.toml", "a = 1\nb = [\n")
	if o := patchbay(t, "", "gateway", "validate", ".codex/config.toml"); !strings.Contains(o.stdout, "config.toml:") ||
		o.status != exit.Failure {
		t.Errorf("TOML: %+v", o)
	}
	if o := patchbay(t, "", "gateway", "validate", "absent.json"); o.status != exit.NotFound {
		t.Errorf("absent: %+v", o)
	}
}

func TestSchemaVerb(t *testing.T) {
	if o := mustRun(t, "gateway", "schema"); !json.Valid([]byte(o.stdout)) || !strings.Contains(o.stdout, `"patchbay"`) {
		t.Errorf("got %+v", o)
	}
}

// A file that another program changes meanwhile is not overwritten.
func TestReplaceRefusesAChangedFile(t *testing.T) {
	_, project := editHome(t)
	path := project + "/mcp.json"
	writeConfig(t, path, "{}")
	e := &configedit.Edit{Path: path, Old: []byte("{ }"), Text: []byte("[]")}
	if _, err := e.Apply(false); err == nil || !strings.Contains(err.Error(), configs.ErrChanged.Error()) ||
		textOf(t, path) != "{}" {
		t.Errorf("got %v", err)
	}
}

func TestDiffHidesSecrets(t *testing.T) {
	got := configedit.DiffText("f", "{\n  \"a\": 1,\n  \"API_KEY\": \"hunter2\"\n}\n", "{\n  \"a\": 2,\n  \"API_KEY\": \"hunter2\"\n}\n")
	const want = "--- f\n+++ f\n@@ -1,4 +1,4 @@\n {\n-  \"a\": 1,\n+  \"a\": 2,\n   \"API_KEY\": \"***\"\n }\n"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// gateway add suggests to share servers that are known to have no state.
func TestAddSuggestsToShare(t *testing.T) {
	editHome(t)
	for _, test := range []struct {
		command string
		has     bool
	}{{"uvx mcp-server-time==2025.1.1", true}, {"npx -y @upstash/context7-mcp@latest", true},
		{"npx -y @modelcontextprotocol/server-memory", false}} {
		o := mustRun(t, append([]string{"gateway", "add", "--no-connect", "--replace", "x", "--"}, strings.Fields(test.command)...)...)
		if got := strings.Contains(o.stderr, `{"x": {"share": "shared"}}`); got != test.has {
			t.Errorf("%s: suggests to share: %t: %s", test.command, got, o.stderr)
		}
	}
}
