package gateway

import (
	"context"
	"crypto/rand"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// An endpoint serves the views of all callers at one route.
type endpoint struct {
	gateway *Gateway
	route   Route
	limits  *limits
	session string         // of a stream; empty for HTTP, where each request names its own
	caller  *mcp.Principal // of all requests; nil for the principal of each request

	workspace string // see [policy.Caller]
}

var _ interface {
	mcp.Handler
	driver.Listener[*mcp.Request]
	driver.HeaderParamHandler[*mcp.Request]
} = (*endpoint)(nil)

// Endpoint returns the handler of a route. The caller of a request is its principal, or without a
// principal the local user. The handler is a [driver.Listener]. A route to an unknown profile or
// server contains no tools, prompts or resources. [Options].Profile limits only the zero value of
// Route.
func (g *Gateway) Endpoint(r Route) mcp.Handler { return g.endpoint(r, &localGrant.limits, "") }

func (g *Gateway) endpoint(r Route, l *limits, session string) *endpoint {
	if r == (Route{}) {
		r.Profile = g.opts.Profile
	}
	return &endpoint{gateway: g, route: r, limits: l, session: session}
}

// view returns the view of the caller of a request.
func (e *endpoint) view(ctx context.Context, p *mcp.Principal) *host.View {
	session := e.session
	if e.caller != nil {
		p = e.caller
	}
	if session == "" && !e.gateway.opts.HTTP.Sessions.Stateless { // whose sessions end with each request
		session = driver.SessionID(ctx)
	}
	return e.gateway.host.For(&policy.Caller{
		Principal: p, Session: session, Profile: e.route.Profile, Server: e.route.Server,
		Single: e.route == Route{}, Servers: e.limits.servers, Only: e.limits.only, ReadOnly: e.limits.readOnly,
		Workspace: e.workspace,
	})
}

// ServeMCP serves a request.
func (e *endpoint) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if e.session != "" {
		ctx = driver.WithSessionID(ctx, e.session)
	}
	return e.view(ctx, req.Principal).ServeMCP(ctx, req)
}

// Listen registers a subscription.
func (e *endpoint) Listen(ctx context.Context, req *mcp.Request) (stop func(), err error) {
	return e.view(ctx, req.Principal).Listen(ctx, req)
}

// UsesBroadcaster returns the endpoint: idle subscriptions need no goroutine; see
// [mcp.Broadcaster].
func (e *endpoint) UsesBroadcaster() mcp.Handler { return e }

// HeaderParams returns the arguments of a tool that clients repeat in headers.
func (e *endpoint) HeaderParams(ctx context.Context, req *mcp.Request, tool string) []driver.HeaderParam {
	return e.view(ctx, req.Principal).HeaderParams(ctx, req, tool)
}

// ServeStdio serves the client at the other end of a stream, such as [mcp.Stdio], until it ends or
// ctx ends; see [mcp.Serve]. It returns an error if the profile or server is unknown. The client
// needs no key: it has started this process.
func (g *Gateway) ServeStdio(ctx context.Context, conn mcp.Conn, r Route) error {
	if err := g.check(r); err != nil {
		return err
	}
	return g.serveStream(ctx, conn, r, "")
}

// serveStream serves a client of a route that exists, which works in a directory.
func (g *Gateway) serveStream(ctx context.Context, conn mcp.Conn, r Route, workspace string) error {
	session := rand.Text()
	defer g.host.Operator().EndSession(session)
	e := g.endpoint(r, &localGrant.limits, session)
	e.workspace = workspace
	return mcp.Serve(ctx, e, conn, &mcp.ServeOptions{Logger: g.opts.Logger})
}
