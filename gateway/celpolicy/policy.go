// Package celpolicy decides about the actions of a host's callers by the rules of a configuration.
//
// Rules are expressions in CEL (https://cel.dev) about the caller, the client, the server, the
// tool, its arguments and its result, such as tool.annotations.destructive == true. They are
// compiled once. The first rule that matches decides.
//
// [New] returns the [policy.Policy] of a file, for [host.Options].
package celpolicy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/interpreter"

	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// maxCost limits the evaluation of a rule, in units of CEL: about one unit per operation, and per
// ten bytes that it reads.
const maxCost = 10_000

// Options configures a [Policy]. The zero value is valid.
type Options struct {
	// Lookup returns the keys that sign requests for the hook, by the names that the configuration
	// contains. Default: os.LookupEnv.
	Lookup func(name string) (string, bool)
	// NoHook denies in place of the hook, which is neither asked nor started, so that decisions
	// have no effect. Default: the hook decides.
	NoHook bool
}

// A Policy decides by the rules of a configuration. It is safe for concurrent use.
type Policy struct {
	rules    []*rule
	byKind   map[policy.ActionKind][]*rule
	needs    map[policy.ActionKind]policy.Fields
	standard policy.Outcome // for requests that no rule matches
	epoch    uint64
	external *external
	// members are the members of variables that rules read, by variable; nil means all members.
	members [len(variables)]memberNames

	mu    sync.RWMutex // guards the field below
	plans map[planKey]*plan
}

var _ policy.Policy = (*Policy)(nil)

// A rule is a compiled rule.
type rule struct {
	gatewayconfig.PolicyRule
	id           string
	do           policy.Outcome
	asksExternal bool
	redacts      []policy.Redaction
	reads        policy.Fields
	program      cel.Program // nil without an expression
	// bounded is the program that measures its cost, for actions larger than cheapUpTo: measuring
	// takes longer than most rules. It is nil if no action can cost too much.
	bounded   cel.Program
	cheapUpTo int // in bytes
}

var requests = []policy.ActionKind{policy.ActionCall, policy.ActionRead, policy.ActionGet, policy.ActionComplete,
	policy.ActionEvent, policy.ActionOther}

// maxErrors limits the invalid rules in an error, like the other invalid settings.
const maxErrors = 5

// New returns the policy of a file, or nil if its settings contain no policy. The error contains
// the line and the column of each invalid rule, up to five.
func New(f *config.File, o *Options) (*Policy, error) {
	settings, err := gatewayconfig.Read(f)
	if err != nil || settings.Policy == nil {
		return nil, err
	}
	if o == nil {
		o = &Options{}
	}
	lookup := o.Lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	given := settings.Policy
	p := &Policy{byKind: map[policy.ActionKind][]*rule{}, needs: map[policy.ActionKind]policy.Fields{},
		members: noMembers(), plans: map[planKey]*plan{}, standard: outcomes[given.Default]}
	text, err := json.Marshal(given)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	p.epoch = binary.BigEndian.Uint64(sum[:])
	if o.NoHook && given.Hook != nil {
		p.external = &external{unused: true}
	} else if p.external, err = newExternal(given.Hook, lookup); err != nil {
		return nil, f.SettingError([]string{"policy", "hook", "secret"}, 0, err.Error())
	}
	env, err := newEnv()
	if err != nil {
		return nil, err
	}
	if err := p.addRules(f, env, given.Rules); err != nil {
		return nil, err
	}
	return p, nil
}

// addRules compiles and adds the rules of a file.
func (p *Policy) addRules(f *config.File, env *cel.Env, given []gatewayconfig.PolicyRule) error {
	var errs []error
	for i := range given {
		r, err := newRule(env, i, &given[i], &p.members)
		if err == nil {
			p.add(r)
			continue
		}
		at := []string{"policy", "rules", strconv.Itoa(i), err.member}
		if errs = append(errs, f.SettingError(at, err.offset, err.text)); len(errs) == maxErrors {
			break
		}
	}
	return errors.Join(errs...)
}

var outcomes = map[string]policy.Outcome{"": policy.OutcomeAllow, "allow": policy.OutcomeAllow,
	"ask": policy.OutcomeAsk, "deny": policy.OutcomeDeny, "hide": policy.OutcomeHide}

// add adds a rule for the kinds of actions that it is about.
func (p *Policy) add(r *rule) {
	p.rules = append(p.rules, r)
	for _, kind := range r.kinds() {
		p.byKind[kind] = append(p.byKind[kind], r)
		p.needs[kind] |= r.reads
		if r.asksExternal {
			p.needs[kind] |= policy.FieldExternal
		}
	}
}

// kinds returns the kinds of actions that a rule is about. An item that is hidden is not listed
// either.
func (r *rule) kinds() (kinds []policy.ActionKind) {
	for _, on := range r.On {
		kinds = append(kinds, policy.ActionKind(on))
	}
	switch {
	case r.Do == "hide" && len(kinds) == 0:
		return append(kinds, append([]policy.ActionKind{policy.ActionList}, requests...)...)
	case r.Do == "hide" && !slices.Contains(kinds, policy.ActionList):
		return append(kinds, policy.ActionList)
	case len(kinds) == 0 && len(r.Redact) > 0:
		return []policy.ActionKind{policy.ActionResult}
	case len(kinds) == 0:
		return requests
	}
	return kinds
}

// Needs returns the members of actions of a kind that rules read.
func (p *Policy) Needs(k policy.ActionKind) policy.Fields { return p.needs[k] }

// Epoch returns a number of the rules: it is the same in every process.
func (p *Policy) Epoch() uint64 { return p.epoch }

// Decide returns the decision of the first rule that matches. A rule that fails, for example
// because it reads an argument that the call lacks, counts as a match for ask, deny and hide, and
// not for allow. A failure of the hook denies.
func (p *Policy) Decide(ctx context.Context, a *policy.Action) policy.Decision {
	return p.decide(ctx, a, nil)
}

// decide decides, and passes the outcome of each rule that is evaluated to trace.
func (p *Policy) decide(
	ctx context.Context, a *policy.Action, trace func(r *rule, matches bool, err error),
) (d policy.Decision) {
	d.Do = policy.OutcomeAllow
	act := &activation{policy: p, action: a}
	frame, err := interpreter.NewExecutionFrame(act)
	if err != nil {
		return policy.Decision{Do: policy.OutcomeDeny, Reason: err.Error()}
	}
	defer frame.Close()
	act.frame = frame
	for _, r := range p.planFor(a, act).rules {
		matches, err := r.matches(act)
		if trace != nil {
			trace(r, matches, err)
		}
		if matches && p.apply(ctx, r, a, err, &d) {
			return d
		}
	}
	p.applyStandard(a, &d)
	return d
}

// applyStandard applies the decision about actions that no rule decides.
func (p *Policy) applyStandard(a *policy.Action, d *policy.Decision) {
	if !slices.Contains(requests, a.Kind) {
		return
	}
	if d.Do = p.standard; d.Do != policy.OutcomeAllow {
		d.Reason = "no rule allows it"
	}
}

// apply applies a rule that matches. It reports whether the rule decided.
func (p *Policy) apply(ctx context.Context, r *rule, a *policy.Action, failed error, d *policy.Decision) bool {
	if r.Mode == "dry-run" {
		what := cmp.Or(r.Do, "redact")
		d.DryRun = append(d.DryRun, what+" by rule "+r.Name)
		return false
	}
	d.Redact = append(d.Redact, r.redacts...)
	if r.Do == "" {
		return false
	}
	d.Do, d.Rule, d.RuleID, d.Reason, d.Channel = r.do, r.Name, r.id, r.Reason, policy.Channel(r.Via)
	if failed != nil && d.Reason == "" {
		d.Reason = "the rule cannot be evaluated: " + failed.Error()
	}
	if r.asksExternal {
		p.external.decide(ctx, a, d)
	}
	return true
}

// identify returns an id that changes with the rule.
func identify(r *gatewayconfig.PolicyRule) string {
	text, err := json.Marshal(r)
	if err != nil {
		text = fmt.Append(nil, r)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
