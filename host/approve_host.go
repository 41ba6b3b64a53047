package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func (h *Host) newApprover() *approver {
	o := approverOptions{state: h.opts.State, ring: h.states.Ring, logger: h.opts.Logger, ctx: h.ctx, run: h.work.run,
		epoch: h.epoch, changed: h.events.send, held: &h.held, count: h.countApproval,
		record: func(r *event.Record) { _ = h.Record(r) }, // the Recorder reports its failures
		waits: func(server string) (done func()) {
			u := h.servers.Current().Named(server)
			if u == nil { // removed
				return func() {}
			}
			return u.Hold()
		}}
	if _, ok := h.opts.State.(*state.Memory); ok { // only this process has the approvals that were used
		o.process = h.callIDs.Prefix
	}
	return &approver{approverOptions: o}
}

// Approvals returns the requests that wait for approval, and the grants.
func (h *Host) Approvals() *approval.Approvals {
	return approval.New(h.opts.State, h.approver.answers.wake)
}

// EndApprovals refuses the requests that wait for an approval of the operator, and from now on requests that
// would wait: the program is ending. Other requests go on. Call it before the shutdown of what serves the host.
func (h *Host) EndApprovals() { h.approver.answers.stop() }

// authorizeCall asks the policy about the call.
func (h *Host) authorizeCall(next next) next {
	return func(ctx context.Context, c *call) (mcp.Result, error) {
		p := h.currentPolicy()
		if c.own {
			p = nil
		}
		if p == nil && c.recording == nil {
			return next(ctx, c)
		}
		v := c.view
		c.action = v.action(c.request, c)
		c.recording.describe(c)
		if p == nil {
			return next(ctx, c)
		}
		c.policy = p
		c.approval = v.newApproval(c.request, c, c.action, v.ask(ctx, p, c.request, c.action))
		d := &c.approval.decision
		h.countDecision(c.kind, d)
		c.recording.decided(d)
		if d.Do != policy.OutcomeAllow && d.Do != policy.OutcomeAsk {
			return nil, v.denied(c.request, c, d)
		}
		return next(ctx, c)
	}
}

// approveCall obtains the approval that the policy requires: it finds a grant, takes the answer that the
// call carries, or asks. The result of a question for the client of the caller ends the call.
func (h *Host) approveCall(next next) next {
	return func(ctx context.Context, c *call) (mcp.Result, error) {
		if c.policy == nil || c.approval.decision.Do != policy.OutcomeAsk {
			return next(ctx, c)
		}
		req, asks, err := c.approval.approve(ctx, c.request)
		c.recording.decided(&c.approval.decision)
		if err != nil || asks != nil {
			return asks, err
		}
		c.request = req
		return next(ctx, c)
	}
}

func (v *View) newApproval(req *mcp.Request, r *call, a *policy.Action, d policy.Decision) *approving {
	p := &approving{approver: v.host.approver, caller: v.caller, principal: v.principal, action: a, decision: d,
		withoutMeta: r.pool.withoutMeta(), call: r.id(), original: req}
	if s := r.pool.Entry().Config; s != nil {
		p.identity = s.Identity()
	}
	p.earlier = func(req *mcp.Request) (round.State, bool, error) { return v.openState(req, r) }
	p.stillApplies = func(ctx context.Context, req *mcp.Request) (bool, error) {
		if r.item != nil && !v.isUnchanged(ctx, r.item) {
			return false, nil
		}
		again := *a
		d := v.ask(ctx, v.host.currentPolicy(), req, &again)
		if d.Do != policy.OutcomeAllow && d.Do != policy.OutcomeAsk {
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
