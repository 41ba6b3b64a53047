package host

import (
	"context"
	"slices"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// agree narrows the filter of a subscription to resources that a server of the view can announce,
// and starts to watch the servers. end stops that.
func (v *View) agree(ctx context.Context, req *mcp.Request, f *mcp.SubscriptionFilter) (end func(), err error) {
	var ends []func()
	if end := v.agreeTopics(ctx, req, f); end != nil {
		ends = append(ends, end)
	}
	f.ResourceSubscriptions = slices.DeleteFunc(f.ResourceSubscriptions, func(uri string) bool {
		r, err := v.routeURI(ctx, uri)
		if err != nil {
			return true
		}
		stop, ok := r.pool.subscribe(ctx, v, r.target, uri)
		if ok {
			ends = append(ends, stop)
		}
		return !ok
	})
	v.countSubscriptions(1)
	return func() {
		v.countSubscriptions(-1)
		for _, end := range ends {
			end()
		}
	}, nil
}

// countSubscriptions counts the subscriptions of the view. With the first, its servers notify it of changes.
func (v *View) countSubscriptions(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.subscriptions
	v.subscriptions += n
	for _, p := range v.pools {
		switch {
		case before == 0:
			p.addView(v)
		case v.subscriptions == 0:
			p.removeView(v)
		}
	}
}
