package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/netx"
)

// Limits of the HTTP server of [Gateway.Serve], as those of [mcphttp.Serve].
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

// Handler returns the handler of all paths. A request without a valid key has the status 401, one for
// an unknown profile or server 404. With [Options].InsecureNoAuth, only connections to a loopback
// address of an http.Server are served. Call [Gateway.Shutdown] before the Shutdown of the server.
func (g *Gateway) Handler() http.Handler {
	paths := http.NewServeMux()
	serve := func(w http.ResponseWriter, r *http.Request) {
		g.serveRoute(w, r, Route{Profile: r.PathValue("profile"), Server: r.PathValue("server")})
	}
	for _, path := range []string{pathAll, pathProfile, pathServer} {
		paths.HandleFunc(path, serve)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isRoute := r.URL.Path == pathAll || strings.HasPrefix(r.URL.Path, pathAll+"/")
		switch {
		case !isRoute:
			notFound(w, r)
		case isPreflight(r): // the response says nothing about profiles and servers
			g.serveRoute(w, r, Route{})
		case g.mayServe(r):
			paths.ServeHTTP(w, withoutKey(r))
		default:
			g.refuse(w, r)
		}
	})
}

// mayServe reports whether a request has a valid key or needs none.
func (g *Gateway) mayServe(r *http.Request) bool {
	if !g.opts.InsecureNoAuth {
		return g.hasKey(r)
	}
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return onLoopback(addr)
}

// isPreflight reports whether a browser asks which requests a page may send. It sends no key.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// withoutKey returns the request for handlers, which must not be able to pass the key on.
func withoutKey(r *http.Request) *http.Request {
	if _, ok := r.Header["Authorization"]; !ok {
		return r
	}
	r = r.WithContext(r.Context())
	r.Header = maps.Clone(r.Header)
	delete(r.Header, "Authorization")
	return r
}

func (g *Gateway) serveRoute(w http.ResponseWriter, r *http.Request, route Route) {
	if err := g.check(route); err != nil {
		limitBodyTime(w)
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	h := g.handler(route)
	if h == nil {
		http.Error(w, "the gateway is shutting down", http.StatusServiceUnavailable)
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

// Serve serves HTTP on a listener until ctx or [Gateway.Shutdown] ends it. At the end of ctx it shuts
// the Gateway down, which takes up to 12 seconds. It closes the listener, and returns nil unless the
// listener or the shutdown fails. Serve fails at once without a key: with [Options].InsecureNoAuth it
// needs none, but then the listener must have a loopback address.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	if err := g.checkListener(l); err != nil {
		_ = l.Close() // it was not used
		return err
	}
	log := g.opts.HTTP.Logger
	server := &http.Server{
		Handler: g.Handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: max(g.opts.HTTP.MaxHeaderBytes, maxHeaderBytes),
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		BaseContext:    func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
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
	case !g.opts.InsecureNoAuth && len(g.keys) == 0:
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
	return ok && tcp.Zone == "" && netx.IsLoopbackAddr(ip)
}
