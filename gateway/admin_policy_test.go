package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const noDeletes = `{"rules": [{"name": "no-deletes", "on": ["call"], "when": "tool.name == 'delete'", "do": "deny"},
	{"name": "soon", "on": ["call"], "do": "ask", "mode": "dry-run"}]}`

// compile returns the policy in a JSON text.
func compile(rules string, o *celpolicy.Options) (*celpolicy.Policy, error) {
	f, err := config.Parse([]byte(`{"mcpServers": {}, "patchbay": {"policy": ` + rules + `}}`))
	if err != nil {
		return nil, err
	}
	return celpolicy.New(f, o)
}

// newPolicyAdmin serves the admin API of a gateway with a policy.
func newPolicyAdmin(t *testing.T, rules string) *adminTest {
	return newAdmin(t, twoServers, func(o *host.Options, a *gateway.AdminOptions) {
		compiled, err := compile(rules, nil)
		if err != nil {
			t.Fatal(err)
		}
		o.Policy = compiled
		a.Policy = func(context.Context) (json.RawMessage, error) { return json.RawMessage(rules), nil }
		a.Explain = func(_ context.Context, other json.RawMessage) (gateway.Explainer, error) {
			p, opts := rules, &celpolicy.Options{}
			if other != nil {
				p, opts = string(other), &celpolicy.Options{NoHook: true}
			}
			c, err := compile(p, opts)
			if err != nil {
				return nil, &gateway.Problem{Status: http.StatusUnprocessableEntity, Code: "invalid_policy",
					Detail: err.Error()}
			}
			return func(ctx context.Context, a *policy.Action) (policy.Decision, []gateway.RuleStep) {
				d, steps := c.Explain(ctx, a)
				var all []gateway.RuleStep
				for _, s := range steps {
					all = append(all, gateway.RuleStep{Rule: s.Rule, Do: s.Do, Mode: s.Mode, Matches: s.Matches})
				}
				return d, all
			}, nil
		}
	})
}

// Another policy decides about an action in place of the policy in force, whose decisions do not
// change.
func TestAdminExplainsAnotherPolicy(t *testing.T) {
	a := newPolicyAdmin(t, noDeletes)
	for _, test := range []struct{ body, want string }{
		{`{"server": "one", "target": "delete"}`, "deny no-deletes"},
		{`{"server": "one", "target": "read"}`, "allow "},
		{`{"server": "one", "target": "read", "policy": {"default": "deny"}}`, "deny "},
		{`{"server": "one", "target": "x",
			"policy": {"hook": {"command": ["/no/such"]}, "rules": [{"name": "h", "do": "hook"}]}}`, "deny h"},
	} {
		var d struct{ Do, Rule, Reason string }
		a.get("POST", "/policy:explain", test.body, &d)
		if got := d.Do + " " + d.Rule; got != test.want {
			t.Errorf("%s: got %s, want %s", test.body, got, test.want)
		}
		if strings.Contains(test.body, "hook") && !strings.Contains(d.Reason, "was not asked") {
			t.Errorf("%s: got the reason %q", test.body, d.Reason)
		}
	}
	a.refused("POST", "/policy:explain", `{"server": "one", "target": "x", "policy": {"default": "maybe"}}`,
		http.StatusUnprocessableEntity, "invalid_policy")
}

func TestAdminComparesPolicies(t *testing.T) {
	a := newPolicyAdmin(t, noDeletes)
	type comparison struct {
		Actions int
		Changed []struct {
			Index     int
			Now, Then struct{ Do, Rule string }
		}
	}
	actions := `[{"server": "one", "target": "delete"}, {"server": "one", "target": "read", "args": {"n": 1}},
		{"server": "two", "target": "write", "subject": "ann"}]`
	const forAnn = `{"rules": [{"name": "ann", "when": "caller.subject == 'ann'", "do": "ask"}]}`
	policies := map[string]string{
		noDeletes: "3 []", `{}`: "3 [{0 {deny no-deletes} {allow }}]",
		`{"default": "deny"}`: "3 [{1 {allow } {deny }} {2 {allow } {deny }}]",
		forAnn:                "3 [{0 {deny no-deletes} {allow }} {2 {allow } {ask ann}}]",
	}
	for text, want := range policies {
		var res comparison
		a.get("POST", "/policy:compare", fmt.Sprintf(`{"policy": %s, "actions": %s}`, text, actions), &res)
		if got := fmt.Sprint(res.Actions, " ", res.Changed); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	a.refused("POST", "/policy:compare", `{"policy": {"rules": [{"when": "x"}]}, "actions": `+actions+`}`,
		http.StatusUnprocessableEntity, "invalid_policy")
	a.refused("POST", "/policy:compare", `{"policy": {}, "actions": []}`, http.StatusBadRequest, "invalid_body")
}

// The hits of a rule count the requests that it decided, and the requests that it would have
// decided.
func TestAdminCountsHitsOfRules(t *testing.T) {
	a := newPolicyAdmin(t, `{"rules": [{"name": "soon", "on": ["call"], "do": "deny", "mode": "dry-run"},
		{"name": "no-whoami", "on": ["call"], "when": "tool.name == 'whoami'", "do": "deny"}]}`)
	c, err := mcp.Connect(t.Context(), mcp.InMemory(a.host.For(&policy.Caller{Server: "one"})), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		if res, err := c.CallTool(t.Context(), "whoami", json.RawMessage(`{}`)); err == nil && !res.IsError {
			t.Errorf("the call was not denied: %+v", res)
		}
	}
	var res struct {
		Policy struct{ Rules []struct{ Name string } }
		Hits   []struct {
			Rule            string
			Decided, DryRun int
		}
	}
	a.get("GET", "/policy", "", &res)
	if got := fmt.Sprint(res.Hits); len(res.Policy.Rules) != 2 || got != "[{no-whoami 2 0} {soon 0 2}]" {
		t.Errorf("got %+v", res)
	}
}

// A list of definitions contains their texts, and reports which definitions a server no longer
// lists.
func TestAdminShowsDefinitions(t *testing.T) {
	a := newAdmin(t, twoServers, func(o *host.Options, _ *gateway.AdminOptions) {
		o.State, o.Pins = &state.Memory{}, true
	})
	a.get("POST", "/servers/one:restart", "", &struct{}{})
	var res struct {
		Matched int
		Pins    []struct {
			Server, Kind, Name string
			Removed            bool
			Approved           []struct{ Definition json.RawMessage }
		}
	}
	a.get("GET", "/pins?status=approved&definitions=true", "", &res)
	if res.Matched == 0 || res.Matched != len(res.Pins) {
		t.Fatalf("got %+v", res)
	}
	for _, p := range res.Pins {
		if p.Removed || len(p.Approved) != 1 || !json.Valid(p.Approved[0].Definition) {
			t.Errorf("got %+v", p)
		}
	}
	a.get("GET", "/pins?status=quarantined", "", &res)
	if res.Matched != 0 {
		t.Errorf("quarantined: got %+v", res)
	}
}
