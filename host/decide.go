package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

func (h *Host) newAuthorizer() *authorize.Authorizer {
	return authorize.New(authorize.Options{Recent: &h.recent, Count: h.countDecision, Describe: h.observe.Describe,
		Context: h.ctx})
}

// SetPolicy replaces the policy, until [Host.Reload] with [Options.Configure] does. Requests that
// were sent before keep their decision; their results are decided by the new one.
func (h *Host) SetPolicy(p policy.Policy) {
	h.authorize.Use(p)
	h.mu.Lock()
	defer h.mu.Unlock()
	for v := range h.subscribed {
		v.table.ListsChanged() // other items may be visible
	}
}

// Decisions implements [authorize.View].
func (v *callView) Decisions() *authorize.Cache { return &v.decisions }

// Concerned implements [authorize.View].
func (v *callView) Concerned(ctx context.Context, a *policy.Action, t *call.Task) *policy.Action {
	return (*View)(v).resultAction(ctx, a, t)
}
