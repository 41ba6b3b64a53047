package mcphttp

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/limitedlog"
	"github.com/patchbay-mcp/patchbay/internal/netx"
)

// A guard decides from the headers whether a request is admitted. Every HTTP method and every
// transport of this package passes it first. It refuses web pages that use a server through the
// browser of a user (DNS rebinding and cross-site requests), and headers that two readers could
// read differently. Spec: basic/transports/streamable-http#security-&-endpoint
type guard struct {
	origins   map[string]bool // serialized origins
	hosts     map[string]bool // lower case, with or without a port
	anyOrigin bool
	anyHost   bool
	maxLines  int
	maxBytes  int
	refusals  limitedLog
}

func newGuard(o *Options) *guard {
	g := &guard{
		origins:   make(map[string]bool, len(o.AllowedOrigins)),
		hosts:     make(map[string]bool, len(o.AllowedHosts)),
		anyOrigin: o.InsecureAnyOrigin, anyHost: o.InsecureAnyHost,
		maxLines: o.MaxHeaderLines, maxBytes: o.MaxHeaderBytes,
		refusals: limitedLog{limitedlog.Log{Logger: o.Logger, Summary: "mcphttp: more requests refused",
			What: "requests"}},
	}
	for _, origin := range o.AllowedOrigins {
		g.origins[origin] = true
	}
	for _, host := range o.AllowedHosts {
		g.hosts[strings.ToLower(host)] = true
	}
	return g
}

func (g *guard) check(r *http.Request, head *head) *refusal {
	if no := g.checkShape(head); no != nil {
		return no
	}
	if !g.hostAllowed(r) {
		g.refusals.refused(r, "host is not allowed")
		return refuse(http.StatusForbidden,
			"host not allowed: on a loopback address only localhost is; other names must be "+
				"listed in the setting allowedHosts (in Go: AllowedHosts)")
	}
	if !g.originAllowed(r, head) {
		g.refusals.refused(r, "origin is not allowed")
		return refuse(http.StatusForbidden,
			"origin not allowed: the server must allow other origins (in Go: AllowedOrigins)")
	}
	return nil
}

// checkShape limits the header block, and refuses repeated headers where another reader could use
// the other value.
func (g *guard) checkShape(head *head) *refusal {
	switch {
	case mirrorsBody(head.repeated):
		return &refusal{http.StatusBadRequest, mismatch("header " + head.repeated + " is repeated")}
	case head.repeated != "":
		return refuse(http.StatusBadRequest, "header "+head.repeated+" is repeated")
	case head.lines > g.maxLines || head.size > g.maxBytes:
		return refuse(http.StatusRequestHeaderFieldsTooLarge, "header block is too large")
	}
	return nil
}

// hostAllowed prevents DNS rebinding: a page whose name resolves to a loopback address still sends
// that name.
func (g *guard) hostAllowed(r *http.Request) bool {
	if g.anyHost {
		return true
	}
	if len(g.hosts) > 0 {
		host := strings.ToLower(r.Host)
		name, _, _ := splitHost(host)
		if g.hosts[host] || name != "" && g.hosts[name] {
			return true
		}
	}
	name, _, ok := splitHost(r.Host)
	isLoopback := ok && netx.IsLoopback(name)
	if len(g.hosts) == 0 {
		return isLoopback || !onLoopback(r.Context())
	}
	return isLoopback && onLoopback(r.Context())
}

func onLoopback(ctx context.Context) bool {
	addr, _ := ctx.Value(http.LocalAddrContextKey).(net.Addr)
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.IP.IsLoopback()
	}
	if addr == nil {
		return false
	}
	ap, err := netip.ParseAddrPort(addr.String())
	return err == nil && ap.Addr().IsLoopback()
}

// splitHost splits a Host header into its name, without the brackets of an IPv6 address, and its
// port, if it contains a port.
func splitHost(host string) (name, port string, ok bool) {
	if rest, bracketed := strings.CutPrefix(host, "["); bracketed {
		name, port, ok = strings.Cut(rest, "]")
		if !ok || !strings.Contains(name, ":") {
			return "", "", false
		}
		if port == "" {
			return name, "", true
		}
		port, ok = strings.CutPrefix(port, ":")
		return name, port, ok && netx.IsPort(port)
	}
	name, port, hasPort := strings.Cut(host, ":")
	if name == "" || hasPort && !netx.IsPort(port) {
		return "", "", false
	}
	return name, port, true
}

// originAllowed refuses pages of other sites. Browsers send Origin with every POST. For requests
// without it Sec-Fetch-Site shows where they come from. Programs send neither.
func (g *guard) originAllowed(r *http.Request, head *head) bool {
	if g.anyOrigin {
		return true
	}
	if origin := head.origin; origin.sent {
		return g.origins[origin.value] || isSameOrigin(origin.value, r) && g.hostProven(r)
	}
	if site := head.fetchSite; site.sent {
		return site.value == "none" || site.value == "same-origin" && g.hostProven(r)
	}
	return true
}

// hostProven reports whether the Host header is a name that an attacker could not point at this
// server: an allowed name, a loopback name or an address. For any other name "same origin" proves
// no more, since its owner controls both the page and the address.
func (g *guard) hostProven(r *http.Request) bool {
	host := strings.ToLower(r.Host)
	name, _, ok := splitHost(host)
	if !ok {
		return false
	}
	if g.hosts[host] || g.hosts[name] || netx.IsLoopback(name) {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// isSameOrigin reports whether origin is the server's own. An https origin is also accepted on a
// connection without TLS, which a proxy has terminated.
func isSameOrigin(origin string, r *http.Request) bool {
	scheme, host, ok := strings.Cut(origin, "://")
	if !ok || host == "" || strings.Contains(host, "@") || !(scheme == "https" || scheme == "http" && r.TLS == nil) {
		return false
	}
	if host == r.Host {
		return true
	}
	defaultPort := ":80"
	if scheme == "https" {
		defaultPort = ":443"
	}
	return host+defaultPort == r.Host // browsers leave the default port out, others may not
}

// checkOrigin validates an entry of AllowedOrigins, which is compared byte by byte with what
// browsers send.
func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme == "" || u.Host == "" ||
		u.Scheme+"://"+u.Host != origin || origin != strings.ToLower(origin) {
		return fmt.Errorf("invalid AllowedOrigins entry %q: must be scheme://host or scheme://host:port in lower case",
			origin)
	}
	return nil
}

func checkHost(host string) error {
	if _, _, ok := splitHost(host); !ok {
		return fmt.Errorf("invalid AllowedHosts entry %q: must be host or host:port", host)
	}
	return nil
}

// corsMaxAge is how long a browser may cache a preflight response, in seconds: long enough to save
// most preflights, short enough for a change of AllowedOrigins to take effect.
const corsMaxAge = "600"

// allowOrigin lets the page that sent the request read the response, if its origin is allowed.
// Pages of the server's own origin need no CORS headers.
func (g *guard) allowOrigin(w http.ResponseWriter, origin field) {
	if len(g.origins) == 0 && !g.anyOrigin {
		return
	}
	header := w.Header()
	header.Add("Vary", "Origin")
	if !origin.sent || !g.anyOrigin && !g.origins[origin.value] {
		return
	}
	header.Set("Access-Control-Allow-Origin", origin.value)
	header.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, Mcp-Protocol-Version, Retry-After, WWW-Authenticate")
}

// serveOptions serves OPTIONS, which browsers send as a preflight.
func (h *Handler) serveOptions(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Allow", h.opts.Sessions.allowedMethods())
	if header.Get("Access-Control-Allow-Origin") != "" && r.Header.Get("Access-Control-Request-Method") != "" {
		header.Set("Access-Control-Allow-Methods", strings.TrimSuffix(h.opts.Sessions.allowedMethods(), ", OPTIONS"))
		header.Set("Access-Control-Max-Age", corsMaxAge)
		if requested := r.Header.Get("Access-Control-Request-Headers"); requested != "" {
			// An allowed origin may send any header: tools choose the Mcp-Param headers, and
			// middleware chooses the headers of authentication.
			header.Set("Access-Control-Allow-Headers", requested)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}
