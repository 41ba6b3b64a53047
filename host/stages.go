package host

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/approve"
	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/internal/result"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func (h *Host) newApprover() *approve.Approver {
	o := approve.Options{State: h.opts.State, Ring: h.states.Ring, Logger: h.opts.Logger, Context: h.ctx,
		Run: h.run, Epoch: h.authorize.Epoch, Again: h.authorize.Again, Count: h.countApproval,
		Changed: func(c approve.Change) {
			h.send(Event{Server: c.Server, Pending: c.Pending, Decided: c.Decided, Answer: c.Answer})
		},
		Record: func(r *event.Record) { _ = h.record(r) }, // the Recorder reports its failures
		Waits: func(server string) (done func()) {
			u := h.servers.Current().Named(server)
			if u == nil { // removed
				return func() {}
			}
			return u.Hold()
		}}
	if _, ok := h.opts.State.(*state.Memory); ok { // only this process holds the used approvals
		o.Process = h.observe.IDs.Prefix
	}
	return approve.New(o)
}

// Approvals returns the requests that wait for approval, and the grants.
func (h *Host) Approvals() *approval.Approvals { return h.approve.Approvals() }

func (v *callView) IsUnchanged(ctx context.Context, item *catalogue.Item) bool {
	now, _, err := v.table.Find(ctx, item.Kind, item.Public)
	if err != nil || now == nil && item.Kind == catalogue.Tools {
		now, _ = v.table.AppTool(item.Public)
	}
	return now != nil && now.Server == item.Server && now.Digest == item.Digest
}

func (h *Host) newAuthorizer() *authorize.Authorizer {
	return authorize.New(authorize.Options{Recent: &h.recent, Count: h.countDecision, Describe: h.observe.Describe,
		Context: h.ctx})
}

// SetPolicy replaces the policy, until [Host.Reload] with [Options.Configure] does. Requests that
// were sent before keep their decision; the new policy decides about their results.
func (h *Host) SetPolicy(p policy.Policy) {
	h.authorize.Use(p)
	h.mu.Lock()
	views := slices.Collect(maps.Keys(h.subscribed))
	h.mu.Unlock()
	for _, v := range views { // without the lock: a table that counts subscriptions takes it
		v.table.ListsChanged() // other items may be visible
	}
}

func (v *callView) Decisions() *authorize.Cache { return &v.decisions }

func (v *callView) Concerned(ctx context.Context, a *policy.Action, t *call.Task) *policy.Action {
	return (*View)(v).resultAction(ctx, a, t)
}

// callerLimits returns the limits of callers that are in force.
func (h *Host) callerLimits() *config.CallerLimits { return &h.servers.Current().Settings().Limits }

// maskRecord returns a text without the secrets of the servers and the tokens of the record's caller.
func (h *Host) maskRecord(r *event.Record, text string) string {
	text = h.servers.Mask(text)
	if u := h.servers.Current().Named(r.Server); u != nil && r.Caller != nil {
		text = u.MaskTokens(text, r.Caller)
	}
	return text
}

// record passes a record to [Options.Recorder], and sets a missing time. It must be used only for
// events that no request of a [View] causes, such as logins. The error is the error of the
// Recorder.
func (h *Host) record(r *event.Record) error {
	if h.opts.Recorder == nil {
		return nil
	}
	if r.Start.IsZero() {
		r.Start = time.Now()
	}
	r.SetMask(h.observe.Mask)
	return h.observe.Store(r)
}

// refused records a request that belongs to no known item, and returns its error.
func (v *View) refused(req *mcp.Request, kind policy.ActionKind, public string, err error) error {
	a := &policy.Action{Kind: kind, Caller: v.caller, Arguments: call.Arguments(req)}
	return v.host.observe.Refused(req, a, public, err)
}

// recordConfig records that the host uses a configuration, and which epoch of the policy.
func (h *Host) recordConfig(f *config.File, action string) {
	policy := "none"
	if h.authorize.Policy() != nil {
		policy = strconv.FormatUint(h.authorize.Epoch(), 16)
	}
	h.recordChange(event.Config, nil, "", map[string]any{"action": action, "path": f.Path, "servers": f.Names(),
		"policy": policy})
}

// recordChange records an event that no request causes.
func (h *Host) recordChange(kind event.Kind, c *policy.Caller, server string, detail any) {
	if h.opts.Recorder == nil {
		return
	}
	text, err := json.Marshal(detail)
	if err != nil {
		return // of strings only
	}
	// Record reports failures.
	_ = h.record(&event.Record{Event: kind, Action: policy.Action{Caller: c, Server: server}, Detail: text})
}

// The stages assert these interfaces.
var (
	_ authorize.View = (*callView)(nil)
	_ result.View    = (*callView)(nil)
	_ task.View      = (*callView)(nil)
	_ upstream.View  = (*callView)(nil)
	_ limits.Pool    = (*upstream.Pool)(nil)
	_ login.Pool     = (*upstream.Pool)(nil)
	_ pins.Pool      = (*upstream.Pool)(nil)
	_ result.Pool    = (*upstream.Pool)(nil)
)

func (v *callView) Publish(p call.Pool, method string, raw mcp.RawResult) mcp.RawResult {
	return (*View)(v).publish(p.Name(), p.(*upstream.Pool), method, raw)
}

func (v *callView) Tasks() *task.Caller { return v.tasks }

func (v *callView) TaskServer(p call.Pool) task.Server { return routes.TaskServer(p.(*upstream.Pool)) }

func (v *callView) TaskSender(p call.Pool) task.Sender {
	return taskPool{(*View)(v), p.(*upstream.Pool)}
}

func (v *callView) PoolNamed(server string) *upstream.Pool { return (*View)(v).poolNamed(server) }
