package root

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
)

const testedPolicy = `{"mcpServers": {"fs": {"command": "fs"}, "db": {"command": "db"}}, "patchbay": {"policy": {"rules": [
  {"name": "only-srv", "on": ["call"], "do": "deny", "reason": "private", "when": "server.name == 'fs' && !args.path.startsWith('/srv/')"},
  {"name": "destructive", "on": ["call"], "do": "ask", "when": "tool.annotations.destructive == true"},
  {"name": "after-web", "on": ["call"], "do": "deny", "when": "server.name == 'db' && 'web' in recent.servers"},
  {"name": "writers", "on": ["call"], "do": "hide", "mode": "dry-run", "when": "!('write' in caller.scopes) && !caller.local"},
  {"name": "numbers", "redact": ["/rows/*/ssn"], "when": "server.name == 'db'"}
]}}}`

type policyReport struct {
	Cases []struct {
		Name, Do, Rule, Reason string
		OK                     bool
	}
	Failed int
}

type explanation struct {
	Do, Rule, Reason, Setting string
	DryRun                    []string
	Rules                     []struct {
		Rule, Do, Mode, Error string
		Matches               bool
	}
}

func policyFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	writeFile(t, file, text)
	return file
}

func TestPolicyTestVerb(t *testing.T) {
	config := policyFile(t, "servers.json", testedPolicy)
	if o := patchbay(t, "", "gateway", "policy", "test", "--config", config); o.status != exit.OK ||
		o.stdout != "The rules are valid: 0 cases passed.\n" {
		t.Errorf("without cases: %+v", o)
	}
	cases := policyFile(t, "cases.json", `[
		{"name": "outside", "server": "fs", "target": "read", "args": {"path": "/etc/passwd"}, "want": "deny", "rule": "only-srv"},
		{"name": "inside", "server": "fs", "target": "read", "args": {"path": "/srv/a"}, "want": "allow"},
		{"name": "no path", "server": "fs", "target": "read", "want": "deny"},
		{"name": "drop", "server": "db", "target": "drop", "definition": {"annotations": {"destructiveHint": true}}, "want": "ask"},
		{"name": "exfiltration", "server": "db", "target": "query", "recent": ["web"], "want": "deny", "rule": "after-web"}]`)
	r := jsonOf[policyReport](t, "gateway", "policy", "test", cases, "--config", config)
	if r.Failed != 0 || len(r.Cases) != 5 || !r.Cases[0].OK || r.Cases[0].Do != "deny" || r.Cases[0].Rule != "only-srv" ||
		r.Cases[0].Reason != "private" {
		t.Errorf("cases: %+v", r)
	}
	wrong := policyFile(t, "wrong.json", `[{"name": "mine", "server": "fs", "target": "read", "args": {"path": "/x"}, "want": "allow"}]`)
	o := patchbay(t, "", "gateway", "policy", "test", wrong, "--config", config)
	if o.status != exit.Failure || o.stdout != "case 1 mine: got deny by rule only-srv, want allow \n" ||
		!strings.Contains(o.stderr, "1 of 1 case failed") {
		t.Errorf("a case that fails: %+v", o)
	}
	for text, want := range map[string]string{
		`[{"server": "fs", "target": "read", "want": "maybe"}]`: `case 1: invalid "want" "maybe": must be allow, ask, deny or hide`,
		`{`: "read the cases of",
	} {
		if f := failedWith(t, "gateway", "policy", "test", policyFile(t, "c.json", text), "--config", config); f.Exit != exit.Usage ||
			!strings.Contains(f.Message, want) {
			t.Errorf("cases %s: %+v, want %q", text, f, want)
		}
	}
	for text, want := range map[string]string{
		strings.Replace(testedPolicy, "startsWith", "beginsWith", 1):     "line 2, column",
		strings.Replace(testedPolicy, "recent.servers", "recent.all", 1): `unknown member "all" of recent`,
		`{"mcpServers": {"fs": {"command": "fs"}}}`:                      "no member policy",
	} {
		if f := failedWith(t, "gateway", "policy", "test", "--config", policyFile(t, "s.json", text)); f.Exit != exit.Usage ||
			!strings.Contains(f.Message, want) {
			t.Errorf("%+v, want %q", f, want)
		}
	}
}

func TestPolicyExplainVerb(t *testing.T) {
	config := policyFile(t, "servers.json", testedPolicy)
	explain := func(args ...string) explanation {
		t.Helper()
		return jsonOf[explanation](t, append([]string{"gateway", "policy", "explain", "--config", config}, args...)...)
	}
	if e := explain("fs", "read", "--args", `{"path": "/etc/passwd"}`); e.Do != "deny" || e.Rule != "only-srv" || e.Reason != "private" ||
		len(e.Rules) != 1 || !e.Rules[0].Matches {
		t.Errorf("a file outside: %+v", e)
	}
	if e := explain("fs", "read"); e.Do != "deny" || len(e.Rules) != 1 || !strings.Contains(e.Rules[0].Error, "path") {
		t.Errorf("a rule that fails denies: %+v", e)
	}
	if e := explain("db", "drop", "--definition", `{"annotations": {"destructiveHint": true}}`); e.Do != "ask" || e.Rule != "destructive" {
		t.Errorf("a claim: %+v", e)
	}
	if e := explain("db", "query", "--recent", "web"); e.Do != "deny" || e.Rule != "after-web" {
		t.Errorf("recent: %+v", e)
	}
	if e := explain("db", "query", "--subject", "alice", "--scope", "read"); e.Do != "allow" || len(e.DryRun) != 1 ||
		!strings.Contains(e.DryRun[0], "hide by rule writers") {
		t.Errorf("a dry run: %+v", e)
	}
	if e := explain("db", "query", "--subject", "alice", "--scope", "write"); e.Do != "allow" || len(e.DryRun) != 0 {
		t.Errorf("a scope: %+v", e)
	}
	if e := explain("db", "query", "--on", "result", "--result", `{}`); e.Do != "allow" || len(e.Rules) != 1 || e.Rules[0].Rule != "numbers" {
		t.Errorf("a result: %+v", e)
	}
	o := patchbay(t, "", "gateway", "policy", "explain", "fs", "read", "--args", `{"path": "/srv/a"}`, "--config", config)
	if o.status != exit.OK || o.stdout != "rule only-srv does not match\nDecision: allow by the default\n" {
		t.Errorf("text: %+v", o)
	}
	for _, args := range [][]string{{"fs"}, {"fs", "read", "--args", "[]"}, {"fs", "read", "--args", "{"}, {"fs", "read", "--on", "never"}} {
		if f := failedWith(t, append([]string{"gateway", "policy", "explain", "--config", config}, args...)...); f.Exit != exit.Usage {
			t.Errorf("%q: %+v", args, f)
		}
	}
}

// A tool that the settings of its server hide is unknown to callers, so no rule decides about it.
func TestPolicyExplainNamesTheSettingThatHidesATool(t *testing.T) {
	config := policyFile(t, "servers.json", `{"mcpServers": {"fs": {"command": "fs", "excludedTools": ["chmod"]},
"db": {"command": "db"}}, "patchbay": {"servers": {"fs": {"deny": ["delete_*"]}, "db": {"allow": ["query"]}}}}`)
	args := []string{"gateway", "policy", "explain", "--config", config}
	for name, setting := range map[string]string{"fs delete_file": "servers.fs.deny", "fs chmod": "servers.fs.deny",
		"db drop": "servers.db.allow"} {
		words := append(slices.Clone(args), strings.Fields(name)...)
		o := patchbay(t, "", words...)
		want := "Decision: hide from all callers, by the setting " + setting + "\n"
		if o.status != exit.OK || o.stdout != want {
			t.Errorf("%s: %+v, want %q", name, o, want)
		}
		if e := jsonOf[explanation](t, words...); e.Do != "hide" || e.Setting != setting || len(e.Rules) != 0 {
			t.Errorf("%s: %+v, want %s", name, e, setting)
		}
	}
	for _, words := range [][]string{{"fs", "read_file"}, {"db", "query"}, {"fs", "delete_file", "--on", "read"}} {
		if f := failedWith(t, append(slices.Clone(args), words...)...); f.Exit != exit.Usage ||
			!strings.Contains(f.Message, "no member policy") {
			t.Errorf("%q: %+v, want a tool that no setting hides", words, f)
		}
	}
}

// Without --definition, the approved definition of the tool has the annotations.
func TestPolicyExplainUsesApprovedDefinitions(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("the server is a shell script")
	}
	t.Setenv(userdir.EnvState, t.TempDir())
	config, _ := changingConfig(t)
	text := strings.TrimSuffix(textOf(t, config), "}") + `, "patchbay": {"policy": {"rules": [{"name": "documented",
	  "on": ["call"], "do": "deny", "when": "tool.description == 'Searches the shop.'"}]}}}`
	writeFile(t, config, text)
	args := []string{"gateway", "policy", "explain", "shop", "search", "--config", config}
	if o := patchbay(t, "", args...); o.status != exit.OK || !strings.Contains(o.stdout, "allow by the default") ||
		!strings.Contains(o.stderr, "note: no definition of search is recorded") {
		t.Errorf("before the first connection: %+v", o)
	}
	g := startGateway(t, nil, "--config", config)
	c := gatewayClient(t, g, "2026-07-28", false)
	eventually(t, "the tool is listed", func() bool { return searchListed(t, c) })
	g.stop()
	if o := patchbay(t, "", args...); o.status != exit.OK || !strings.Contains(o.stdout, "deny by rule documented") ||
		o.stderr != "" {
		t.Errorf("with a recorded definition: %+v", o)
	}
	args[4] = "nosuch"
	args[3] = "shopp"
	if o := patchbay(t, "", args...); o.status != exit.NotFound || !strings.Contains(o.stderr, `did you mean "shop"?`) {
		t.Errorf("unknown server: %+v", o)
	}
}

// A rule about a server that does not exist never matches.
func TestRulesOfUnknownServersAreWarnings(t *testing.T) {
	config := policyFile(t, "servers.json", `{"mcpServers": {"fs": {"command": "fs"}},
"patchbay": {"policy": {"rules": [{"name": "a", "do": "deny", "when": "server.name == 'fss'"},
{"name": "b", "do": "deny", "when": "\"fs\" == server.name && server.name != 'files'"}]}}}`)
	for _, args := range [][]string{{"validate", config}, {"policy", "test", "--config", config}} {
		o := patchbay(t, "", append([]string{"gateway"}, args...)...)
		if o.status != exit.OK || !strings.Contains(o.stdout+o.stderr, `rule a compares server.name with "fss", which is not `+
			`configured (did you mean "fs"?)`) || !strings.Contains(o.stdout+o.stderr, `rule b compares server.name with "files"`) ||
			strings.Contains(o.stdout+o.stderr, `with "fs",`) {
			t.Errorf("%q: %+v", args, o)
		}
	}
}
