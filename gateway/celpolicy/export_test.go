package celpolicy

import (
	"context"
	"math"
	"time"

	"cel.dev/cel-go/interpreter"

	"github.com/patchbay-mcp/patchbay/host/policy"
)

// DecideEach decides by evaluating each rule as it was compiled, with all values, and without a plan.
func (p *Policy) DecideEach(ctx context.Context, a *policy.Action) (d policy.Decision) {
	d.Do = policy.OutcomeAllow
	act := &activation{policy: &Policy{}, action: a, size: math.MaxInt32}
	act.frame, _ = interpreter.NewExecutionFrame(act)
	act.plan = act.policy.newPlan(act, a.Kind)
	for _, r := range p.byKind[a.Kind] {
		matches, err := r.matches(act)
		if matches && p.apply(ctx, r, a, err, &d) {
			return d
		}
	}
	p.applyStandard(a, &d)
	return d
}

// WithHookTime bounds how long the hook of a policy may take.
func WithHookTime(p *Policy, limit time.Duration) *Policy {
	p.external.limit = limit
	return p
}

// Decode decodes an object of which only some members are read.
func Decode(raw []byte, names ...string) map[string]any {
	of := memberNames{}
	for _, name := range names {
		of[name] = true
	}
	return of.decode(raw)
}

// DecodeAll decodes an object.
func DecodeAll(raw []byte) map[string]any { return objectOf(raw) }
