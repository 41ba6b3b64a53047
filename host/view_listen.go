package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/listing"
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
	if err := s.admit(); err != nil {
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

// Pools implements [upstream.User].
func (v *viewListener) Pools() (all []*upstream.Pool) {
	for _, s := range v.table.Used() {
		all = append(all, serverPool(s))
	}
	return all
}

// ForgetLists implements [upstream.User].
func (v *viewListener) ForgetLists() { v.table.Forget() }
