package authorize

import (
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Result asks the policy about the result of a call.
func (z *Authorizer) Result(ctx context.Context, c *call.Call, res mcp.Result, failed error) (mcp.Result, error) {
	if c.Policy == nil {
		return res, failed
	}
	v := c.View.(View)
	return z.DecideResult(ctx, v, c.Policy, c.Request, v.Concerned(ctx, c.Action, c.About), res, failed)
}

// DecideResult decides about the result or the error of a request, and about each of its questions.
// It returns the response that the caller must receive. req may be nil.
func (z *Authorizer) DecideResult(
	ctx context.Context, v View, p policy.Policy, req *mcp.Request, a *policy.Action, res mcp.Result, failed error,
) (mcp.Result, error) {
	raw, isRaw := res.(mcp.RawResult)
	fault, isFault := errors.AsType[*mcp.Error](failed)
	resultType := raw.ResultType()
	switch {
	case failed != nil && !(isFault && fault.Remote()), failed == nil && !isRaw:
		return res, failed // there is no response of the server
	case isFault:
		raw = FaultResult(fault)
	case resultType == driver.ResultInputRequired:
		z.opts.Recent.Add(v.Principal(), a.Server)
		return z.decideQuestions(ctx, v, p, req, a, raw)
	}
	z.opts.Recent.Add(v.Principal(), a.Server)
	if !isFault && (a.Kind == policy.ActionOther || resultType == call.ResultTask) { // a task may contain questions
		if _, err := z.decideQuestions(ctx, v, p, req, a, raw); err != nil {
			return nil, err
		}
	}
	d, ok := cached(v, p, policy.ActionResult, a)
	if !ok {
		about := *a
		about.Kind, about.Result = policy.ActionResult, []byte(raw)
		d = z.Ask(ctx, v, p, req, &about)
	}
	z.opts.Count(policy.ActionResult, &d)
	switch {
	case d.Do != policy.OutcomeAllow:
		return nil, &hosterr.Error{Code: hosterr.CodeDenied, Server: a.Server, MayHaveRun: true, Err: Reason(&d)}
	case len(d.Redact) == 0:
		return res, failed
	}
	left, err := Redact(raw, d.Redact)
	switch {
	case err != nil:
		return nil, &hosterr.Error{Code: hosterr.CodeDenied, Server: a.Server, MayHaveRun: true, Err: err}
	case isFault:
		return nil, RedactedFault(fault, left)
	}
	return mcp.RawResult(left), nil
}

// cached returns the cached decision about an action as an action of another kind.
func cached(v View, p policy.Policy, kind policy.ActionKind, a *policy.Action) (d policy.Decision, ok bool) {
	if p.Needs(kind) != 0 {
		return d, false
	}
	key := keyOf(kind, a)
	return v.Decisions().get(&key, p.Epoch())
}

// decideQuestions decides about the questions of a server. A question that is refused ends the request.
func (z *Authorizer) decideQuestions(
	ctx context.Context, v View, p policy.Policy, req *mcp.Request, a *policy.Action, raw mcp.RawResult,
) (mcp.Result, error) {
	requests, _ := jsonscan.Get(raw, "inputRequests")
	if jsonscan.Kind(requests) != '{' {
		return raw, nil
	}
	for _, question := range jsonscan.Members(requests) {
		about := *a
		about.Kind, about.Question = policy.ActionQuestion, question
		d := z.Ask(ctx, v, p, req, &about)
		z.opts.Count(policy.ActionQuestion, &d)
		if d.Do != policy.OutcomeAllow {
			return nil, &hosterr.Error{Code: hosterr.CodeDenied, Server: a.Server, MayHaveRun: true, Err: Reason(&d)}
		}
	}
	return raw, nil
}
