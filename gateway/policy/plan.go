package policy

import (
	"math"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/patchbay-mcp/patchbay/host"
)

const (
	// maxPlans bounds the plans that are kept.
	maxPlans = 10_000
	// maxPlanKey bounds the method and the name or URI of a plan that is kept, in bytes: callers choose them.
	maxPlanKey = 1 << 10
)

// A planKey is what the rules for requests that differ in nothing else depend on. Callers are shared by
// the requests of a view.
type planKey struct {
	caller                 *host.Caller
	kind                   host.ActionKind
	method, server, target string
	digest                 [32]byte
}

// maxPlanned bounds the values of shared expressions that are kept in plans: 16 MiB.
const maxPlanned = 1 << 20

// A plan has the rules that may match, in order: the others do not match any request for the item. Most
// rules name a server or a tool, so that few are left. It is not changed.
type plan struct {
	rules  []plannedRule
	static [len(variables)]any // values of variables that are the same for all requests
	values []ref.Val           // of static shared expressions that the rules need
	size   int                 // of static, in bytes
}

// A plannedRule is a rule with what most evaluations need of it in one place, for the cache of the
// processor.
type plannedRule struct {
	quick     interpreter.InterpretableV2
	cheapUpTo int
	rule      *rule
}

// planFor returns the plan for an action, and prepares the evaluation of its rules.
func (p *Policy) planFor(a *host.Action, act *activation) *plan {
	key := planKey{a.Caller, a.Kind, a.Method, a.Server, a.Target, a.Digest}
	p.mu.RLock()
	known := p.plans[key]
	p.mu.RUnlock()
	if known == nil {
		known = p.newPlan(act, a.Kind)
		p.keep(key, known)
	}
	act.plan = known
	if len(known.rules) == 0 {
		return known
	}
	if frame, err := interpreter.NewExecutionFrame(act); err == nil {
		act.frame = frame
	}
	act.size = known.size + len(a.Arguments) + len(a.Result) + len(a.Question) +
		len(a.Client.Name) + len(a.Client.Version)
	for _, server := range a.Recent {
		act.size += len(server) + 1
	}
	return known
}

func (p *Policy) newPlan(act *activation, kind host.ActionKind) *plan {
	made := &plan{}
	act.plan = &plan{values: make([]ref.Val, p.static)} // while it is made
	for _, r := range p.byKind[kind] {
		may, always := r.mayMatch(act)
		if may {
			made.rules = append(made.rules, plannedRule{r.quick, r.cheapUpTo, r})
		}
		if always && r.Do != "" && r.Mode != "dry-run" {
			break
		}
	}
	for i, v := range variables {
		if v.field == 0 {
			made.static[i], _ = act.ResolveName(v.name)
			made.size += sizeOf(made.static[i])
		}
	}
	for _, r := range made.rules {
		for _, of := range r.rule.needs {
			if made.values == nil {
				made.values = make([]ref.Val, p.static)
			}
			made.values[of.index] = act.valueOf(of)
		}
	}
	return made
}

// sizeOf returns a size that no string in a value exceeds, and no number of its members or elements.
func sizeOf(value any) int {
	switch value := value.(type) {
	case string:
		return len(value)
	case []string:
		n := len(value)
		for _, text := range value {
			n += len(text)
		}
		return n
	case []any:
		n := len(value)
		for _, element := range value {
			n += sizeOf(element)
		}
		return n
	case map[string]any:
		n := len(value)
		for name, member := range value {
			n += len(name) + sizeOf(member)
		}
		return n
	case nil, bool, int64, float64:
		return 1
	}
	return math.MaxInt32 // unknown: claims may be of any type
}

func (p *Policy) keep(key planKey, made *plan) {
	if len(key.method)+len(key.target) > maxPlanKey {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.plans) >= maxPlans || p.planned+len(made.values) > maxPlanned {
		p.plans, p.planned = map[planKey]*plan{}, 0
	}
	p.plans[key] = made
	p.planned += len(made.values)
}

// skip returns the index of the next rule that is not known to not match: it may match or fail.
func (a *activation) skip(i int) (next int) {
	if next = i; a.frame == nil {
		return next
	}
	defer func() { _ = recover() }() // the program of the rule turns it into a failure
	for ; next < len(a.plan.rules); next++ {
		r := &a.plan.rules[next]
		if r.quick == nil || a.size > r.cheapUpTo || r.quick.Exec(a.frame) != types.False {
			break
		}
	}
	return next
}

// unknowns are the variables that differ between requests.
var unknowns = func() (patterns []*cel.AttributePatternType) {
	for _, v := range variables {
		if v.field != 0 {
			patterns = append(patterns, cel.AttributePattern(v.name))
		}
	}
	return patterns
}()

// mayMatch reports whether a rule matches some requests for the item of an action, and whether it
// matches all.
func (r *rule) mayMatch(act *activation) (may, always bool) {
	var out ref.Val
	switch {
	case r.When == "":
		return true, true
	case r.quick != nil:
		out = act.probe(r.quick)
	default:
		program, err := r.program()
		partial, failed := cel.PartialVars(act, unknowns...)
		if err == nil && failed == nil {
			out, _, _ = program.Eval(partial)
		}
	}
	if b, ok := out.(types.Bool); ok {
		return bool(b), bool(b)
	}
	return true, false // the evaluation of the request decides
}

// probe evaluates an expression without the variables that differ between requests.
func (a *activation) probe(node interpreter.InterpretableV2) (out ref.Val) {
	defer func() {
		a.probing = false
		if recover() != nil {
			out = nil
		}
	}()
	a.probing = true
	return interpreter.EvalActivation(a, node.Exec)
}
