package host

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A pool holds the connections of a server for one caller, or for all callers of a shared server, and
// their lists.
type pool struct {
	up     *Upstream
	caller *policy.Caller
	key    string // see [Upstream.poolKey]
	lists  *listing.Lists

	// The lock of the upstream guards instances, used and latest.
	instances map[string]*instance
	used      time.Time // by a request
	latest    string    // the class of the latest request, for servers with classes

	requests *limits.Queue // see queue

	forwarded login.Forwarded
}

func newPool(u *Upstream, c *policy.Caller) *pool {
	p := &pool{up: u, caller: c, instances: map[string]*instance{}, requests: u.limits.NewQueue(false)}
	p.lists = listing.New(&listing.Options{Source: (*poolSource)(p), Review: p.reviewer(u.entry().pins),
		Memory: u.lists, Server: u.name, Shared: u.share() == config.ShareShared, Context: u.host.ctx,
		Go: u.host.work.run, StartTimeout: u.startTimeout, BeforeRead: p.refreshLogin,
		Drift: p.recordDrift, Logger: u.host.opts.Logger})
	return p
}

// refreshLogin checks a login that is missing again: the user may have logged in with another process.
func (p *pool) refreshLogin(ctx context.Context) {
	if p.failedLogin() {
		_ = p.checkLogin(ctx) // the error of the connection says more
	}
}

// A poolSource is the [listing.Source] of a pool.
type poolSource pool

// Acquire implements [listing.Source].
func (s *poolSource) Acquire(ctx context.Context) (*connection.Conn, listing.Reviewer, error) {
	p := (*pool)(s)
	c, err := p.acquire(ctx, anyClass)
	if err != nil {
		return nil, nil, err
	}
	return c.Conn, p.reviewer(c.pins), nil
}

// Failure implements [listing.Source].
func (s *poolSource) Failure(ctx context.Context, err error) *hosterr.Error {
	return s.up.failure(ctx, err)
}

// Observe implements [listing.Source].
func (s *poolSource) Observe(c *connection.Conn, failed *hosterr.Error) {
	for _, s := range s.up.conns() {
		if s.Conn == c {
			s.observe(failed)
		}
	}
}

// isWatched reports whether callers have subscriptions that need a connection. Subscriptions to lists need
// no connection to a command: a process that does not run changes no lists.
func (p *pool) isWatched() bool {
	lists, resources := p.lists.HasListeners()
	return resources || lists && !p.up.isCommand()
}

// connect connects to the server of a pool.
func (p *pool) connect(ctx context.Context) {
	p.restore(ctx)
	p.lists.Connect(ctx)
}

// offers returns what a pool offers.
func (p *pool) offers(lists [catalogue.Kinds]*catalogue.List) catalogue.Server {
	e, about := p.up.entry(), p.lists.About()
	return catalogue.Server{Name: p.up.name, ID: e.ID, Lists: lists, Options: e.Options,
		Capabilities: about.Capabilities, Instructions: about.Instructions}
}

// A viewListener is the [listing.Listener] of a view with subscriptions.
type viewListener View

// ListsChanged implements [listing.Listener].
func (v *viewListener) ListsChanged() { (*View)(v).schedule() }

// A viewSubscriber is the [listing.Subscriber] of a view that has subscribed to resources of a server.
type viewSubscriber struct {
	view   *View
	server string
}

// Principal implements [listing.Subscriber].
func (s viewSubscriber) Principal() string { return s.view.caller.Key() }

// Updated implements [listing.Subscriber].
func (s viewSubscriber) Updated(target string) {
	s.Missed(s.view.publicURI(s.server, target))
}

// Missed implements [listing.Subscriber].
func (s viewSubscriber) Missed(uri string) {
	s.view.changes.Send(mcp.Event{Kind: mcp.EventResourceUpdated, URI: uri})
}

// publicURI returns the URI by which callers know a URI of a server.
func (v *View) publicURI(server, uri string) string {
	if m := v.latest(); m != nil {
		return m.catalogue.PublicURI(server, uri)
	}
	return uri
}
