package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/approve"
	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func (h *Host) newApprover() *approve.Approver {
	o := approve.Options{State: h.opts.State, Ring: h.states.Ring, Logger: h.opts.Logger, Context: h.ctx, Run: h.work.run,
		Epoch: h.authorize.Epoch, Arguments: authorize.Arguments, Count: h.countApproval,
		Changed: func(c approve.Change) {
			h.events.send(Event{Server: c.Server, Pending: c.Pending, Decided: c.Decided, Answer: c.Answer})
		},
		Record: func(r *event.Record) { _ = h.record(r) }, // the Recorder reports its failures
		Waits: func(server string) (done func()) {
			u := h.servers.Current().Named(server)
			if u == nil { // removed
				return func() {}
			}
			return u.Hold()
		}}
	if _, ok := h.opts.State.(*state.Memory); ok { // only this process has the approvals that were used
		o.Process = h.observe.IDs.Prefix
	}
	return approve.New(o)
}

// Approvals returns the requests that wait for approval, and the grants.
func (h *Host) Approvals() *approval.Approvals {
	return h.approver.Approvals()
}

// approveCall obtains the approval that the policy requires: it finds a grant, takes the answer that the
// call carries, or asks. The result of a question for the client of the caller ends the call.
func (h *Host) approveCall(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		if c.Decision == nil || c.Decision.Do != policy.OutcomeAsk {
			return next(ctx, c)
		}
		req, asks, err := c.Approval.(*approve.Request).Approve(ctx, c.Request)
		if err != nil || asks != nil {
			return asks, err
		}
		c.Request = req
		return next(ctx, c)
	}
}

func (v *View) newApproval(req *mcp.Request, r *call.Call, a *policy.Action, d policy.Decision) *approve.Request {
	p := &approve.Request{Approver: v.host.approver, Caller: v.caller, Principal: v.principal, Action: a, Decision: d,
		WithoutMeta: poolOf(r).WithoutMeta(), Call: r.ID(), Original: req}
	if s := poolOf(r).Entry().Config; s != nil {
		p.Identity = s.Identity()
	}
	p.Earlier = func(req *mcp.Request) (round.State, bool, error) { return r.View.OpenState(req, r) }
	p.StillApplies = func(ctx context.Context, req *mcp.Request) (bool, error) {
		if r.Item != nil && !v.isUnchanged(ctx, r.Item) {
			return false, nil
		}
		again := *a
		d := v.host.authorize.Ask(ctx, (*callView)(v), v.host.authorize.Policy(), req, &again)
		if authorize.IsRefusal(&d) {
			return true, authorize.Denied(r, req, &d)
		}
		return true, nil
	}
	return p
}

// isUnchanged reports whether a name still belongs to the same definition of the same server.
func (v *View) isUnchanged(ctx context.Context, item *catalogue.Item) bool {
	now, _, err := v.table.Find(ctx, item.Kind, item.Public)
	if err != nil || now == nil && item.Kind == catalogue.Tools {
		now, _ = v.table.AppTool(item.Public)
	}
	return now != nil && now.Server == item.Server && now.Digest == item.Digest
}
