package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func policyRoutes() []*adminRoute {
	return []*adminRoute{
		getRoute("/policy", "Policy that is in force, and how often its rules matched", (*adminRequest).policy),
		postRoute("/policy", "explain", "Show which rule decides about an action, and why", (*adminRequest).explain),
		postRoute("/policy", "compare", "Compare the decisions of another policy with the policy in force",
			(*adminRequest).comparePolicy),
	}
}

// An Explainer returns the decision of a policy about an action, and the rules up to the deciding
// rule.
type Explainer func(ctx context.Context, a *policy.Action) (policy.Decision, []RuleStep)

// A RuleStep is a rule that was evaluated.
type RuleStep struct {
	Rule    string `json:"rule"`
	Do      string `json:"do,omitzero"`
	Mode    string `json:"mode,omitzero"`
	Matches bool   `json:"matches"`
	// Error is the reason why the rule could not be evaluated.
	Error string `json:"error,omitzero"`
}

// A policyPage is the policy that is in force.
type policyPage struct {
	Policy json.RawMessage `json:"policy,omitzero" jsonschema:"member policy of the settings; absent without it"`
	Hits   []ruleHit       `json:"hits" jsonschema:"of rules that matched a request in the last 24 hours"`
	Since  time.Time       `json:"since" jsonschema:"when counting began"`
}

// A ruleHit counts the requests that a rule matched.
type ruleHit struct {
	Rule    string `json:"rule"`
	Decided int    `json:"decided" jsonschema:"requests about which the rule decided"`
	DryRun  int    `json:"dryRun" jsonschema:"requests about which it would have decided without dry-run"`
}

func (r *adminRequest) policy(*noQuery) (*policyPage, error) {
	if r.admin.opts.Policy == nil {
		return nil, unsupported("showing the policy")
	}
	text, err := r.admin.opts.Policy(r.Context())
	if err != nil {
		return nil, err
	}
	now := time.Now()
	since := r.admin.started
	if first := now.Add(-hitHours * time.Hour); since.Before(first) {
		since = first
	}
	return &policyPage{text, r.admin.events.ruleHits(now), since.UTC()}, nil
}

// An explainRequest is an action that a policy decides about.
type explainRequest struct {
	explainAction
	Policy json.RawMessage `json:"policy,omitzero" jsonschema:"in place of the policy in force, without its hook"`
}

// An explainAction is an action of a caller.
type explainAction struct {
	On         string          `json:"on,omitzero" jsonschema:"enum=call|read|get|complete|event|list|result|question"`
	Server     string          `json:"server"`
	Target     string          `json:"target" jsonschema:"name or URI that the server uses"`
	Arguments  json.RawMessage `json:"args,omitzero"`
	Definition json.RawMessage `json:"definition,omitzero" jsonschema:"default: the approved definition of a tool"`
	Result     json.RawMessage `json:"result,omitzero"`
	Question   json.RawMessage `json:"question,omitzero"`
	Recent     []string        `json:"recent,omitzero" jsonschema:"servers whose results the caller has received"`
	Subject    string          `json:"subject,omitzero" jsonschema:"of the caller; default: the local user"`
	Scopes     []string        `json:"scopes,omitzero"`
}

var explainMethods = map[string]string{"call": "tools/call", "read": "resources/read", "get": "prompts/get",
	"complete": "completion/complete", "event": "events/stream",
	"list": "tools/list", "result": "tools/call", "question": "tools/call"}

// action returns the action of a request. tools are the approved definitions.
func (a *explainAction) action(tools definitions) *policy.Action {
	on := cmp.Or(a.On, "call")
	res := &policy.Action{Kind: policy.ActionKind(on), Method: explainMethods[on], Caller: &policy.Caller{},
		Server: a.Server, Target: a.Target, Definition: a.Definition, Arguments: a.Arguments, Result: a.Result,
		Question: a.Question, Recent: a.Recent, Time: time.Now()}
	if a.Subject != "" {
		res.Caller.Principal = &mcp.Principal{Subject: a.Subject, Scopes: slices.Clone(a.Scopes)}
	}
	if len(res.Definition) == 0 && (res.Method == "tools/call" || res.Method == "tools/list") {
		res.Definition = tools[toolName{a.Server, a.Target}]
	}
	return res
}

// definitions are the approved definitions of tools.
type definitions map[toolName]json.RawMessage

type toolName struct{ server, tool string }

// approvedTools returns the approved definitions of tools. If identical servers have the same name
// in the configuration, the last of them counts.
func (r *adminRequest) approvedTools() (definitions, error) {
	all := definitions{}
	state := r.host().Operator().State()
	if state == nil {
		return all, nil
	}
	pins, err := pin.List(r.Context(), state)
	for _, p := range pins {
		if p.Kind == pin.Tool && len(p.Approved) > 0 {
			all[toolName{p.Server, p.Name}] = p.Approved[0].JSON
		}
	}
	return all, err
}

// An explanation is a decision of the policy.
type explanation struct {
	Do      string     `json:"do"`
	Rule    string     `json:"rule,omitzero" jsonschema:"absent for the default"`
	Reason  string     `json:"reason,omitzero"`
	Channel string     `json:"channel,omitzero"`
	DryRun  []string   `json:"dryRun"`
	Rules   []RuleStep `json:"rules" jsonschema:"those that were evaluated"`
}

func (r *adminRequest) explain(body *explainRequest) (*explanation, error) {
	if r.admin.opts.Explain == nil {
		return nil, unsupported("explaining decisions")
	}
	explain, err := r.admin.opts.Explain(r.Context(), body.Policy)
	if err != nil {
		return nil, err
	}
	tools, err := r.approvedTools()
	if err != nil {
		return nil, err
	}
	d, steps := explain(r.Context(), body.action(tools))
	return &explanation{d.Do.String(), d.Rule, d.Reason, string(d.Channel), append([]string{}, d.DryRun...),
		append([]RuleStep{}, steps...)}, nil
}

// A policyTest is another policy, and the actions for which it is compared with the policy in
// force.
type policyTest struct {
	Policy  json.RawMessage `json:"policy" jsonschema:"in the form of the member policy of the settings"`
	Actions []explainAction `json:"actions" jsonschema:"minItems=1,maxItems=1000"`
}

// A policyComparison lists the actions that another policy decides differently.
type policyComparison struct {
	Actions int              `json:"actions" jsonschema:"number of actions"`
	Changed []decisionChange `json:"changed" jsonschema:"in the order of the request"`
}

// A decisionChange is an action with two different decisions.
type decisionChange struct {
	Index int     `json:"index" jsonschema:"of the action in the request"`
	Now   verdict `json:"now" jsonschema:"of the policy that is in force"`
	Then  verdict `json:"then" jsonschema:"of the policy of the request"`
}

// A verdict is a decision without its steps.
type verdict struct {
	Do      string `json:"do"`
	Rule    string `json:"rule,omitzero" jsonschema:"absent for the default"`
	Reason  string `json:"reason,omitzero"`
	Channel string `json:"channel,omitzero"`
}

// noRules is the policy of a configuration without a policy.
var noRules = json.RawMessage(`{}`)

// comparePolicy evaluates both policies without their hooks, so it has no effect.
func (r *adminRequest) comparePolicy(body *policyTest) (*policyComparison, error) {
	if r.admin.opts.Explain == nil || r.admin.opts.Policy == nil {
		return nil, unsupported("comparing policies")
	}
	text, err := r.admin.opts.Policy(r.Context())
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		text = noRules
	}
	now, err := r.admin.opts.Explain(r.Context(), text)
	if err != nil {
		return nil, err
	}
	then, err := r.admin.opts.Explain(r.Context(), body.Policy)
	if err != nil {
		return nil, problemf(http.StatusUnprocessableEntity, "invalid_policy", "%v", err)
	}
	tools, err := r.approvedTools()
	if err != nil {
		return nil, err
	}
	res := &policyComparison{Actions: len(body.Actions), Changed: []decisionChange{}}
	for i := range body.Actions {
		if r.Context().Err() != nil {
			return nil, context.Cause(r.Context())
		}
		a := body.Actions[i].action(tools)
		before, _ := now(r.Context(), a)
		after, _ := then(r.Context(), a)
		if before.Do != after.Do || before.Channel != after.Channel || !slices.Equal(before.Redact, after.Redact) {
			res.Changed = append(res.Changed, decisionChange{i, verdictOf(&before), verdictOf(&after)})
		}
	}
	return res, nil
}

func verdictOf(d *policy.Decision) verdict {
	return verdict{d.Do.String(), d.Rule, d.Reason, string(d.Channel)}
}
