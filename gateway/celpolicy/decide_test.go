package celpolicy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A ruleGenerator generates random rules and actions from few names and values, so that expressions
// often match, and fail in all ways.
type ruleGenerator struct{ *rand.Rand }

func (g ruleGenerator) one(of ...string) string { return of[g.IntN(len(of))] }

// value returns an expression of any type.
func (g ruleGenerator) value(depth int, on string) string {
	all := []string{"args.path", "args.n", "args.list", "args['path']", "args.deep.n", "args.deep.path", "args[tool.name]", "server.name",
		"tool.name", "tool.annotations.destructive", "tool.annotations", "caller.subject", "caller.scopes", "caller.claims.team", "client.name",
		"method", "target", "recent.servers", "1", "2.0", "'a'", "'/srv/a'", "null", "true", "['a', 'b']", "{'a': 1}", "size(args)",
		"type(args.n)", "now.getFullYear()", "args.list[0]", "string(args.n)", "int(args.path)", "args"}
	switch on {
	case "result":
		all = append(all, "result.isError", "result.structuredContent.rows", "result.content[0].text", "result")
	case "question":
		all = append(all, "question.method", "question.params.message")
	}
	if depth > 0 && g.IntN(5) == 0 {
		return "(" + g.condition(depth-1, on) + " ? " + g.value(depth-1, on) + " : " + g.value(depth-1, on) + ")"
	}
	return g.one(all...)
}

// condition returns an expression that should be true or false.
func (g ruleGenerator) condition(depth int, on string) string {
	if depth > 0 {
		a, b := g.condition(depth-1, on), g.condition(depth-1, on)
		switch g.IntN(6) {
		case 0, 1:
			return a + " && " + b
		case 2:
			return "(" + a + " || " + b + ")"
		case 3:
			return "!(" + a + ")"
		case 4:
			return "(" + a + " ? " + b + " : " + g.condition(depth-1, on) + ")"
		}
	}
	v := g.value(g.IntN(2), on)
	switch g.IntN(14) {
	case 0:
		return "dyn(" + v + ") == dyn(" + g.value(1, on) + ")"
	case 1:
		return "dyn(" + v + ") in dyn(" + g.value(1, on) + ")"
	case 2:
		return "dyn(" + g.one("args.path", "tool.name", v) + ").startsWith('" + g.one("/srv", "a", "") + "')"
	case 3:
		return "has(" + g.one("args.path", "args.deep.n", "args.deep", "caller.claims.team", "tool.title") + ")"
	case 4:
		return "dyn(" + v + ") > dyn(" + g.one("1", "args.n", "'a'") + ")"
	case 5:
		return g.one("args.list.exists(x, x == ", "args.list.all(x, dyn(x) != ", "args.exists(args, args == ", "[1, 2].exists_one(x, x == ") +
			"dyn(" + v + "))"
	case 6:
		return "args.path.matches('" + g.one("^/srv", "a+", ".*") + "')"
	case 7:
		return "args.list.map(x, dyn(x) + dyn(" + v + ")).exists(server, server == args.n)"
	}
	return g.one("server.name == 's0'", "tool.name == 't1'", "tool.annotations.destructive == true", "'read' in caller.scopes", "args.flag",
		"args.path == '/srv/a'", "method == 'tools/call'", "'s1' in recent.servers", "client.name == 'c'", "caller.local", "dyn("+v+")")
}

// rules returns a policy.
func (g ruleGenerator) rules() string {
	var all []string
	for n := range 1 + g.IntN(8) {
		on := g.one("call", "call", "call", "result", "question", "")
		do := g.one("allow", "deny", "ask", "deny", "allow", "deny", "ask")
		if g.IntN(20) == 0 {
			do = "hide"
		}
		if on == "result" || on == "question" {
			do = g.one("allow", "deny")
		}
		rule := map[string]any{"name": fmt.Sprint("r", n), "do": do}
		if on != "" {
			rule["on"] = []string{on}
		}
		if g.IntN(12) > 0 {
			rule["when"] = g.condition(1+g.IntN(3), on)
		}
		if g.IntN(5) == 0 {
			rule["mode"] = "dry-run"
		}
		if on == "result" && g.IntN(2) == 0 {
			rule["redact"] = []string{"secrets"}
		}
		text, _ := json.Marshal(rule)
		all = append(all, string(text))
	}
	return `{"default": "` + g.one("allow", "ask", "deny") + `", "rules": [` + strings.Join(all, ",\n") + `]}`
}

var arguments = []string{``, `{}`, `{"path": "/srv/a", "n": 1, "list": [1, 2, "a"], "flag": true}`, `{"path": 5, "n": 9007199254740993}`,
	`{"n": 1.0, "deep": {"n": 1, "path": "a"}, "list": []}`, `{"path": "\u00e9\n\ud83d\ude00", "list": {"a": 1}, "flag": null}`,
	`{"t1": "a", "t0": [1], "path": "/srv/b", "deep": null}`, `null`, `[]`, `{"n": 1e400, "path": "/srv"`, `{"path": "x", "path": "/srv/a"}`,
	`{"n": -0.0, "list": [null, {"a": [1]}], "args": 1} x`, "{\"path\": \"\xff\"}"}

func (g ruleGenerator) action(caller *policy.Caller) *policy.Action {
	a := &policy.Action{Kind: policy.ActionKind(g.one("call", "call", "call", "result", "question", "list", "read")), Method: "tools/call",
		Caller: caller, Server: g.one("s0", "s1"), Target: g.one("t0", "t1"), Client: mcp.Implementation{Name: g.one("c", "")},
		Arguments: json.RawMessage(g.one(arguments...)), Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	a.Definition = json.RawMessage(fmt.Sprintf(`{"name": %q, "annotations": {"destructiveHint": %s}}`, a.Target, g.one("true", "false", "1")))
	copy(a.Digest[:], a.Definition[len(a.Definition)-8:])
	if g.IntN(2) == 0 {
		a.Recent = []string{"s1"}
	}
	if a.Kind == policy.ActionResult {
		a.Result = json.RawMessage(g.one(`{"isError": true, "content": [{"text": "a"}]}`, `{"structuredContent": {"rows": 1}}`, `{}`))
	}
	if a.Kind == policy.ActionQuestion {
		a.Question = json.RawMessage(`{"method": "elicitation/create", "params": {"message": "a"}}`)
	}
	return a
}

var callers = []*policy.Caller{{}, {Profile: "p"}, {Principal: &mcp.Principal{Subject: "a", Scopes: []string{"read"},
	Claims: map[string]any{"team": "a"}}}, nil}

// checkRules compares the decisions of a random policy with the decisions of its single rules. It reports
// whether the policy is valid, and whether a rule has decided.
func checkRules(t *testing.T, seed uint64) (valid, decided bool) {
	g := ruleGenerator{rand.New(rand.NewPCG(seed, 3))}
	text := g.rules()
	p, err := compile(t, text)
	if err != nil {
		return false, false
	}
	for range 12 {
		a := g.action(callers[g.IntN(len(callers))])
		want := p.DecideEach(t.Context(), a)
		decided = decided || want.Rule != ""
		for range 2 { // also with a plan that is known
			if got := p.Decide(t.Context(), a); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %s\n%s %s of %s with %s: got %+v\nwant %+v", seed, text, a.Kind, a.Target, a.Server, a.Arguments, got, want)
			}
		}
	}
	return true, decided
}

// Neither plans nor omitted members change a decision.
func TestDecisionsAreThoseOfEachRule(t *testing.T) {
	const rounds = 400 // FuzzDecide runs more
	valid, decided := 0, 0
	for seed := range uint64(rounds) {
		ok, ruled := checkRules(t, seed)
		if ok {
			valid++
		}
		if ruled {
			decided++
		}
	}
	t.Logf("%d valid policies, %d with decisions by rules", valid, decided)
	if valid < rounds/3 || decided < rounds/4 {
		t.Errorf("%d policies of %d are valid, and rules of %d decide", valid, rounds, decided)
	}
}

func FuzzDecide(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { checkRules(t, seed) })
}

// A member has the same value whether some or all members are decoded.
func FuzzMembers(f *testing.F) {
	for _, text := range arguments {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		all := celpolicy.DecodeAll(raw)
		got := celpolicy.Decode(raw, "path", "n", "")
		for _, name := range []string{"path", "n", ""} {
			value, ok := got[name]
			want, has := all[name]
			if ok != has || fmt.Sprintf("%#v", value) != fmt.Sprintf("%#v", want) {
				t.Errorf("%q: %s is %#v, want %#v", raw, name, value, want)
			}
		}
	})
}

// Requests that share a plan do not share values.
func TestDecisionsAtTheSameTime(t *testing.T) {
	p := mustCompile(t, `{"rules": [
		{"when": "args.n > 100 && server.name == 's' && tool.title.startsWith('x')", "do": "deny"},
		{"name": "even", "when": "args.n % 2 == 0 && server.name == 's'", "do": "deny"},
		{"name": "fails", "when": "args.n % 2 == 1 && args.list[5] == 1", "do": "deny"}]}`)
	var all sync.WaitGroup
	caller := &policy.Caller{}
	for worker := range 8 {
		all.Go(func() {
			for n := range 200 {
				n = (n + worker) % 100
				a := call("s", "t", fmt.Sprintf(`{"n": %d, "list": []}`, n))
				a.Caller = caller
				if d := p.Decide(t.Context(), a); d.Rule != []string{"even", "fails"}[n%2] {
					t.Errorf("%d: %+v", n, d)
				}
			}
		})
	}
	all.Wait()
}
