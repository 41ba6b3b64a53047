// Package policy is the screen of the web console with the rules of the policy, and with tests of
// rules.
package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/kept"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
)

// New returns the screen. ring contains the traffic for tests of a policy; nil without a record.
func New(ring *capture.Ring) *page.Screen {
	s := &screen{ring: ring}
	routes := []*page.Route{
		{Path: "/policy", Role: page.RoleViewer, AnyServer: true, Title: "Policy", Key: "y", Order: 45, View: s.view},
		{Path: "/policy/explain", Role: page.RoleOperator, AnyServer: true, Act: s.explain},
	}
	if ring != nil {
		routes = append(routes, &page.Route{Path: "/policy/compare", Role: page.RoleOperator, Act: s.compare})
	}
	return &page.Screen{Routes: routes}
}

// A screen contains the results of tests.
type screen struct {
	ring        *capture.Ring
	tests       kept.Store[test]
	comparisons kept.Store[comparison]
}

// A rule is a rule of the policy, as far as it is shown.
type rule struct {
	Name   string   `json:"name"`
	On     []string `json:"on"`
	When   string   `json:"when"`
	Do     string   `json:"do"`
	Via    string   `json:"via"`
	Mode   string   `json:"mode"`
	Reason string   `json:"reason"`
	Redact []string `json:"redact"`

	Place        int // in the order of the rules, from 1
	Decided, Dry int // hits of the last 24 hours
}

// Effect returns the decision of the rule and its redactions, in words.
func (r *rule) Effect() string {
	what := r.Do
	if len(r.Redact) > 0 {
		what = strings.TrimSpace(what + " redact")
	}
	if r.Via != "" {
		what += " via " + r.Via
	}
	return what
}

// Kind returns the class of a decision, which selects its colour and symbol.
func (r *rule) Kind() string { return kindOf(r.Do) }

// dryRun is the mode of a rule that decides nothing.
const dryRun = "dry-run"

// hits returns the hits of the rule in words. The caller must set Decided and Dry before.
func (r *rule) hits() string {
	switch {
	case r.Mode == dryRun:
		return fmt.Sprintf("%d would be decided", r.Dry)
	case r.Do == "":
		return ""
	case r.Dry > 0:
		return fmt.Sprintf("%s, %d as a dry run", count(r.Decided, "hit"), r.Dry)
	}
	return count(r.Decided, "hit")
}

// count returns a number of things in words. The plural of thing must end in s.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

func kindOf(do string) string {
	switch do {
	case "allow":
		return "ok"
	case "deny", "hide":
		return "bad"
	case "ask":
		return "warn"
	}
	return "idle"
}

// A policyPage is the data of policyBody.
type policyPage struct {
	Exists   bool // the settings contain a policy
	Default  string
	Rules    []rule
	Hook     bool
	Since    time.Time // when counting of the hits began
	Test     test
	Edited   comparison
	Servers  []string
	Callers  []string
	Kinds    []string
	Role     page.Role
	Recorded bool // a policy can be tested on recorded traffic
	Gone     bool // the result that the URL names is no longer kept
}

// kinds are the kinds of actions that a person can test without the result of a server.
var kinds = []string{"call", "list", "read", "get", "complete"}

// KindOfDefault returns the class of the decision without a matching rule.
func (p *policyPage) KindOfDefault() string { return kindOf(p.Default) }

// An inForce is the response of GET /policy.
type inForce struct {
	Policy json.RawMessage `json:"policy"`
	Hits   []struct {
		Rule    string `json:"rule"`
		Decided int    `json:"decided"`
		DryRun  int    `json:"dryRun"`
	} `json:"hits"`
	Since time.Time `json:"since"`
}

func (s *screen) view(r *page.Request) (*page.View, error) {
	var now inForce
	if err := r.Get("/policy", &now); err != nil {
		return nil, err
	}
	p := &policyPage{Since: now.Since, Role: r.Role, Kinds: kinds, Recorded: s.ring != nil, Exists: now.Policy != nil}
	if err := p.setPolicy(&now); err != nil {
		return nil, err
	}
	rows, err := servers.List(r)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		p.Servers = append(p.Servers, rows[i].Name)
	}
	if p.Callers, err = callers(r); err != nil {
		return nil, err
	}
	q, found := r.URL.Query(), true
	p.Test = test{On: "call", Server: q.Get("server"), Tool: q.Get("tool"), Arguments: "{}"}
	if id := q.Get("test"); id != "" {
		if t, ok := s.tests.Get(id); ok {
			p.Test = t
		} else {
			found = false
		}
	}
	p.Edited = comparison{Text: editable(now.Policy)}
	if id := q.Get("compare"); id != "" {
		if c, ok := s.comparisons.Get(id); ok {
			p.Edited = c
		} else {
			found = false
		}
	}
	p.Gone = !found
	fragments := []page.Fragment{{ID: "rules", Body: rulesPart(p)}}
	return &page.View{Body: policyBody(p), Fragments: fragments}, nil
}

// setPolicy sets the rules with their hits.
func (p *policyPage) setPolicy(now *inForce) error {
	var policy struct {
		Default string          `json:"default"`
		Rules   []rule          `json:"rules"`
		Hook    json.RawMessage `json:"hook"`
	}
	if len(now.Policy) > 0 {
		if err := json.Unmarshal(now.Policy, &policy); err != nil {
			return fmt.Errorf("read the policy: %w", err)
		}
	}
	p.Default, p.Rules, p.Hook = policy.Default, policy.Rules, len(policy.Hook) > 0
	p.Default = cmp.Or(p.Default, "allow")
	for i := range p.Rules {
		x := &p.Rules[i]
		x.Place = i + 1
		if x.Name == "" {
			x.Name = fmt.Sprintf("rules[%d]", i)
		}
		for _, hit := range now.Hits {
			if hit.Rule == x.Name {
				x.Decided, x.Dry = hit.Decided, hit.DryRun
			}
		}
	}
	return nil
}

// emptyPolicy is the text of the editor of a gateway without a policy.
const emptyPolicy = `{
  "default": "allow",
  "rules": [
    {"name": "no-deletes", "on": ["call"], "when": "tool.name.startsWith('delete_')", "do": "deny"}
  ]
}`

// editable returns the text of the editor.
func editable(policy json.RawMessage) string {
	if len(policy) == 0 {
		return emptyPolicy
	}
	return page.Indent(policy)
}

// maxCallers limits the callers that the form suggests.
const maxCallers = 50

// callers returns the subjects of the last callers.
func callers(r *page.Request) (names []string, err error) {
	var l struct {
		Callers []struct {
			Subject string `json:"subject"`
		} `json:"callers"`
	}
	if err := r.Get("/callers", &l); err != nil {
		return nil, err
	}
	for _, c := range l.Callers {
		if c.Subject != "" && len(names) < maxCallers && !slices.Contains(names, c.Subject) {
			names = append(names, c.Subject)
		}
	}
	return names, nil
}
