package mcphttp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// A guard decides whether a request may come in at all, from its headers alone. Every HTTP method and every transport
// of this package passes it first. What it keeps out are web pages that drive a server through the browser of a user
// (DNS rebinding and cross-site requests), and headers that two readers could read in two ways.
//
// Spec: basic/transports/streamable-http#security-&-endpoint
type guard struct {
	origins   map[string]bool // serialized origins
	hosts     map[string]bool // lower case, with or without a port
	anyOrigin bool
	anyHost   bool
	maxLines  int
	maxBytes  int
	log       *slog.Logger
}

func newGuard(o *Options) *guard {
	g := &guard{
		origins:   make(map[string]bool, len(o.AllowedOrigins)),
		hosts:     make(map[string]bool, len(o.AllowedHosts)),
		anyOrigin: o.InsecureAnyOrigin,
		anyHost:   o.InsecureAnyHost,
		maxLines:  o.MaxHeaderLines,
		maxBytes:  o.MaxHeaderBytes,
		log:       o.Logger,
	}
	for _, origin := range o.AllowedOrigins {
		g.origins[origin] = true
	}
	for _, host := range o.AllowedHosts {
		g.hosts[strings.ToLower(host)] = true
	}
	return g
}

// check returns the reason to keep the request out, or nil.
func (g *guard) check(r *http.Request, head *head) *refusal {
	if no := g.checkShape(head); no != nil {
		return no
	}
	if !g.hostAllowed(r) {
		g.logRefusal(r, "host is not allowed")
		return refuse(http.StatusForbidden, "host not allowed: a server at a loopback address answers to localhost; other names have to be listed in AllowedHosts")
	}
	if !g.originAllowed(r, head) {
		g.logRefusal(r, "origin is not allowed")
		return refuse(http.StatusForbidden, "origin not allowed: web pages of other origins have to be listed in AllowedOrigins")
	}
	return nil
}

func (g *guard) logRefusal(r *http.Request, why string) {
	g.log.WarnContext(r.Context(), "mcphttp: request refused", "reason", why,
		"method", r.Method, "host", r.Host, "origin", r.Header.Get("Origin"), "remote", r.RemoteAddr)
}

// checkShape bounds the header block, and refuses a header that decides something and stands twice: whoever reads the
// other one would decide otherwise.
func (g *guard) checkShape(head *head) *refusal {
	switch {
	case head.twice != "":
		return refuse(http.StatusBadRequest, "header "+head.twice+" is given twice")
	case head.lines > g.maxLines || head.size > g.maxBytes:
		return refuse(http.StatusRequestHeaderFieldsTooLarge, "header block is too large")
	}
	return nil
}

// hostAllowed defeats DNS rebinding: a page whose name was pointed at a loopback address still sends its own name.
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
	isLoopback := ok && isLoopbackName(name)
	if len(g.hosts) == 0 {
		return isLoopback || !onLoopback(r.Context())
	}
	return isLoopback && onLoopback(r.Context())
}

// onLoopback reports whether the connection came in at a loopback address.
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

// splitHost splits a Host header into its name, without the brackets of an IPv6 address, and its port, if it has one.
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
		return name, port, ok && isPort(port)
	}
	name, port, hasPort := strings.Cut(host, ":")
	if name == "" || hasPort && !isPort(port) {
		return "", "", false
	}
	return name, port, true
}

func isPort(s string) bool {
	if s == "" || len(s) > 5 {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// isLoopbackName compares ASCII only: folding Unicode would let look-alikes in.
func isLoopbackName(name string) bool {
	const localhost = "localhost"
	if name == localhost || name == "127.0.0.1" {
		return true // nearly all local clients say so
	}
	if len(name) == len(localhost) {
		same := true
		for i := range len(name) {
			same = same && name[i]|0x20 == localhost[i]
		}
		if same {
			return true
		}
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Zone() == "" && ip.IsLoopback()
}

// originAllowed keeps pages of other sites out. Browsers send Origin on every POST; on requests without one,
// Sec-Fetch-Site still tells where they come from. Programs send neither.
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

// hostProven reports whether the Host header is a name that nobody else can have pointed at this server: one that was
// allowed, a loopback name or an address. To a page that came by any other name, "same origin" means nothing: its owner
// chose both the name and the address behind it.
func (g *guard) hostProven(r *http.Request) bool {
	host := strings.ToLower(r.Host)
	name, _, ok := splitHost(host)
	if !ok {
		return false
	}
	if g.hosts[host] || g.hosts[name] || isLoopbackName(name) {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// isSameOrigin reports whether origin is that of the server itself. A page of https counts also when the connection is
// not encrypted: then a proxy in front of the server took the encryption off.
func isSameOrigin(origin string, r *http.Request) bool {
	scheme, host, ok := strings.Cut(origin, "://")
	if !ok || host == "" || !(scheme == "https" || scheme == "http" && r.TLS == nil) {
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

// checkOrigin says what is wrong with an entry of AllowedOrigins: it is compared byte by byte with what browsers send.
func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin || origin != strings.ToLower(origin) {
		return fmt.Errorf("AllowedOrigins: %q: want scheme://host or scheme://host:port in lower case", origin)
	}
	return nil
}

// checkHost says what is wrong with an entry of AllowedHosts.
func checkHost(host string) error {
	if _, _, ok := splitHost(host); !ok {
		return fmt.Errorf("AllowedHosts: %q: want host or host:port", host)
	}
	return nil
}
