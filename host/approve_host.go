package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/approve"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/state"
)

var _ approve.Target = (*upstream.Pool)(nil)

func (h *Host) newApprover() *approve.Approver {
	o := approve.Options{State: h.opts.State, Ring: h.states.Ring, Logger: h.opts.Logger, Context: h.ctx, Run: h.work.run,
		Epoch: h.authorize.Epoch, Again: h.authorize.Again, Count: h.countApproval,
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
	return h.approve.Approvals()
}

// IsUnchanged implements [authorize.View].
func (v *callView) IsUnchanged(ctx context.Context, item *catalogue.Item) bool {
	now, _, err := v.table.Find(ctx, item.Kind, item.Public)
	if err != nil || now == nil && item.Kind == catalogue.Tools {
		now, _ = v.table.AppTool(item.Public)
	}
	return now != nil && now.Server == item.Server && now.Digest == item.Digest
}
