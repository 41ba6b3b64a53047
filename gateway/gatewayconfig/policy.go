package gatewayconfig

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// A Policy decides what callers may do. Package gateway/celpolicy compiles it.
type Policy struct {
	// Default decides about requests that no rule matches: "allow", "ask" or "deny". Default: "allow".
	Default string `json:"default" jsonschema:"decision without a matching rule,enum=allow|ask|deny,default=allow"`
	// Rules contains the rules in order: the first that matches decides.
	Rules []PolicyRule `json:"rules,omitempty" jsonschema:"rules in order: the first that matches decides,maxItems=1000"` //nolint:lll // a tag
	// Hook decides for rules whose decision is "hook".
	Hook *PolicyHook `json:"hook,omitempty" jsonschema:"program that decides for rules with do hook"`
}

// A PolicyRule is a rule of a policy.
type PolicyRule struct {
	// Name is shown to users and in records. Default: the place of the rule, such as "rules[2]".
	Name string `json:"name,omitempty" jsonschema:"name for users and records,pattern=^[A-Za-z0-9._-]{1,64}$"`
	// On contains the kinds of actions to which the rule applies. Default: "result" with Redact, else all
	// requests.
	On []string `json:"on,omitempty" jsonschema:"kinds,enum=list|call|read|get|complete|event|other|result|question"`
	// When is an expression in CEL. Default: always.
	When string `json:"when,omitempty" jsonschema:"expression in CEL,maxLength=8192"`
	// Do is "allow", "ask", "deny", "hide" or "hook"; empty for a rule that only redacts.
	Do string `json:"do,omitempty" jsonschema:"decision,enum=allow|ask|deny|hide|hook"`
	// Via is the only channel for "ask": "client", "console" or "webhook".
	Via string `json:"via,omitempty" jsonschema:"only channel for ask,enum=client|console|webhook"`
	// Mode is "dry-run" for a rule whose decision is only recorded.
	Mode string `json:"mode,omitempty" jsonschema:"dry-run: record the decision only,enum=enforce|dry-run"`
	// Reason is shown to the caller.
	Reason string `json:"reason,omitempty" jsonschema:"reason that the caller sees,maxLength=512"`
	// Redact contains the parts of results that the caller must not receive: "secrets" or JSON pointers.
	Redact []string `json:"redact,omitempty" jsonschema:"secrets or JSON pointers,pattern=^(secrets|(/[^/]*)+)$"`
	// Unredactable is "deny" to deny a result to which the pointers of Redact cannot be applied,
	// such as text that is not JSON, or "pass". Default: "pass". It requires pointers in Redact.
	Unredactable string `json:"unredactable,omitempty" jsonschema:"unredactable results,enum=pass|deny"`
}

// A PolicyHook is another program that decides.
type PolicyHook struct {
	// URL receives the action as JSON by POST.
	URL string `json:"url,omitempty" jsonschema:"URL that receives each action by POST,pattern=^https?://"`
	// Command receives the action on standard input.
	Command []string `json:"command,omitempty" jsonschema:"program that receives each action on standard input"`
	// Secret names the environment variable that contains the key for signing the requests to URL.
	Secret string `json:"secret,omitempty" jsonschema:"variable with the key,pattern=^[A-Za-z_][A-Za-z0-9_]*$"`
}

// checkDecider checks the URL of a policy hook or webhook. It must be encrypted or local, because
// requests to it contain secrets and its answers are decisions.
func checkDecider(p *config.Problems, at, text string) {
	u, err := url.Parse(text)
	if err != nil || text != "" && (u.Host == "" || u.Scheme != "https" && !netx.IsLocalHost(u.Hostname())) {
		p.Add(at, "got %.100q, want an https URL, or http with a loopback address", text)
	}
}

func isPointer(redact string) bool { return strings.HasPrefix(redact, "/") }

// check checks the member policy of the settings.
func (y *Policy) check(p *config.Problems) {
	if y == nil {
		return
	}
	if h := y.Hook; h != nil {
		if (h.URL == "") == (len(h.Command) == 0) {
			p.Add("/policy/hook", "want either url or command")
		}
		if h.URL != "" && h.Secret == "" {
			p.Add("/policy/hook", "missing member secret: requests are signed with it")
		}
		checkDecider(p, "/policy/hook/url", h.URL)
	}
	for i, rule := range y.Rules {
		at := func(member string) string { return config.Pointer("policy", "rules", strconv.Itoa(i), member) }
		switch {
		case rule.Do == "" && len(rule.Redact) == 0:
			p.Add(at("do"), "want a decision, or redact")
		case rule.Via != "" && rule.Do != "ask":
			p.Add(at("via"), "is for rules with \"do\": \"ask\"")
		case rule.Unredactable != "" && !slices.ContainsFunc(rule.Redact, isPointer):
			p.Add(at("unredactable"), "is for rules with JSON pointers in redact")
		case rule.Do == "hook" && y.Hook == nil:
			p.Add(at("do"), "the policy has no hook")
		}
	}
	checkNames(p, y.Rules)
}

// checkNames checks that names of rules differ.
func checkNames(p *config.Problems, rules []PolicyRule) {
	seen := map[string]int{}
	for i, rule := range rules {
		if first, ok := seen[rule.Name]; ok && rule.Name != "" {
			p.Add(config.Pointer("policy", "rules", strconv.Itoa(i), "name"),
				"got %q, which is the name of rules[%d] too", rule.Name, first)
		}
		seen[rule.Name] = i
	}
}
