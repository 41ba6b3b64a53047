package host

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/observe"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// agree narrows the filter of a subscription to resources that a server of the view can announce,
// that the policy allows, and starts to watch the servers. end stops that.
func (v *View) agree(ctx context.Context, req *mcp.Request, f *mcp.SubscriptionFilter) (end func(), err error) {
	s := &subscribing{view: v, req: req}
	defer func() {
		if err != nil {
			v.host.countError(ctx, err)
			_, err = v.response(ctx, req.Method, err)
		}
	}()
	if err := s.admit(ctx); err != nil {
		return nil, err
	}
	resources := map[routes.Server][]listing.Resource{}
	known := req.Driver().Checked
	if !v.caller.May(policy.ActionRead) {
		f.ResourceSubscriptions = nil
	}
	found := v.table.URIs().Watched(ctx, f.ResourceSubscriptions)
	for _, uri := range f.ResourceSubscriptions {
		r, ok := found[uri]
		if ok && known.Agreed(uri, func() bool {
			return s.allows(ctx, s.action(policy.ActionRead, r.Server.Name(), r.URI))
		}) {
			resources[r.Server] = append(resources[r.Server], listing.Resource{Target: r.URI, URI: uri})
		}
	}
	f.ResourceSubscriptions = nil
	listeners := s.topics(ctx, f)
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end(nil)
	stops := openTopics(ctx, listeners, f)
	agreed, unsubscribe := v.table.Subscribe(ctx, resources)
	f.ResourceSubscriptions = agreed
	return func() {
		unsubscribe()
		for _, stop := range stops {
			stop()
		}
	}, nil
}

// A viewListener is the [upstream.User] of a view.
type viewListener View

func (v *viewListener) Pools() (all []*upstream.Pool) {
	for _, s := range v.table.Used() {
		all = append(all, serverPool(s))
	}
	return all
}

func (v *viewListener) ForgetLists() { v.table.Forget() }

// A subscribing decides about the parts of a subscription and records them. The session of an older revision
// opens its subscription again for each further resource, and for the stream of a GET.
type subscribing struct {
	view  *View
	req   *mcp.Request
	parts []*subscribedPart
}

// A subscribedPart is the record of the targets of a server about which the same rule decided.
type subscribedPart struct {
	event.Record
	intended bool // the intent is stored
	targets  []string
}

// admit checks the rate of the caller. Subscriptions use a bucket of their own, because the streams
// that clients open by themselves must not cause the refusal of calls.
func (s *subscribing) admit(ctx context.Context) error {
	v := s.view
	servers := v.table.Servers().All
	if len(servers) == 0 {
		return nil
	}
	r := &limits.Request{Principal: v.principal, Server: serverPool(servers[0]).Limits()}
	if err := v.host.limits.AdmitCaller(ctx, r, s.req.Method); err != nil {
		return v.refused(s.req, policy.ActionOther, "", err)
	}
	return nil
}

// allows reports whether the policy allows a part. A subscription cannot be approved: ask refuses it.
func (s *subscribing) allows(ctx context.Context, a *policy.Action) bool {
	v, d := s.view, policy.Decision{Do: policy.OutcomeAllow}
	if p := v.host.authorize.Policy(); p != nil {
		d = v.host.authorize.Ask(ctx, (*callView)(v), p, s.req, a)
		v.host.countDecision(a.Kind, &d)
	}
	s.note(a, &d)
	return d.Do == policy.OutcomeAllow
}

// note adds a decision to the records.
func (s *subscribing) note(a *policy.Action, d *policy.Decision) {
	if s.view.host.opts.Recorder == nil {
		return
	}
	n := slices.IndexFunc(s.parts, func(p *subscribedPart) bool {
		return p.Kind == a.Kind && p.Server == a.Server && p.Rule == d.Rule &&
			(p.Err == nil) == (d.Do == policy.OutcomeAllow)
	})
	if n < 0 {
		n = len(s.parts)
		part := &subscribedPart{Record: s.view.host.observe.New(s.req, a)}
		part.Call = s.view.host.observe.IDs.Next()
		observe.SetDecision(&part.Record, d)
		if d.Do != policy.OutcomeAllow {
			part.Err = &hosterr.Error{Code: hosterr.CodeDenied, Server: a.Server, Err: authorize.Reason(d)}
		}
		s.parts = append(s.parts, part)
	}
	s.parts[n].targets = append(s.parts[n].targets, a.Target)
}

// begin records that the subscription is about to be opened, and its parts that are refused. The error
// refuses it.
func (s *subscribing) begin() error {
	if len(s.parts) == 0 { // it is only for lists, or for resources that were recorded before
		s.note(s.action(policy.ActionOther, "", ""), &policy.Decision{Do: policy.OutcomeAllow})
	}
	h := s.view.host
	for _, p := range s.parts {
		switch {
		case p.Server == "":
			p.Arguments = call.Arguments(s.req)
		case len(p.targets) > 1:
			p.Target = ""
			p.Arguments, _ = json.Marshal(map[string][]string{"targets": p.targets}) // cannot fail
		}
		if p.Err != nil {
			h.observe.StoreEnd(&p.Record, false, nil, p.Err)
			continue
		}
		if err := h.observe.StoreIntent(&p.Record); err != nil {
			h.observe.StoreEnd(&p.Record, false, nil, err)
			s.end(err)
			return err
		}
		p.intended = true
	}
	return nil
}

// end records that the subscription is open, or why it is not.
func (s *subscribing) end(err error) {
	for _, p := range s.parts {
		if p.intended {
			s.view.host.observe.StoreEnd(&p.Record, true, nil, err)
		}
	}
}

// action returns the action of a part.
func (s *subscribing) action(kind policy.ActionKind, server, target string) *policy.Action {
	return &policy.Action{Kind: kind, Method: s.req.Method, Caller: s.view.caller, Server: server, Target: target}
}
