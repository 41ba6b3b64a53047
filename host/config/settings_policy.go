package config

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/netx"
)

// A Policy decides what callers may do. Package gateway/celpolicy compiles it.
type Policy struct {
	// Default decides about requests that no rule matches: "allow", "ask" or "deny". Default: "allow".
	Default string `json:"default"`
	// Rules decide in order: the first that matches does.
	Rules []PolicyRule `json:"rules,omitempty"`
	// Hook decides where a rule says so.
	Hook *PolicyHook `json:"hook,omitempty"`
}

// A PolicyRule is one rule.
type PolicyRule struct {
	// Name is shown to users, and in records. Default: its place, such as "rules[2]".
	Name string `json:"name,omitempty"`
	// On are the kinds of actions that the rule is for. Default: "result" with Redact, else all requests.
	On []string `json:"on,omitempty"`
	// When is an expression in CEL. Default: always.
	When string `json:"when,omitempty"`
	// Do is "allow", "ask", "deny", "hide" or "hook"; empty for a rule that only redacts.
	Do string `json:"do,omitempty"`
	// Via is the only channel for "ask": "client", "console" or "webhook".
	Via string `json:"via,omitempty"`
	// Mode is "dry-run" for a rule whose decision is only recorded.
	Mode string `json:"mode,omitempty"`
	// Reason is shown to the caller.
	Reason string `json:"reason,omitempty"`
	// Redact are parts of results that the caller does not receive: "secrets" or JSON pointers.
	Redact []string `json:"redact,omitempty"`
	// Unredactable is "deny" to deny a result to which the pointers of Redact cannot be applied,
	// such as text that is not JSON, or "pass". Default: "pass". It requires pointers in Redact.
	Unredactable string `json:"unredactable,omitempty"`
}

// A PolicyHook is another program that decides.
type PolicyHook struct {
	// URL receives the action as JSON by POST.
	URL string `json:"url,omitempty"`
	// Command receives it on standard input.
	Command []string `json:"command,omitempty"`
	// Secret is the name of a variable of the environment with the key that signs the requests for URL.
	Secret string `json:"secret,omitempty"`
}

type policyJSON struct {
	Default string `json:"default" jsonschema:"decision without a matching rule,enum=allow|ask|deny,default=allow"`

	Rules []ruleJSON `json:"rules,omitzero" jsonschema:"rules in order: the first that matches decides,maxItems=1000"`

	Hook *hookJSON `json:"hook,omitzero" jsonschema:"program that decides for rules with do hook"`
}

type ruleJSON struct {
	Name string `json:"name,omitzero" jsonschema:"name for users and records,pattern=^[A-Za-z0-9._-]{1,64}$"`

	On []string `json:"on,omitzero" jsonschema:"kinds,enum=list|call|read|get|complete|other|result|question"`

	When string `json:"when,omitzero" jsonschema:"expression in CEL,maxLength=8192"`

	Do string `json:"do,omitzero" jsonschema:"decision,enum=allow|ask|deny|hide|hook"`

	Via string `json:"via,omitzero" jsonschema:"only channel for ask,enum=client|console|webhook"`

	Mode string `json:"mode,omitzero" jsonschema:"dry-run: record the decision only,enum=enforce|dry-run"`

	Reason string `json:"reason,omitzero" jsonschema:"reason that the caller sees,maxLength=512"`

	Redact []string `json:"redact,omitzero" jsonschema:"secrets or JSON pointers,pattern=^(secrets|(/[^/]*)+)$"`

	Unredactable string `json:"unredactable,omitzero" jsonschema:"unredactable results,enum=pass|deny"`
}

type hookJSON struct {
	URL string `json:"url,omitzero" jsonschema:"URL that receives each action by POST,pattern=^https?://"`

	Command []string `json:"command,omitzero" jsonschema:"program that receives each action on standard input"`

	Secret string `json:"secret,omitzero" jsonschema:"variable with the key,pattern=^[A-Za-z_][A-Za-z0-9_]*$"`
}

// decider checks the URL of a policy hook or webhook. It must be encrypted or local, because
// requests to it contain secrets and its answers are decisions.
func (r *settingsReader) decider(at, text string) {
	u, err := url.Parse(text)
	if err != nil || text != "" && (u.Host == "" || u.Scheme != "https" && !netx.IsLoopback(u.Hostname())) {
		r.problem(at, "got %.100q, want an https URL, or http with a loopback address", text)
	}
}

func isPointer(redact string) bool { return strings.HasPrefix(redact, "/") }

// policy returns the policy of the settings, nil if there is none.
func (r *settingsReader) policy(given *policyJSON) *Policy {
	if given == nil {
		return nil
	}
	p := &Policy{Default: given.Default}
	for _, rule := range given.Rules {
		p.Rules = append(p.Rules, PolicyRule(rule))
	}
	if given.Hook != nil {
		h := PolicyHook(*given.Hook)
		if p.Hook = &h; (h.URL == "") == (len(h.Command) == 0) {
			r.problem("/policy/hook", "want either url or command")
		}
		if h.URL != "" && h.Secret == "" {
			r.problem("/policy/hook", "missing member secret: requests are signed with it")
		}
		r.decider("/policy/hook/url", h.URL)
	}
	for i, rule := range p.Rules {
		at := func(member string) string { return pointer("policy", "rules", strconv.Itoa(i), member) }
		switch {
		case rule.Do == "" && len(rule.Redact) == 0:
			r.problem(at("do"), "want a decision, or redact")
		case rule.Via != "" && rule.Do != "ask":
			r.problem(at("via"), "is for rules with \"do\": \"ask\"")
		case rule.Unredactable != "" && !slices.ContainsFunc(rule.Redact, isPointer):
			r.problem(at("unredactable"), "is for rules with JSON pointers in redact")
		case rule.Do == "hook" && p.Hook == nil:
			r.problem(at("do"), "the policy has no hook")
		}
	}
	if len(p.Rules) > 0 && slices.ContainsFunc(p.Rules, func(a PolicyRule) bool { return a.Name != "" }) {
		r.uniqueRules(p.Rules)
	}
	return p
}

func (r *settingsReader) uniqueRules(rules []PolicyRule) {
	seen := map[string]int{}
	for i, rule := range rules {
		if first, ok := seen[rule.Name]; ok && rule.Name != "" {
			r.problem(pointer("policy", "rules", strconv.Itoa(i), "name"), "got %q, which is the name of rules[%d] too",
				rule.Name, first)
		}
		seen[rule.Name] = i
	}
}

// SettingError returns an error about a member of the settings, with the file, the line and the column.
// at is the path of the member, and offset the number of bytes from the start of its text.
func (f *File) SettingError(at []string, offset int, text string) error {
	r := &settingsReader{file: f}
	place := pointer(at...)
	if f.text == nil || offset == 0 {
		r.problem(place, "%s", text)
		return r.problems[0]
	}
	plain := f.text
	if p, err := Plain(f.Source); err == nil {
		plain = p
	}
	begin := Find(plain, "/patchbay"+place) // of the name of the member
	if begin >= 0 {
		_, value, _ := strings.Cut(string(plain[begin:]), ":")
		begin = len(plain) - len(strings.TrimLeft(value, " \t\r\n"))
	}
	if begin < 0 || begin+1+offset > len(plain) || strings.ContainsRune(string(plain[begin+1:begin+1+offset]), '\\') {
		r.problem(place, "%s", text) // escapes move what follows
		return r.problems[0]
	}
	where := Position(plain, begin+1+offset)
	if f.Path != "" {
		where = f.Path + ": " + where
	}
	return fmt.Errorf("%s: %s: %s", where, memberPath("/patchbay"+place), text)
}
