package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func (h *Host) newApprover() *approver {
	o := approverOptions{state: h.opts.State, ring: h.states.ring, logger: h.opts.Logger, ctx: h.ctx, run: h.work.run,
		epoch: h.epoch, changed: h.events.send, held: &h.held, count: h.countApproval,
		record: func(r *Record) { _ = h.Record(r) }, // the Recorder reports its failures
		waits: func(server string) (done func()) {
			u := h.set.Load().byName[server]
			if u == nil { // removed
				return func() {}
			}
			u.counts.held.Add(1)
			return func() { u.counts.held.Add(-1) }
		}}
	if _, ok := h.opts.State.(*state.Memory); ok { // only this process has the approvals that were used
		o.process = h.callIDs.prefix
	}
	return &approver{approverOptions: o}
}

// EndApprovals refuses the requests that wait for an approval of the operator, and from now on requests that
// would wait: the program is ending. Other requests go on. Call it before the shutdown of what serves the host.
func (h *Host) EndApprovals() { h.approver.answers.stop() }

// decide decides about a request before it is sent. It returns the request to send; or an error that
// refuses it, or a result that asks the client's user for approval.
func (v *View) decide(
	ctx context.Context, p Policy, req *mcp.Request, r *route, a *Action, rec *recording,
) (send *mcp.Request, asks mcp.Result, err error) {
	of := v.newApproval(req, r, a, v.ask(ctx, p, req, a))
	d := &of.decision
	v.host.countDecision(a.Kind, d)
	defer func() { rec.decided(d) }()
	if d.Do == OutcomeAllow || d.Do == OutcomeAsk { // what a policy hides, no limit shows
		if err := v.admit(ctx, req, r); err != nil {
			return nil, nil, err
		}
	}
	switch d.Do {
	case OutcomeAllow:
		r.approval = of
		return req, nil, nil
	case OutcomeAsk:
		r.approval = of
		return of.approve(ctx, req)
	}
	return nil, nil, v.denied(req, r, d)
}

func (v *View) newApproval(req *mcp.Request, r *route, a *Action, d Decision) *approval {
	p := &approval{approver: v.host.approver, caller: v.caller, principal: v.principal, action: a, decision: d,
		withoutMeta: r.pool.withoutMeta(), call: r.call, original: req}
	if s := r.pool.up.entry().server; s != nil {
		p.identity = s.Identity()
	}
	p.round = func(req *mcp.Request) (requestState, bool, error) { return v.openState(req, r) }
	p.stillApplies = func(ctx context.Context, req *mcp.Request) (bool, error) {
		if r.item != nil && !v.isUnchanged(ctx, r.item) {
			return false, nil
		}
		again := *a
		d := v.ask(ctx, v.host.currentPolicy(), req, &again)
		if d.Do != OutcomeAllow && d.Do != OutcomeAsk {
			return true, v.denied(req, r, &d)
		}
		return true, nil
	}
	return p
}

// isUnchanged reports whether a name still belongs to the same definition of the same server.
func (v *View) isUnchanged(ctx context.Context, item *catalogue.Item) bool {
	now, _, err := v.find(ctx, item.Kind, item.Public)
	if err != nil || now == nil && item.Kind == catalogue.Tools {
		now, _ = v.appTool(item.Public)
	}
	return now != nil && now.Server == item.Server && now.Digest == item.Digest
}
