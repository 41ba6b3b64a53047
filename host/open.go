package host

import (
	"cmp"
	"context"
	"log/slog"
	"os"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/observe"
	"github.com/patchbay-mcp/patchbay/host/internal/result"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
)

// Open returns a host for a configuration. It starts no server: a server starts when a request
// needs it, or by [Host.Start]. An invalid entry of a server does not affect other servers:
// requests for the server fail with [hosterr.CodeConfigError]. ctx limits Open, not the life of the
// Host. A file whose servers need trust must be trusted before: see [config.TrustStore].
func Open(_ context.Context, f *config.File, o *Options) (*Host, error) {
	h := &Host{views: map[string]*View{}, subscribed: map[*View]struct{}{}, readers: map[chan Event]struct{}{}}
	if o != nil {
		h.opts = *o
	}
	h.opts.Logger = cmp.Or(h.opts.Logger, slog.Default())
	if h.opts.Lookup == nil {
		h.opts.Lookup = os.LookupEnv
	}
	if h.opts.Dial == nil {
		h.opts.Dial, h.dials = Dial, true
	}
	if h.opts.State == nil {
		h.opts.State = &state.Memory{}
	}
	rules, settings, err := h.opts.configured(f)
	if err != nil {
		return nil, err
	}
	if h.states, err = round.NewSealer(h.opts.StateKeys); err != nil {
		return nil, err
	}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	h.observe = &observe.Calls{Recorder: h.opts.Recorder, Mask: h.maskRecord, IDs: observe.NewIDs()}
	h.logins = h.newLogins()
	h.limits = limits.New(limits.Options{State: h.opts.State, Shared: h.opts.Limits, Logger: h.opts.Logger,
		Settings: h.callerLimits, Done: h.ctx.Done()})
	h.authorize = h.newAuthorizer()
	h.operator, h.approve = newOperator(h), h.newApprover()
	h.prompt = h.newPrompt()
	h.result = result.New(result.Options{Rounds: h.states, Limits: h.limits, Settings: h.callerLimits,
		Mark: h.approve.Mark, Logger: h.opts.Logger})
	h.servers = upstream.New(h.environment())
	set, err := h.servers.NewSet(f)
	if err != nil {
		return nil, err
	}
	h.task = &task.Stages{Leaving: h.leaving}
	h.calls = h.pipeline()
	h.tasks.Ring, h.tasks.Run = h.states.Ring, h.run
	h.tasks.For = func(c *policy.Caller) *task.Caller { return h.For(c).tasks }
	h.settings = settings
	h.use(rules)
	h.servers.Start(set)
	if h.opts.Cluster != nil {
		h.relay = h.servers.Relay(publicReason)
		h.opts.Cluster.Serve(h.relay)
	}
	h.stop = state.Watch(h.opts.State, approval.KindPending, h.approve.Recheck)
	h.limits.Start(h.run, func() {
		for _, u := range h.servers.All() {
			u.ApplyLimits()
		}
	})
	h.recordConfig(f, "open")
	return h, nil
}

// environment returns the parts of the host that its servers use.
func (h *Host) environment() *upstream.Environment {
	client := h.opts.Client
	client.ForwardInput = true
	client.Extensions = extensions(client.Extensions)
	return &upstream.Environment{Context: h.ctx, Go: h.run, Dial: h.opts.Dial, Lookup: h.opts.Lookup,
		Client: client, Observer: h.opts.Observer, Logger: h.opts.Logger, State: h.opts.State, Pins: h.opts.Pins,
		Cluster: h.opts.Cluster,
		Limits:  h.limits, Logins: h.logins, Record: h.recordChange, Drifts: h.opts.Recorder != nil,
		Notify: func(c *upstream.Change) {
			h.send(Event{Server: c.Server, Instance: c.Conn, State: c.State, Err: c.Err, Pins: c.Pins})
		},
		UsesRecent: func() bool { return h.authorize.Policy() != nil }, AddRecent: h.recent.Add,
		Users: h.listUsers}
}

// listUsers returns the views, which use lists.
func (h *Host) listUsers() (all []upstream.User) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range h.views {
		all = append(all, (*viewListener)(v))
	}
	for v := range h.subscribed {
		all = append(all, (*viewListener)(v))
	}
	return all
}
