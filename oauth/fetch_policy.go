package oauth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxURL bounds a URL that comes from somebody else, in bytes. Browsers and servers take about twice as much.
const maxURL = 4 << 10

// ErrURLRefused is within the error of everything that a [Fetcher] does not do by its rules: the URL, or the address that
// its host has, is one that the server which named it has no right to.
var ErrURLRefused = errors.New("the URL is refused")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrURLRefused, fmt.Sprintf(format, args...))
}

// A policy says what may be fetched. It is the one place that does.
type policy struct {
	allowed    map[string]bool // hosts, with a port or without
	anyAddress bool
	proxies    bool  // dial where names lead, unseen
	home       *home // nil if nobody asks in particular

	// lookup and connect are the network. What connect connects to it shows to check before.
	lookup  func(ctx context.Context, host string) ([]netip.Addr, error)
	connect func(ctx context.Context, network, address string, check checkFunc) (net.Conn, error)
}

// A checkFunc says whether an address may be connected to. Names have become addresses when it is asked.
type checkFunc func(ctx context.Context, address string) error

func lookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// connectChecked asks check about each address that is tried, when its socket has been made and not yet connected.
func connectChecked(ctx context.Context, network, address string, check checkFunc) (net.Conn, error) {
	dialer := &net.Dialer{ControlContext: func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		return check(ctx, address)
	}}
	return dialer.DialContext(ctx, network, address)
}

// parseURL reads a URL that somebody else wrote. What it gives is shown in errors also where it is refused.
func parseURL(text string) (*url.URL, error) {
	if len(text) > maxURL {
		return nil, refuse("it is longer than %d bytes", maxURL)
	}
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			return nil, refuse("it has a character that URLs do not have")
		}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, refuse("it cannot be read")
	case strings.Contains(text, "#"):
		return u, refuse("it has a fragment")
	}
	return u, nil
}

// checkText is check for a URL as it stands in a document.
func (p *policy) checkText(text string) (*url.URL, error) {
	u, err := parseURL(text)
	if err == nil {
		err = p.check(u)
	}
	if err != nil {
		return nil, err
	}
	return u, nil
}

// check refuses URLs that cannot be fetched wherever their hosts are. Where these are is seen when they are dialled.
func (p *policy) check(u *url.URL) error {
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return refuse("its scheme is not https")
	case u.User != nil:
		return refuse("it holds a user")
	case u.Fragment != "":
		return refuse("it has a fragment")
	}
	if err := checkHost(u); err != nil {
		return err
	}
	if u.Scheme == "http" && !p.allowsPlain(u) {
		return refuse("http is for servers on this machine that are called there")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		return p.checkLiteral(u, a)
	}
	return nil
}

// checkHost refuses a URL whose host or port cannot be one: escapes and zones have two readings, and names in other scripts
// travel in their ASCII form.
func checkHost(u *url.URL) error {
	host := u.Hostname()
	isName := !strings.ContainsFunc(host, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	})
	if a, err := netip.ParseAddr(host); err == nil {
		isName = a.Zone() == ""
	}
	if u.Opaque != "" || host == "" || !isName {
		return refuse("it has no host")
	}
	if port, err := strconv.ParseUint(portOf(u), 10, 16); err != nil || port == 0 {
		return refuse("its port is none")
	}
	return nil
}

// checkLiteral refuses addresses for which it needs no lookup of the home.
func (p *policy) checkLiteral(u *url.URL, a netip.Addr) error {
	if p.anyAddress || p.isAllowed(hostKey(u)) {
		return nil
	}
	near, known := p.knownHomeZone()
	near = min(near, p.reach())
	if z := zoneOf(a); z == nowhere || z > near && (known || p.proxies) {
		return refuse("%s is a %v address", a, z)
	}
	return nil
}

// allowsPlain reports whether a URL may be http: on this machine, for a server that is called there.
func (p *policy) allowsPlain(u *url.URL) bool {
	return p.anyAddress || isLoopbackName(u.Hostname()) && p.isHomeLoopback()
}

func (p *policy) isHomeLoopback() bool { return p.home != nil && isLoopbackName(p.home.host) }

func (p *policy) isHome(host string) bool {
	return p.home != nil && strings.EqualFold(p.home.host, host)
}

func (p *policy) isAllowed(host string) bool {
	name, _, err := net.SplitHostPort(host)
	return err == nil && (p.allowed[host] || p.allowed[name] || strings.Contains(name, ":") && p.allowed["["+name+"]"])
}

// isLoopbackName reports whether a host is this machine by how it is written.
func isLoopbackName(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && zoneOf(a) == loopback || strings.EqualFold(host, "localhost")
}

// A trip is what dialling knows of the request that it is for.
type trip struct {
	host  string // as it stands in the URL, lower case, with its port
	plain bool   // by http
	proxy string // the host of the proxy, with its port; empty without one
}

type tripKey struct{}

// proxied notes the proxy of a request, which is dialled in place of the host.
func (p *policy) proxied(choose func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(req *http.Request) (*url.URL, error) {
		proxy, err := choose(req)
		if t, ok := req.Context().Value(tripKey{}).(*trip); ok && err == nil && proxy != nil {
			t.proxy = hostKey(proxy)
		}
		return proxy, err
	}
}

// dial connects to a host if the address that is about to be connected to may be reached.
func (p *policy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	t, ok := ctx.Value(tripKey{}).(*trip)
	if !ok {
		return nil, refuse("it did not pass the guard")
	}
	return p.connect(ctx, network, address, func(ctx context.Context, address string) error {
		if t.proxy != "" {
			return nil // whom the caller trusts with it
		}
		return p.checkAddress(ctx, t, address)
	})
}

// checkAddress is the last word on what is reached.
func (p *policy) checkAddress(ctx context.Context, t *trip, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return refuse("its address cannot be read")
	}
	if p.anyAddress {
		return nil
	}
	z := zoneOf(at.Addr())
	if t.plain && z != loopback {
		return refuse("http is for this machine, and the host is not there")
	}
	if p.isAllowed(t.host) {
		return nil
	}
	name, _, _ := net.SplitHostPort(t.host)
	own := p.isHome(name)
	if z == nowhere {
		return refuse("its host has a %v address", z)
	}
	if z == public && !own {
		return nil
	}
	near, err := p.homeZone(ctx)
	if err == nil && !own {
		near = min(near, p.reach())
	}
	switch {
	case err != nil:
		return err
	case z > near && p.home == nil:
		return refuse("its host has a %v address; FetcherOptions.AllowedHosts opens it", z)
	case z > near:
		return refuse("its host has a %v address, and the MCP server a %v one; FetcherOptions.AllowedHosts opens it", z, near)
	case own && z < near:
		return refuse("the address of the MCP server has changed")
	}
	return nil
}

// homeZone tells how near the MCP server is: as near as the farthest of its addresses. What it finds is kept, and what is
// fetched from the server's host has to be as near, since otherwise the one who answers for the name could say one thing
// here and another there.
func (p *policy) homeZone(ctx context.Context) (zone, error) {
	if z, ok := p.knownHomeZone(); ok {
		return z, nil
	}
	h := p.home
	all, err := p.lookup(ctx, h.host)
	if err != nil {
		return public, fmt.Errorf("look up the MCP server: %w", err)
	}
	z := loopback
	for _, a := range all {
		z = min(z, max(zoneOf(a), public))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isStale() {
		h.zone, h.looked = z, time.Now()
	}
	return h.zone, nil
}

// knownHomeZone is homeZone as far as it needs no lookup.
func (p *policy) knownHomeZone() (z zone, known bool) {
	if p.home == nil {
		return public, true
	}
	if isLoopbackName(p.home.host) {
		return loopback, true
	}
	if a, err := netip.ParseAddr(p.home.host); err == nil {
		return max(zoneOf(a), public), true
	}
	p.home.mu.Lock()
	defer p.home.mu.Unlock()
	return max(p.home.zone, public), !p.home.isStale()
}

// reach is how near anything but the home may be. Where the home is written as an address it needs no other bound.
func (p *policy) reach() zone {
	if p.home == nil {
		return public
	}
	if _, err := netip.ParseAddr(p.home.host); err == nil || isLoopbackName(p.home.host) {
		return loopback
	}
	return p.home.reach
}

// isStale reports whether the zone is to be looked up. The caller holds mu.
func (h *home) isStale() bool {
	return h.zone == nowhere || h.moves && time.Since(h.looked) >= zoneLife
}

// isSameOrigin reports whether two URLs have the same scheme, host and port.
//
// Spec: RFC 6454, section 5.
func isSameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && portOf(a) == portOf(b)
}

func portOf(u *url.URL) string {
	switch port := u.Port(); {
	case port != "":
		return port
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// hostKey is the host of a URL with its port, in lower case.
func hostKey(u *url.URL) string {
	return net.JoinHostPort(strings.ToLower(u.Hostname()), portOf(u))
}

// shown is a URL without what may be secret in it.
func shown(u *url.URL) string {
	if u == nil {
		return "a URL"
	}
	const enough = 200 // of a path, for errors that people read
	text := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
	if len(text) > enough {
		text = text[:enough] + "…"
	}
	return text
}
