package celpolicy_test

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// recipe matches a rule of the documentation.
var recipe = regexp.MustCompile("(?s)<!-- recipe: ([a-z-]+) -->\n```jsonc\n(.*?)```")

// A recipeCase is a request, and what the only rule decides about it.
type recipeCase struct {
	server, tool, args, annotations string
	recent, scope                   string
	remote                          bool // the caller is not the local user
	want                            policy.Outcome
}

var recipeCases = map[string][]recipeCase{
	"read-only": {
		{server: "db", tool: "query", annotations: `{"readOnlyHint": true}`, want: policy.OutcomeAllow},
		{server: "db", tool: "query", annotations: `{"readOnlyHint": false}`, want: policy.OutcomeDeny},
		{server: "db", tool: "query", want: policy.OutcomeDeny}, // no claim
		{server: "fs", tool: "write", want: policy.OutcomeAllow},
	},
	"destructive": {
		{server: "db", tool: "drop_table", want: policy.OutcomeAsk},
		{server: "db", tool: "delete", annotations: `{"destructiveHint": false}`, want: policy.OutcomeAsk},
		{server: "db", tool: "wipe", annotations: `{"destructiveHint": true}`, want: policy.OutcomeAsk},
		{server: "db", tool: "undeleted", want: policy.OutcomeAllow},
	},
	"only-srv": {
		{server: "fs", tool: "read", args: `{"path": "/srv/app/a.txt"}`, want: policy.OutcomeAllow},
		{server: "fs", tool: "read", args: `{"path": "/etc/passwd"}`, want: policy.OutcomeDeny},
		{server: "fs", tool: "read", args: `{"path": "/srv/../etc/passwd"}`, want: policy.OutcomeDeny},
		{server: "fs", tool: "read", args: `{"path": ["/etc/passwd"]}`, want: policy.OutcomeDeny}, // the rule fails
		{server: "fs", tool: "roots", args: `{}`, want: policy.OutcomeAllow},
		{server: "db", tool: "read", args: `{"path": "/etc/passwd"}`, want: policy.OutcomeAllow},
	},
	"admins": {
		{server: "db", tool: "admin_reset", want: policy.OutcomeAllow},
		{server: "db", tool: "admin_reset", remote: true, scope: "read", want: policy.OutcomeHide},
		{server: "db", tool: "admin_reset", remote: true, scope: "admin", want: policy.OutcomeAllow},
		{server: "db", tool: "query", remote: true, scope: "read", want: policy.OutcomeAllow},
	},
	"after-web": {
		{server: "mail", tool: "send", want: policy.OutcomeAllow},
		{server: "mail", tool: "send", recent: "web", want: policy.OutcomeAsk},
		{server: "fs", tool: "read", recent: "web", want: policy.OutcomeAllow},
	},
	"dlp": {{server: "db", tool: "query", want: policy.OutcomeAllow}},
}

// The recipes of the documentation compile, and decide as they say.
//
// Requirement: HOST-41
func TestRecipes(t *testing.T) {
	text, err := os.ReadFile("../../docs/gateway-policy.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range recipe.FindAllStringSubmatch(string(text), -1) {
		name, rule := m[1], m[2]
		found[name] = true
		t.Run(name, func(t *testing.T) {
			p := mustCompile(t, `{"rules": [`+rule+`]}`)
			for _, c := range recipeCases[name] {
				a := c.action(t)
				d := p.Decide(t.Context(), a)
				if d.Do != c.want || d.Do != policy.OutcomeAllow && d.Rule != name {
					t.Errorf("%+v: got %v by %q, want %v", c, d.Do, d.Rule, c.want)
				}
				if list := *a; c.want == policy.OutcomeHide {
					list.Kind, list.Method, list.Arguments = policy.ActionList, "tools/list", nil
					if d := p.Decide(t.Context(), &list); d.Do != policy.OutcomeHide {
						t.Errorf("%+v: the tool is listed: %v", c, d.Do)
					}
				}
			}
		})
	}
	for name := range recipeCases {
		if !found[name] {
			t.Errorf("the documentation has no recipe %s", name)
		}
	}
	for name := range found {
		if recipeCases[name] == nil {
			t.Errorf("the recipe %s has no cases", name)
		}
	}
	result := recipeCase{server: "db", tool: "query"}.action(t)
	result.Kind, result.Result = policy.ActionResult, json.RawMessage(`{}`)
	dlp := recipe.FindAllStringSubmatch(string(text), -1)
	p := mustCompile(t, `{"rules": [`+dlp[len(dlp)-1][2]+`]}`)
	if d := p.Decide(t.Context(), result); len(d.Redact) != 2 || d.Redact[0].Pointer != "" || d.Redact[1].Pointer != "/rows/*/ssn" {
		t.Errorf("the recipe dlp redacts %+v", d.Redact)
	}
	if d := p.Decide(t.Context(), result); d.Redact[0].MustApply || !d.Redact[1].MustApply {
		t.Errorf("the recipe dlp denies what cannot be redacted: got %+v", d.Redact)
	}
}

func (c recipeCase) action(t *testing.T) *policy.Action {
	t.Helper()
	a := call(c.server, c.tool, c.args)
	definition := map[string]any{"name": c.tool}
	if c.annotations != "" {
		definition["annotations"] = json.RawMessage(c.annotations)
	}
	var err error
	if a.Definition, err = json.Marshal(definition); err != nil {
		t.Fatal(err)
	}
	a.Caller = &policy.Caller{}
	if c.remote {
		a.Caller.Principal = &mcp.Principal{Subject: "bob", Scopes: []string{c.scope}}
	}
	if c.recent != "" {
		a.Recent = []string{c.recent}
	}
	return a
}
