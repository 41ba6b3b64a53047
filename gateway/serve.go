package gateway

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/limitedlog"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Limits of the HTTP server of [Gateway.Serve], equal to the limits of [mcphttp.Serve].
const (
	headerTimeout   = 10 * time.Second  // for the headers of a request to arrive
	idleTimeout     = 120 * time.Second // between two requests of a connection
	shutdownTimeout = 12 * time.Second  // 10 for calls to finish, 2 to answer canceled calls
	maxHeaderBytes  = 64 << 10          // the default of mcphttp
)

// Paths of the routes.
const (
	pathAll     = "/mcp"
	pathProfile = "/mcp/p/{profile}"
	pathServer  = "/mcp/s/{server}"
)

// Handler returns the handler of all paths. A request without a valid key or token gets the status
// 401, or 429 if its address sent many such requests; a request for an unknown profile or server,
// or one that its key does not grant, gets 404. With [Options].InsecureNoAuth, the handler serves
// only connections to a loopback address of an http.Server. Call [Gateway.Shutdown] before the
// Shutdown of the server.
func (g *Gateway) Handler() http.Handler {
	paths := http.NewServeMux()
	serve := func(w http.ResponseWriter, r *http.Request) {
		g.serveRoute(w, r, Route{Profile: r.PathValue("profile"), Server: r.PathValue("server")})
	}
	for _, path := range []string{pathAll, pathProfile, pathServer} {
		paths.HandleFunc(path, serve)
	}
	protected := g.protect(paths)
	all := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isRoute := r.URL.Path == pathAll || strings.HasPrefix(r.URL.Path, pathAll+"/")
		switch {
		case strings.HasPrefix(r.URL.Path, pathConnect+"/"):
			g.connect.ServeHTTP(w, r)
		case !isRoute && g.tokens != nil && g.tokens.serveMetadata(w, r):
		case !isRoute:
			notFound(w, r)
		case isPreflight(r): // the response does not depend on profiles and servers
			g.serveRoute(w, r, Route{})
		default:
			protected.ServeHTTP(w, r)
		}
	})
	if g.cards == nil {
		return all
	}
	return g.cards(all)
}

// isPreflight reports whether a browser asks which requests a page may send. Such a request
// contains no key.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

func (g *Gateway) serveRoute(w http.ResponseWriter, r *http.Request, route Route) {
	a := grantFrom(r.Context())
	allowed, err := a.route(route)
	if err == nil {
		err = g.check(allowed)
	}
	if err == nil && mcp.PrincipalFrom(r.Context()) != nil && g.host.Operator().IsLocal(allowed.Server) {
		err = unknownRoute("server", allowed.Server)
	}
	if err != nil {
		limitBodyTime(w)
		g.refuseHTTP(w, http.StatusNotFound, err.Error())
		return
	}
	h := g.handler(allowed, &a.limits)
	if h == nil {
		g.refuseHTTP(w, http.StatusServiceUnavailable, "the gateway is shutting down")
		return
	}
	h.ServeHTTP(w, r)
}

func notFound(w http.ResponseWriter, r *http.Request) {
	limitBodyTime(w)
	http.NotFound(w, r)
}

// refusedBodyTimeout is how long the body of a refused request may take to arrive.
const refusedBodyTimeout = 5 * time.Second

func limitBodyTime(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedBodyTimeout)) // fails only in tests
}

// Serve serves HTTP on a listener until ctx or [Gateway.Shutdown] ends it. At the end of ctx it
// shuts the Gateway down, which takes up to 12 seconds. It closes the listener, and returns nil
// unless the listener or the shutdown fails. Serve fails at once if no key and no token can be
// valid: with [Options].InsecureNoAuth it requires no key, but then the listener must use a
// loopback address.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	if err := g.checkListener(l); err != nil {
		_ = l.Close() // it was not used
		return err
	}
	g.connect.listensAt(l.Addr())
	server := &http.Server{
		Handler: g.Handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: max(g.opts.HTTP.MaxHeaderBytes, maxHeaderBytes),
		ErrorLog: log.New(&limitedlog.Log{Logger: g.opts.HTTP.Logger, Summary: "gateway: more connections failed",
			What: "connections"}, "", 0),
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	g.mu.Lock()
	over := g.over
	if !over {
		g.servers[server] = struct{}{}
	}
	g.mu.Unlock()
	if over {
		_ = l.Close()
		return http.ErrServerClosed
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }() // ends with the server
	select {
	case err := <-failed:
		if errors.Is(err, http.ErrServerClosed) { // by Shutdown
			return nil
		}
		return errors.Join(err, g.shutdown())
	case <-ctx.Done():
		err := g.shutdown()
		<-failed //nolint:errcheck // the server was shut down
		return err
	}
}

func (g *Gateway) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	return g.Shutdown(ctx)
}

func (g *Gateway) checkListener(l net.Listener) error {
	switch {
	case g.opts.InsecureNoAuth && !onLoopback(l.Addr()):
		return fmt.Errorf("gateway: invalid listener at %s: must have a loopback address without authorization",
			l.Addr())
	case !g.opts.InsecureNoAuth && len(g.keys) == 0 && g.live == nil && g.tokens == nil && g.opts.Certificates == nil:
		return errors.New("gateway: missing key: HTTP is served to clients with a key only")
	}
	return nil
}

func onLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return false
	}
	ip, ok := netip.AddrFromSlice(tcp.IP)
	return ok && tcp.Zone == "" && netx.IsLocalAddr(ip)
}
