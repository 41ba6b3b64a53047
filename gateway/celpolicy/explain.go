package celpolicy

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/policy"
)

// A Step is a rule that was evaluated for an action.
type Step struct {
	// Rule is the name of the rule, Do its decision, and Mode its mode.
	Rule, Do, Mode string
	Matches        bool
	// Err is why the rule could not be evaluated, nil if it could.
	Err error
}

// Explain returns the decision about an action, and the rules for its kind up to the deciding rule.
// It omits rules that match no action on the item.
func (p *Policy) Explain(ctx context.Context, a *policy.Action) (d policy.Decision, steps []Step) {
	d = p.decide(ctx, a, func(r *rule, matches bool, err error) {
		steps = append(steps, Step{Rule: r.Name, Do: r.Do, Mode: r.Mode, Matches: matches, Err: err})
	})
	return d, steps
}
