// Package gateway serves a [host.Host] as an MCP server, over HTTP and on streams, to clients of
// every protocol revision.
//
//	h, err := host.Open(ctx, file, nil)
//	if err != nil {
//		log.Fatal(err)
//	}
//	g := gateway.New(h, &gateway.Options{Keys: []string{key}})
//	err = g.Serve(ctx, listener)
//
// The paths are:
//   - /mcp: all servers, with names such as github__create_issue
//   - /mcp/p/PROFILE: the servers of a profile of the configuration
//   - /mcp/s/SERVER: one server, with its names and URIs unchanged
//
// Each path serves Streamable HTTP of every revision and HTTP+SSE, like package mcphttp. If the
// configuration contains a single server, /mcp also serves it with unchanged names.
//
// Over HTTP each request must contain a key or a token, or use a connection with a client certificate.
// A key of [Options].Keys identifies the local user, and so does the connection of
// [Gateway.ServeStdio]: both are one caller of the host, without a principal. Other callers are
// principals, identified by a key in a [KeyStore], by an access token (see [OAuth]), or by a
// certificate (see [ClientCertificates]). For further kinds of credentials, pass [Gateway.Endpoint] to
// [mcphttp.NewHandler], behind your own middleware.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/ext/servercard"
	"github.com/patchbay-mcp/patchbay/gateway/internal/limitedlog"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/replica"
)

// Options configures a [Gateway]. The zero value serves streams, and no HTTP.
type Options struct {
	// Keys are the keys of the local user: a request over HTTP must contain one of them in its
	// header "Authorization: Bearer KEY". See [NewKey]. The gateway stores only their hashes.
	Keys []string
	// KeyStore contains the keys of principals, which may be added and revoked at any time. A key
	// in use must begin with [KeyPrefix]. Default: no store.
	KeyStore *KeyStore
	// OAuth accepts access tokens. It requires PublicURL. Default: tokens are rejected.
	OAuth *OAuth
	// Certificates accepts client certificates (mutual TLS). Default: certificates identify nobody.
	Certificates *ClientCertificates
	// PublicURL is the URL by which clients reach the gateway, without a path, such as
	// https://mcp.example.com: the URL of the reverse proxy, if you use a proxy. Its host is
	// allowed in addition to HTTP.AllowedHosts.
	PublicURL string
	// InsecureNoAuth serves HTTP without a key, on loopback addresses only. Then every program of
	// this machine, of any user, can use the servers of the host as the user that runs the gateway.
	InsecureNoAuth bool
	// Profile is the only profile that the gateway serves: /mcp serves it, too, and all other paths
	// return the status 404. An unknown profile contains no servers. Default: all profiles and
	// servers.
	Profile string
	// ConnectPrincipal returns the principal that authenticated the request of a browser, such as
	// the principal named by a header of a reverse proxy. If it is set, only the principal itself
	// can use the page on which it logs in to a server. Default: the page asks a caller with a key
	// of KeyStore for the key, sends a caller with an access token to the authorization server (see
	// [OAuth].ClientID), and refuses callers that it cannot identify. The login page of the local
	// user identifies nobody.
	ConnectPrincipal func(r *http.Request) (*mcp.Principal, error)
	// HTTP configures the paths: their limits, the origins of web pages and the names of hosts. Its
	// limits are for each path.
	HTTP mcphttp.Options
	// Card describes the gateway to everybody, without authorization, at /mcp/server-card and in the
	// catalogue /.well-known/ai-catalog.json; see package ext/servercard. It requires PublicURL and a
	// Version. The gateway sets its Remotes to /mcp, and an empty Name, Title or Description to a
	// text about Patchbay. It adds no servers, profiles or tools. Default: no card.
	Card *servercard.Card
	// Admin configures the admin API; see [Gateway.Admin].
	Admin AdminOptions
	// Logger logs problems. Default: slog.Default().
	Logger *slog.Logger
}

// A Gateway serves a [host.Host]. It is safe for concurrent use.
type Gateway struct {
	host     *host.Host
	opts     Options
	keys     []keyHash
	live     *liveKeys     // nil without a store
	tokens   *tokenChecker // nil if tokens are rejected
	failures failureCounter
	accepted acceptances
	refusals *limitedlog.Log
	connect  *connectPages
	cards    func(next http.Handler) http.Handler // nil without a card

	adminOnce sync.Once // sets admin
	admin     atomic.Pointer[admin]

	mu       sync.Mutex // guards the fields below
	handlers map[handlerKey]*mcphttp.Handler
	ended    map[handlerKey]*mcphttp.Handler // handlers that Shutdown ends, for Stats
	servers  map[*http.Server]struct{}
	over     bool
}

// A handlerKey identifies a handler. Callers with different limits never share a session.
type handlerKey struct {
	route  Route
	limits string
}

// A Route is a part of a host. The zero value is all of it.
type Route struct {
	// Profile is the name of a profile of the configuration. Default: all servers and tools.
	Profile string
	// Server is the name of one server, whose names and URIs are unchanged. Default: all servers of
	// the profile.
	Server string
}

// New returns a Gateway for a host, which the caller must close after the last request. The options
// may be nil. New panics if a key is shorter than 32 characters or an option of HTTP, OAuth or
// PublicURL is invalid.
func New(h *host.Host, o *Options) *Gateway {
	g := &Gateway{host: h, handlers: map[handlerKey]*mcphttp.Handler{}, servers: map[*http.Server]struct{}{}}
	if o != nil {
		g.opts = *o
	}
	g.opts.Logger = cmp.Or(g.opts.Logger, slog.Default())
	if g.opts.HTTP.Logger == nil {
		g.opts.HTTP.Logger = g.opts.Logger
	}
	g.keys = hashKeys(g.opts.Keys)
	g.opts.Keys = nil
	g.refusals = &limitedlog.Log{
		Logger: g.opts.Logger, Summary: "gateway: more requests without a valid key refused", What: "requests",
	}
	if g.opts.KeyStore != nil {
		g.live = &liveKeys{store: g.opts.KeyStore, log: g.opts.Logger,
			used:  func(k *Key) { g.recordKey(outcomeAccepted, k, nil) },
			ended: func(k *Key, why error) { g.recordKey(outcomeEnded, k, why) }}
		g.live.stop = state.Watch(g.live.store.state, stateKind, g.live.changed)
	}
	if err := errors.Join(g.usePublicURL(), g.useCard(), g.opts.Certificates.check()); err != nil {
		panic("gateway: New: " + err.Error())
	}
	g.connect = newConnectPages(g)
	g.handler(Route{}, &localGrant.limits) // an invalid option fails here
	return g
}

// check returns an error for a route to a profile or server that the configuration does not
// contain.
func (g *Gateway) check(r Route) error {
	only := g.opts.Profile
	switch {
	case only != "" && (r.Server != "" || r.Profile != "" && r.Profile != only):
		name := cmp.Or(r.Server, r.Profile)
		return fmt.Errorf("gateway: %q is not served: this gateway serves the profile %q only", name, only)
	case r.Profile != "" && !slices.Contains(g.host.Operator().Profiles(), r.Profile):
		return unknownRoute("profile", r.Profile)
	case r.Server != "" && !g.hasServer(r.Server):
		return unknownRoute("server", r.Server)
	}
	return nil
}

func (g *Gateway) hasServer(name string) bool {
	return slices.ContainsFunc(g.host.Upstreams(), func(u *host.Upstream) bool { return u.Name() == name })
}

// handler returns the handler of an existing route, or nil after Shutdown has begun.
func (g *Gateway) handler(r Route, l *limits) *mcphttp.Handler {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return nil
	}
	key := handlerKey{r, l.id}
	h := g.handlers[key]
	if h == nil {
		opts := g.opts.HTTP
		opts.Sessions.Scope = fmt.Sprintf("%q %s", []string{opts.Sessions.Scope, g.opts.Profile, r.Profile, r.Server},
			l.id)
		opts.Sessions.End = func(id string, cause error) {
			if errors.Is(cause, replica.ErrElsewhere) {
				g.host.Operator().LeaveSession(id)
			} else {
				g.host.Operator().EndSession(id)
			}
			if g.opts.HTTP.Sessions.End != nil {
				g.opts.HTTP.Sessions.End(id, cause)
			}
		}
		h = mcphttp.NewHandler(g.endpoint(r, l, ""), &opts)
		g.handlers[key] = h
	}
	return h
}

// Shutdown ends the requests of [Gateway.Serve] and [Gateway.Handler]: it rejects new requests,
// ends subscriptions with their result, lets calls finish, and then closes sessions. Shortly before
// the deadline of ctx it cancels the remaining calls. It returns the error of ctx if requests are
// still running. It does the same for the requests of other gateways: see LeaveCluster of operator.Sessions.
// Other connections of the host keep running.
func (g *Gateway) Shutdown(ctx context.Context) error {
	if a := g.admin.Load(); a != nil {
		a.cancel()
	}
	g.mu.Lock()
	g.over = true
	handlers, servers := g.handlers, g.servers
	g.handlers, g.servers = nil, nil
	if handlers != nil { // by the first Shutdown
		g.ended = handlers
	}
	g.mu.Unlock()
	var wait sync.WaitGroup
	var mu sync.Mutex
	var first error
	each := func(end func(context.Context) error) {
		wait.Go(func() {
			if err := end(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				first = err
			}
		})
	}
	if a := g.admin.Load(); a != nil { // attached clients are served until then
		each(func(ctx context.Context) error {
			if a.attached.wait(ctx); a.attached.count() > 0 {
				return ctx.Err()
			}
			return nil
		})
	}
	each(g.host.Operator().LeaveCluster)
	for _, h := range handlers {
		each(h.Shutdown)
	}
	wait.Wait() // before the servers: they wait for streams but do not end them
	for s := range servers {
		each(s.Shutdown)
	}
	wait.Wait()
	if g.live != nil {
		g.live.close()
	}
	if first != nil {
		for s := range servers {
			_ = s.Close() // the remaining connections do not end by themselves
		}
	}
	return first
}
