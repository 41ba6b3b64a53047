package host

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// maxDecisions bounds the decisions that are kept of one view.
	maxDecisions = 10_000
	// maxDecisionKey bounds the method and the name or URI of a decision that is kept, in bytes.
	maxDecisionKey = 1 << 10
)

// A decisionCache has the decisions about items that depend on nothing else. It is safe for concurrent
// use.
type decisionCache struct {
	mu      sync.RWMutex // guards the fields below
	epoch   uint64
	decided map[decisionKey]policy.Decision
}

type decisionKey struct {
	kind                   policy.ActionKind
	method, server, target string
	digest                 [32]byte
}

func (c *decisionCache) get(k *decisionKey, epoch uint64) (d policy.Decision, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.epoch != epoch {
		return d, false
	}
	d, ok = c.decided[*k]
	return d, ok
}

func (c *decisionCache) put(k *decisionKey, epoch uint64, d policy.Decision) {
	if len(k.method)+len(k.target) > maxDecisionKey { // callers choose them
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.decided == nil || c.epoch != epoch || len(c.decided) >= maxDecisions {
		c.epoch, c.decided = epoch, map[decisionKey]policy.Decision{}
	}
	c.decided[*k] = d
}

// SetPolicy replaces the policy, until [Host.Reload] with [Options.Configure] does. Requests that
// were sent before keep their decision; their results are decided by the new one.
func (h *Host) SetPolicy(p policy.Policy) {
	h.policy.Store(&p)
	h.mu.Lock()
	defer h.mu.Unlock()
	for v := range h.subscribed {
		v.schedule() // other items may be visible
	}
}

// currentPolicy returns the policy, nil if there is none.
func (h *Host) currentPolicy() policy.Policy {
	if p := h.policy.Load(); p != nil {
		return *p
	}
	return nil
}

// epoch returns the epoch of the policy, 0 without one.
func (h *Host) epoch() uint64 {
	if p := h.currentPolicy(); p != nil {
		return p.Epoch()
	}
	return 0
}

// action returns what a request does.
func (v *View) action(req *mcp.Request, r *call.Call) *policy.Action {
	a := &policy.Action{Kind: r.Kind, Method: req.Method, Caller: v.caller, Server: poolOf(r).Name(), Target: r.Target,
		Definition: r.Definition()}
	if r.Item != nil {
		a.Digest = r.Item.Digest
	}
	a.Arguments = argumentsOf(req)
	return a
}

// argumentsOf returns the arguments of a request, or nil if there are none. For a method without
// the member arguments, they are the params, except members that other fields of an [policy.Action]
// contain.
func argumentsOf(req *mcp.Request) json.RawMessage {
	elsewhere := []string{"_meta", "requestState"}
	switch req.Method {
	case methodToolsCall, "prompts/get":
		arguments, _ := req.Param("arguments")
		return arguments
	case "resources/read", methodSkillGet, methodDirectoryRead:
		elsewhere = append(elsewhere, "uri", "inputResponses")
	}
	params := req.Params
	for _, key := range elsewhere {
		if jsonscan.Has(params, key) {
			params = jsonscan.Without(params, key)
		}
	}
	for range jsonscan.Members(params) {
		return params
	}
	return nil
}

// ask returns the decision of a policy. Action members that it does not need are not set.
func (v *View) ask(ctx context.Context, p policy.Policy, req *mcp.Request, a *policy.Action) policy.Decision {
	needs, key := p.Needs(a.Kind), decisionKey{a.Kind, a.Method, a.Server, a.Target, a.Digest}
	epoch := p.Epoch()
	if needs == 0 {
		if d, ok := v.decisions.get(&key, epoch); ok {
			return d
		}
	}
	if needs&policy.FieldClient != 0 && req != nil {
		a.Client = req.ClientInfo()
	}
	if needs&policy.FieldTime != 0 {
		a.Time = time.Now()
	}
	if needs&policy.FieldRecent != 0 {
		a.Recent = v.host.recent.Servers(v.principal)
	}
	d := p.Decide(ctx, a)
	if needs == 0 {
		v.decisions.put(&key, epoch, d)
	}
	return d
}

// kept returns the decision about an action of another kind, if one is kept.
func (v *View) kept(p policy.Policy, kind policy.ActionKind, a *policy.Action) (d policy.Decision, ok bool) {
	if p.Needs(kind) != 0 {
		return d, false
	}
	return v.decisions.get(&decisionKey{kind, a.Method, a.Server, a.Target, a.Digest}, p.Epoch())
}

// isVisible reports whether the policy allows an item in lists of the caller.
func (v *View) isVisible(p policy.Policy, item *catalogue.Item) bool {
	a := &policy.Action{Kind: policy.ActionList, Method: item.Kind.Method(), Caller: v.caller, Server: item.Server,
		Target: item.Original, Definition: item.Raw, Digest: item.Digest}
	d := p.Decide(v.host.ctx, a)
	return d.Do == policy.OutcomeAllow || d.Do == policy.OutcomeAsk
}

// denied returns the error of a decision that refuses a request.
func (v *View) denied(req *mcp.Request, r *call.Call, d *policy.Decision) error {
	if d.Do == policy.OutcomeHide { // as if the item did not exist
		if r.Kind == policy.ActionRead {
			return mcp.NotFound(jsonscan.GetString(req.Params, "uri"))
		}
		if r.Item != nil {
			return unknownItem(r.Item.Kind, r.Item.Public)
		}
		return mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %s", req.Method)
	}
	return &hosterr.Error{Code: hosterr.CodeDenied, Server: poolOf(r).Name(), Err: refusalOf(d)}
}

// unknownItem returns the error of a request for an item that does not exist for the caller.
func unknownItem(kind catalogue.Kind, name string) error {
	return mcp.Errorf(mcp.CodeInvalidParams, "unknown %s %q", strings.TrimSuffix(kind.Member(), "s"), name)
}

// refusal returns the reason of a decision for the caller.
func refusalOf(d *policy.Decision) error {
	text := "denied"
	if d.Rule != "" {
		text += " by rule " + d.Rule
	}
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return hosterr.Public{Err: errors.New(text)}
}

// decideResult decides about the result or the error of a request, and about each of its questions. It
// returns what the caller receives.
func (v *View) decideResult(
	ctx context.Context, p policy.Policy, req *mcp.Request, a *policy.Action, res mcp.Result, failed error,
) (mcp.Result, error) {
	raw, isRaw := res.(mcp.RawResult)
	fault, isFault := errors.AsType[*mcp.Error](failed)
	resultType := raw.ResultType()
	switch {
	case failed != nil && !(isFault && fault.Remote()), failed == nil && !isRaw:
		return res, failed // there is no response of the server
	case isFault:
		raw = authorize.FaultResult(fault)
	case resultType == driver.ResultInputRequired:
		v.host.recent.Add(v.principal, a.Server)
		return v.decideQuestions(ctx, p, req, a, raw)
	}
	v.host.recent.Add(v.principal, a.Server)
	if !isFault && (a.Kind == policy.ActionOther || resultType == task.ResultType) { // a task may have questions
		if _, err := v.decideQuestions(ctx, p, req, a, raw); err != nil {
			return nil, err
		}
	}
	d, ok := v.kept(p, policy.ActionResult, a)
	if !ok {
		about := *a
		about.Kind, about.Result = policy.ActionResult, []byte(raw)
		d = v.ask(ctx, p, req, &about)
	}
	v.host.countDecision(policy.ActionResult, &d)
	switch {
	case d.Do != policy.OutcomeAllow:
		return nil, &hosterr.Error{Code: hosterr.CodeDenied, Server: a.Server, MayHaveRun: true, Err: refusalOf(&d)}
	case len(d.Redact) == 0:
		return res, failed
	}
	left, err := authorize.Redact(raw, d.Redact)
	switch {
	case err != nil:
		return nil, &hosterr.Error{Code: hosterr.CodeDenied, Server: a.Server, MayHaveRun: true, Err: err}
	case isFault:
		return nil, authorize.RedactedFault(fault, left)
	}
	return mcp.RawResult(left), nil
}

// decideQuestions decides about the questions of a server. One that is refused ends the request.
func (v *View) decideQuestions(
	ctx context.Context, p policy.Policy, req *mcp.Request, a *policy.Action, raw mcp.RawResult,
) (mcp.Result, error) {
	requests, _ := jsonscan.Get(raw, "inputRequests")
	if jsonscan.Kind(requests) != '{' {
		return raw, nil
	}
	for _, question := range jsonscan.Members(requests) {
		about := *a
		about.Kind, about.Question = policy.ActionQuestion, question
		d := v.ask(ctx, p, req, &about)
		v.host.countDecision(policy.ActionQuestion, &d)
		if d.Do != policy.OutcomeAllow {
			return nil, &hosterr.Error{Code: hosterr.CodeDenied, Server: a.Server, MayHaveRun: true, Err: refusalOf(&d)}
		}
	}
	return raw, nil
}

// authorizeResult asks the policy about the result of a call.
func (h *Host) authorizeResult(ctx context.Context, c *call.Call, res mcp.Result, failed error) (mcp.Result, error) {
	if c.Policy == nil {
		return res, failed
	}
	v := viewOf(c)
	return v.decideResult(ctx, c.Policy, c.Request, v.resultAction(ctx, c.Action, c.About), res, failed)
}
