package celpolicy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// hookKey is the key that signs requests to programs that decide, and their responses.
const hookKey = "0123456789abcdef"

func compile(t testing.TB, text string) (*celpolicy.Policy, error) {
	t.Helper()
	f, err := config.Parse([]byte(`{"mcpServers": {"fs": {"command": "fs"}}, "patchbay": {"policy": ` + text + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	return celpolicy.New(f, &celpolicy.Options{Lookup: func(string) (string, bool) { return hookKey, true }})
}

func mustCompile(t testing.TB, text string) *celpolicy.Policy {
	t.Helper()
	p, err := compile(t, text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func call(server, tool, args string) *policy.Action {
	return &policy.Action{Kind: policy.ActionCall, Method: "tools/call", Caller: &policy.Caller{Principal: &mcp.Principal{Subject: "bob",
		Scopes: []string{"read"}}}, Server: server, Target: tool, Arguments: json.RawMessage(args), Time: time.Now(),
		Definition: json.RawMessage(`{"name":"` + tool + `","annotations":{"destructiveHint":true}}`)}
}

// The first rule that matches decides; one that fails matches unless it allows.
func TestRules(t *testing.T) {
	p := mustCompile(t, `{"default": "ask", "rules": [
		{"name": "trial", "when": "server.name == 'fs'", "do": "deny", "mode": "dry-run"},
		{"name": "inside", "when": "server.name == 'fs' && args.path.startsWith('/srv/')", "do": "allow"},
		{"name": "outside", "when": "server.name == 'fs' && !args.path.startsWith('/srv/')", "do": "deny", "reason": "outside"},
		{"name": "large", "when": "has(args.n) && args.n > 9007199254740992", "do": "deny"},
		{"name": "flow", "when": "server.name == 'db' && 'web' in recent.servers", "do": "ask", "via": "console"},
		{"name": "claims", "when": "tool.annotations.destructive == true && 'read' in caller.scopes && tool.name == 'x'", "do": "deny"}]}`)
	for _, test := range []struct {
		server, tool, args, recent, do, rule string
	}{
		{"fs", "write", `{"path": "/srv/a"}`, "", "allow", "inside"},
		{"fs", "write", `{"path": "/etc/passwd"}`, "", "deny", "outside"},
		{"fs", "write", `{}`, "", "deny", "outside"}, // not an allow: args.path does not exist
		{"fs", "write", `{"path": 1}`, "", "deny", "outside"},
		{"db", "query", `{"n": 1}`, "web", "ask", "flow"},
		{"db", "query", `{"n": 9007199254740992}`, "", "ask", ""},
		{"db", "query", `{"n": 9007199254740993}`, "", "deny", "large"},
		{"a", "x", `{"n": 1}`, "", "deny", "claims"},
	} {
		a := call(test.server, test.tool, test.args)
		if test.recent != "" {
			a.Recent = []string{test.recent}
		}
		for range 2 { // also with a plan that is known
			d := p.Decide(t.Context(), a)
			if d.Do.String() != test.do || d.Rule != test.rule {
				t.Errorf("%+v: got %v by %q (%s)", test, d.Do, d.Rule, d.Reason)
			}
			if (test.server == "fs") != (len(d.DryRun) == 1) {
				t.Errorf("%+v: dry-run %q", test, d.DryRun)
			}
		}
	}
}

// Mistakes are errors at load, with their place.
func TestInvalidRules(t *testing.T) {
	for rule, want := range map[string]string{
		`{"when": "server.name = 'fs'", "do": "deny"}`:                      "line 1, column",
		`{"when": "server.nam == 'fs'", "do": "deny"}`:                      `unknown member "nam" of server`,
		`{"when": "sever.name == 'fs'", "do": "deny"}`:                      "undeclared reference to 'sever'",
		`{"when": "method", "do": "deny", "on": ["call"]}`:                  "bool",
		`{"when": "args.x == 1", "do": "hide", "on": ["list"]}`:             "cannot depend on",
		`{"when": "true", "do": "ask", "on": ["result"]}`:                   `a rule on "result" cannot ask`,
		`{"when": "result.x == 1", "do": "deny"}`:                           "only results or questions have",
		`{"when": "true", "do": "allow", "on": ["call"], "redact": ["/a"]}`: "only results can be redacted",
		`{"when": "[1].exists(args, .args.x == 1)", "do": "deny"}`:          "rename it",
		`{"redact": ["secrets"], "unredactable": "deny"}`:                   "JSON pointers in redact",
		`{"redact": ["/a"], "unredactable": "ask"}`:                         "unredactable",
		`{"when": "true", "do": "hook"}`:                                    "has no hook",
		`{"when": "true"}`:                                                  "want a decision",
		`{"when": "true", "do": "perhaps"}`:                                 "perhaps",
		`{"when": "` + strings.Repeat("(", 200) + `true", "do": "deny"}`:    "patchbay.policy.rules[0].when",
	} {
		_, err := compile(t, `{"rules": [`+rule+`]}`)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%.80s: got %v, want %q", rule, err, want)
		}
	}
}

// The error is at the place of the mistake within the expression.
func TestErrorHasTheColumn(t *testing.T) {
	f, err := config.Parse([]byte("{\"mcpServers\": {},\n\"patchbay\": {\"policy\": {\"rules\": [\n{\"do\": \"deny\", \"when\": \"true && oops\"}]}}}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := celpolicy.New(f, nil); err == nil || !strings.Contains(err.Error(), "line 3, column 33: patchbay.policy.rules[0].when") {
		t.Errorf("got %v", err)
	}
}

// The evaluation of a rule is bounded: more is a failure, which denies.
func TestCostIsBounded(t *testing.T) {
	for _, when := range []string{"args.list.all(x, args.list.all(y, x != y || x == y))", "!args.list.all(x, x + 1 == x + 1)",
		"args.list.all(x, tool.name.matches('a+b')) && args.list[0] == 2"} {
		p := mustCompile(t, `{"rules": [{"when": "`+when+`", "do": "deny", "on": ["call"]}]}`)
		list := "[1" + strings.Repeat(",1", 4000) + "]"
		begin := cpuTime()
		d := p.Decide(t.Context(), call("fs", "ab", `{"list": `+list+`}`))
		if d.Do != policy.OutcomeDeny || !strings.Contains(d.Reason, "cost") || cpuTime()-begin > 10*time.Second {
			t.Errorf("%s: got %v: %s after %v", when, d.Do, d.Reason, cpuTime()-begin)
		}
		if d := p.Decide(t.Context(), call("fs", "ab", `{"list": [1]}`)); strings.Contains(d.Reason, "cost") {
			t.Errorf("%s: a short list: %s", when, d.Reason)
		}
	}
}

// A hook decides; it denies if it fails. Its requests are signed.
func TestHook(t *testing.T) {
	answer, signed := "", ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed = r.Header.Get(celpolicy.Header)
		respondSigned(w, signed, answer)
	}))
	defer s.Close()
	p := celpolicy.WithHookTime(mustCompile(t, fmt.Sprintf(`{"hook": {"url": %q, "secret": "KEY"}, "rules": [{"name": "h", "do": "hook"}]}`,
		s.URL)), time.Minute) // the 2 seconds of a hook are short for a busy machine
	answers := []string{`{"do": "allow"}`, `{"do": "ask"}`, `{"do": "deny"}`}
	for text, want := range map[string]string{`{"do": "allow"}`: "allow", `{"do": "ask"}`: "ask", `{"do": "deny"}`: "deny",
		`{}`: "deny", `{"do": "hide"}`: "deny", `oops`: "deny", ``: "deny"} {
		answer = text
		d, isAnswer := p.Decide(t.Context(), call("fs", "t", "{}")), slices.Contains(answers, text)
		if d.Do.String() != want || d.Undecided == isAnswer || !strings.HasPrefix(signed, "t=") {
			t.Errorf("%q: got %v (%s), undecided %t, signed %q", text, d.Do, d.Reason, d.Undecided, signed)
		}
	}
	for command, want := range map[string]string{`["sh", "-c", "echo '{\"do\": \"allow\"}'"]`: "allow", `["sh", "-c", "exit 1"]`: "deny",
		`["no-such-program"]`: "deny", `["sleep", "60"]`: "deny"} {
		p := mustCompile(t, `{"hook": {"command": `+command+`}, "rules": [{"do": "hook"}]}`)
		if !strings.Contains(command, "sleep") {
			celpolicy.WithHookTime(p, time.Minute)
		}
		if d := p.Decide(t.Context(), call("fs", "t", "{}")); d.Do.String() != want || d.Undecided != (want == "deny") {
			t.Errorf("%s: got %v (%s), undecided %t", command, d.Do, d.Reason, d.Undecided)
		}
	}
}

// What rules read decides whether decisions are kept.
func TestNeeds(t *testing.T) {
	p := mustCompile(t, `{"rules": [{"when": "server.name == 'a'", "do": "deny"},
		{"on": ["read"], "when": "now > timestamp('2030-01-01T00:00:00Z')", "do": "deny"},
		{"on": ["get"], "when": "args.exists(k, k == 'x')", "do": "deny"}]}`)
	for kind, want := range map[policy.ActionKind]policy.Fields{policy.ActionCall: 0, policy.ActionRead: policy.FieldTime,
		policy.ActionGet: policy.FieldArguments, policy.ActionResult: 0} {
		if got := p.Needs(kind); got != want {
			t.Errorf("%s: got %b, want %b", kind, got, want)
		}
	}
	if other := mustCompile(t, `{"rules": []}`); other.Epoch() == p.Epoch() {
		t.Error("two policies have one epoch")
	}
}

// A policy of 200 rules that read arguments, as teams write them: each is for one tool of a server.
func BenchmarkDecide(b *testing.B) {
	var rules []string
	for n := range 200 {
		rules = append(rules, fmt.Sprintf(`{"on": ["call"], "do": "deny", "when": "server.name == 's%d' && tool.name == 't%d' && args.path.startsWith('/no/%d')"}`,
			n/10, n%10, n))
	}
	scoped := mustCompile(b, `{"rules": [`+strings.Join(rules, ",")+`]}`)
	rules = nil
	for n := range 200 {
		rules = append(rules, fmt.Sprintf(`{"on": ["call"], "do": "deny", "when": "args.path.startsWith('/no/%d')"}`, n))
	}
	global := mustCompile(b, `{"rules": [`+strings.Join(rules, ",")+`]}`)
	rules = nil
	for n := range 200 {
		when := []string{`args.path.contains('/no/%d')`, `args.text == 'no %d'`, `has(args.mode) && args.mode in ['a', 'b%d']`,
			`args.path.matches('^/no/%d/[a-z]+$')`, `args.n > 10%d && 'read' in caller.scopes`}[n%5]
		rules = append(rules, `{"on": ["call"], "do": "deny", "when": "`+fmt.Sprintf(when, n)+`"}`)
	}
	mixed := mustCompile(b, `{"rules": [`+strings.Join(rules, ",")+`]}`)
	for name, p := range map[string]*celpolicy.Policy{"each for one tool": scoped, "all for every tool": global, "of several kinds": mixed} {
		b.Run(name, func(b *testing.B) {
			a := call("s7", "t3", `{"path": "/srv/data/report.txt", "text": "hello", "n": 3}`)
			p.Decide(b.Context(), a)
			begin := cpuTime()
			b.ReportAllocs()
			for b.Loop() {
				if p.Decide(b.Context(), a).Do != policy.OutcomeAllow {
					b.Fatal("refused")
				}
			}
			b.ReportMetric(float64(cpuTime()-begin)/float64(b.N), "cpu-ns/op")
		})
	}
}

// A rule that reads the tool of a task matches if the tool is unknown, unless the rule allows or is about
// another server. The same holds for the definition alone.
func TestRulesOnResultsOfTasks(t *testing.T) {
	p := mustCompile(t, `{"rules": [
		{"name": "elsewhere", "on": ["result"], "when": "server.name == 'db' && tool.name == 'read'", "do": "deny"},
		{"name": "trusted", "on": ["result"], "when": "tool.name == 'read'", "do": "allow"},
		{"name": "clean", "on": ["result"], "when": "target == 'send'", "redact": ["secrets"]},
		{"name": "open", "on": ["result"], "when": "tool.annotations.openWorld == true", "do": "deny"}]}`)
	const closed = `{"name":"x","annotations":{"openWorldHint":false}}`
	for _, test := range []struct {
		method, server, target, definition, rule string
		do                                       policy.Outcome
		redacted                                 bool
	}{
		{"tasks/result", "fs", "", "", "open", policy.OutcomeDeny, true},
		{"tasks/get", "db", "", "", "elsewhere", policy.OutcomeDeny, false},
		{"tasks/result", "fs", "read", "", "trusted", policy.OutcomeAllow, false},
		{"tasks/result", "fs", "send", closed, "", policy.OutcomeAllow, true},
		{"tasks/result", "fs", "third", closed, "", policy.OutcomeAllow, false},
		{"tasks/result", "fs", "other", "", "open", policy.OutcomeDeny, false},
		{"tasks/list", "fs", "", "", "", policy.OutcomeAllow, false},
		{"x/other", "fs", "", "", "", policy.OutcomeAllow, false},
	} {
		d := p.Decide(t.Context(), &policy.Action{Kind: policy.ActionResult, Method: test.method, Server: test.server,
			Target: test.target, Definition: json.RawMessage(test.definition), Result: json.RawMessage(`{}`)})
		if d.Do != test.do || d.Rule != test.rule || (len(d.Redact) > 0) != test.redacted {
			t.Errorf("%s of %q at %s: got %s by %q, redact %v; want %s by %q, redacted: %t", test.method, test.target,
				test.server, d.Do, d.Rule, d.Redact, test.do, test.rule, test.redacted)
		}
	}
}
