package policy_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const rules = `{"rules": [{"name": "soon", "on": ["call"], "when": "args.n > 5", "do": "deny", "mode": "dry-run"},
	{"name": "no-drop", "on": ["call"], "when": "tool.name == 'drop'", "do": "deny", "reason": "<b>never</b>"}]}`

func compile(text string) (*celpolicy.Policy, error) {
	f, err := config.Parse([]byte(`{"mcpServers": {}, "patchbay": {"policy": ` + text + `}}`))
	if err != nil {
		return nil, err
	}
	return celpolicy.New(f, nil)
}

// explain is gateway.AdminOptions.Explain of a gateway with a policy.
func explain(text string) func(context.Context, json.RawMessage) (gateway.Explainer, error) {
	return func(_ context.Context, other json.RawMessage) (gateway.Explainer, error) {
		now := text
		if other != nil {
			now = string(other)
		}
		c, err := compile(now)
		if err != nil {
			return nil, &gateway.Problem{Status: http.StatusUnprocessableEntity, Code: "invalid_policy",
				Detail: err.Error()}
		}
		return func(ctx context.Context, a *policy.Action) (policy.Decision, []gateway.RuleStep) {
			d, all := c.Explain(ctx, a)
			var steps []gateway.RuleStep
			for _, s := range all {
				steps = append(steps, gateway.RuleStep{Rule: s.Rule, Do: s.Do, Mode: s.Mode, Matches: s.Matches})
			}
			return d, steps
		}, nil
	}
}

// newSite returns a console of a gateway with a policy, whose server db offers read and drop.
func newSite(t *testing.T, text string, role page.Role) (*consoletest.Visitor, *host.Host) {
	t.Helper()
	db := mcp.NewServer("db", "1", nil)
	for _, name := range []string{"read", "drop"} {
		mcp.AddTool(db, &mcp.Tool{Name: name}, func(context.Context, struct {
			N int `json:"n"`
		}) (string, error) {
			return "", nil
		})
	}
	ring := capture.New(&capture.Options{Always: true})
	g, h := consoletest.Gateway(t, `{"mcpServers": {"db": {"command": "x"}}}`, map[string]*mcp.Server{"db": db},
		func(o *host.Options, a *gateway.AdminOptions) {
			o.Recorder = ring.Recorder(o.Recorder)
			a.Policy = func(context.Context) (json.RawMessage, error) { return nil, nil }
			a.Explain = explain(text)
			if text == "" {
				return
			}
			compiled, err := compile(text)
			if err != nil {
				t.Fatal(err)
			}
			o.Policy = compiled
			a.Policy = func(context.Context) (json.RawMessage, error) { return json.RawMessage(text), nil }
		})
	s := consoletest.New(t, func(o *console.Options) {
		o.Admin, o.Capture = g.AdminClient, ring // which shows a policy
		o.Authenticate = func(*http.Request) (*mcp.Principal, page.Role, error) {
			return &mcp.Principal{Subject: "ann"}, role, nil
		}
	})
	return s.Guest(), h
}

// call calls both tools as bob.
func call(t *testing.T, h *host.Host) {
	t.Helper()
	caller := &policy.Caller{Principal: &mcp.Principal{Subject: "bob"}, Server: "db"}
	c, err := mcp.Connect(t.Context(), mcp.InMemory(h.For(caller)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, n := range []string{"1", "7"} {
		if _, err := c.CallTool(t.Context(), "read", json.RawMessage(`{"n":`+n+`}`)); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = c.CallTool(t.Context(), "drop", json.RawMessage(`{"n":1}`)) // is denied
}

func TestPolicyShowsRulesWithTheirHits(t *testing.T) {
	mcptest.NoLeaks(t)
	s, h := newSite(t, rules, page.RoleViewer)
	call(t, h)
	text := s.See("/policy")
	for _, want := range []string{"soon", "dry run", "1 would be decided", "no-drop", "1 hit<", "&lt;b&gt;never",
		"args.n &gt; 5", "Without a match"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	for _, path := range []string{"/policy/explain", "/policy/compare"} {
		if res, _ := s.Send(http.MethodPost, path, url.Values{}); res.StatusCode != http.StatusForbidden ||
			strings.Contains(text, path) {
			t.Errorf("a viewer may use %s: %d", path, res.StatusCode)
		}
	}
}

func TestPolicyExplainsARequest(t *testing.T) {
	mcptest.NoLeaks(t)
	s, _ := newSite(t, rules, page.RoleOperator)
	for _, test := range []struct {
		tool, args string
		want       []string
	}{
		{"drop", `{"n": 1}`, []string{
			"deny</span> by rule no-drop", "does not match", "matches: deny", "&lt;b&gt;never"}},
		{"read", "\n" + `{"n": 9} // large`, []string{"allow</span> by the default", "matches: deny", "dry run",
			`">` + "\n\n" + `{&#34;n&#34;: 9} // large</textarea>`}}, // browsers drop the first line end
		{"read", `{"n": `, []string{"invalid arguments: ", "role=\"alert\""}},
	} {
		form := url.Values{"on": {"call"}, "server": {"db"}, "tool": {test.tool}, "args": {test.args},
			"caller": {"bob"}}
		text := s.See(s.Post("/policy/explain", form))
		for _, want := range append(test.want, `value="bob"`) {
			if !strings.Contains(text, want) {
				t.Errorf("%s %s: no %q in %s", test.tool, test.args, want, text)
			}
		}
	}
	if text := s.See("/policy?test=x"); !strings.Contains(text, "no longer kept") {
		t.Errorf("got %s", text)
	}
}

// An edited policy is tested on the calls that the ring holds, and does not take effect.
func TestPolicyIsTestedOnRecordedTraffic(t *testing.T) {
	mcptest.NoLeaks(t)
	s, h := newSite(t, rules, page.RoleOperator)
	compare := func(text string) string { return s.See(s.Post("/policy/compare", url.Values{"policy": {text}})) }
	if text := compare(rules); !strings.Contains(text, "0 calls, 0 would change") {
		t.Errorf("without calls: got %s", text)
	}
	call(t, h)
	for edited, want := range map[string][]string{
		rules: {"3 calls, 0 would change"},
		"\n{}": {"3 calls, 1 would change", "db drop", "bob", "by rule no-drop", "by the default",
			`">` + "\n\n{}</textarea>"}, // browsers drop the first line end
		`{"rules": [{"name": "big", "when": "args.n > 5", "do": "ask"}]} // new`: {
			"3 calls, 2 would change", "by rule big"},
		`{"rules": [{"name": "x", "when": "tool.nam == 1", "do": "deny"}]}`: {"problem data", "nam"},
		`{"rules"`: {"invalid policy"},
		``:         {"missing policy"},
	} {
		text := compare(edited)
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: no %q in %s", edited, w, text)
			}
		}
	}
	if text := s.See("/policy"); !strings.Contains(text, "no-drop") {
		t.Errorf("the policy in force changed: %s", text)
	}
}

func TestPolicyOfAGatewayWithoutRules(t *testing.T) {
	mcptest.NoLeaks(t)
	s, _ := newSite(t, "", page.RoleOperator)
	if text := s.See("/policy"); !strings.Contains(text, "This gateway has no policy") {
		t.Errorf("got %s", text)
	}
}
