package oauthfetch

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/netx"
)

// MaxURL bounds a URL that a peer wrote, in bytes. Browsers and servers accept about twice as much.
const MaxURL = 4 << 10

// proxyLookupTimeout bounds the lookup of a host that is reached through a proxy. Behind a proxy
// names of the Internet may not resolve, and a DNS server that does not respond must not delay the
// request for longer.
const proxyLookupTimeout = 2 * time.Second

// sourceScopeLifetime is how long the scope of a server is cached: longer than a discovery takes.
const sourceScopeLifetime = time.Minute

type policy struct {
	allowed    map[string]bool // hosts, with a port or without
	anyAddress bool
	proxies    bool    // requests may go through a proxy, which resolves names itself
	source     *source // the server that names the URLs; may be nil

	// lookup and connect are the network. connect calls check before it connects to an address.
	lookup  func(ctx context.Context, host string) ([]netip.Addr, error)
	connect func(ctx context.Context, network, address string, check CheckFunc) (net.Conn, error)
}

// A source is the server that names the URLs, which may be as near as the server itself.
type source struct {
	host    string       // lower case, without the port
	limit   NetworkScope // the nearest scope of other hosts than its own
	expires bool         // the scope is looked up again after sourceScopeLifetime

	mu       sync.Mutex   // guards the fields below
	scope    NetworkScope // Unusable until it is known
	lookedUp time.Time    // when it was found
}

// isStale reports whether the scope must be looked up. The caller holds mu.
func (s *source) isStale() bool {
	return s.scope == Unusable || s.expires && time.Since(s.lookedUp) >= sourceScopeLifetime
}

// A CheckFunc decides whether an address, with its port, may be connected to. Names are resolved
// before it is called.
type CheckFunc func(ctx context.Context, address string) error

// SetNetwork replaces the network of a Fetcher, and of the Fetchers that are derived from it later.
// It is for tests.
func (f *Fetcher) SetNetwork(
	lookup func(ctx context.Context, host string) ([]netip.Addr, error),
	connect func(ctx context.Context, network, address string, check CheckFunc) (net.Conn, error),
) {
	f.policy.lookup, f.policy.connect = lookup, connect
}

func lookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

func connectChecked(ctx context.Context, network, address string, check CheckFunc) (net.Conn, error) {
	dialer := &net.Dialer{ControlContext: func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		return check(ctx, address)
	}}
	return dialer.DialContext(ctx, network, address)
}

// ParseURL parses a URL that a peer wrote. It also returns a URL that it refuses, if it can, for
// [ShownURL].
func ParseURL(text string) (*url.URL, error) {
	if len(text) > MaxURL {
		return nil, refuse("longer than %d bytes", MaxURL)
	}
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			return nil, refuse("character %q: must be printable ASCII without spaces and backslashes", c)
		}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, refuse("malformed")
	case strings.Contains(text, "#"):
		return u, refuse("must not have a fragment")
	}
	return u, nil
}

// CheckURL is [Fetcher.CheckURL] of a Fetcher without options.
func CheckURL(text string) (*url.URL, error) { return (&policy{}).checkText(text) }

func (p *policy) checkText(text string) (*url.URL, error) {
	u, err := ParseURL(text)
	if err == nil {
		err = p.check(u)
	}
	return u, err
}

// check refuses URLs that may not be fetched, whatever the addresses of their hosts are.
func (p *policy) check(u *url.URL) error {
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return refuse("scheme %.32q: must be https", u.Scheme)
	case u.User != nil:
		return refuse("must not have a user")
	case u.Fragment != "":
		return refuse("must not have a fragment")
	}
	if err := CheckHost(u); err != nil {
		return err
	}
	if u.Scheme == "http" && !p.allowsPlain(u) {
		return refuse(
			`scheme "http": must be https, unless it is on this machine and a server on this machine names it`)
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		return p.checkLiteral(u, a)
	}
	return nil
}

// CheckHost refuses a URL without a valid host and port. Escapes and IPv6 zones are ambiguous, and
// names in other scripts must be in their ASCII form.
func CheckHost(u *url.URL) error {
	host := u.Hostname()
	isName := !strings.ContainsFunc(host, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	})
	if a, err := netip.ParseAddr(host); err == nil {
		isName = a.Zone() == ""
	}
	if u.Opaque != "" || host == "" || !isName {
		return refuse("must have a host, in ASCII")
	}
	if !netx.HasValidPort(u) {
		return refuse("port %q: must be 1 to 65535", u.Port())
	}
	return nil
}

// checkLiteral refuses an address in a URL as far as possible without a lookup of the source.
func (p *policy) checkLiteral(u *url.URL, a netip.Addr) error {
	if p.anyAddress || p.isAllowed(netx.HostPort(u)) {
		return nil
	}
	nearest, known := p.knownSourceScope()
	nearest = min(nearest, p.limit())
	if s := ScopeOf(a); s == Unusable || s > nearest && (known || p.proxies) {
		return refuse("host %s is a %v address", a, s)
	}
	return nil
}

func (p *policy) allowsPlain(u *url.URL) bool {
	return p.anyAddress || netx.IsLoopback(u.Hostname()) && p.source != nil && netx.IsLoopback(p.source.host)
}

func (p *policy) isSource(host string) bool {
	return p.source != nil && strings.EqualFold(p.source.host, host)
}

func (p *policy) isAllowed(host string) bool {
	name, _, err := net.SplitHostPort(host)
	return err == nil && (p.allowed[host] || p.allowed[name] || strings.Contains(name, ":") && p.allowed["["+name+"]"])
}

type dialInfo struct {
	host  string // of the URL, lower case, with its port
	plain bool   // by http
	proxy string // the host of the proxy, with its port; empty without a proxy
}

type dialInfoKey struct{}

// proxied records the proxy of a request, which is dialled instead of the host.
func (p *policy) proxied(choose func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(req *http.Request) (*url.URL, error) {
		proxy, err := choose(req)
		if d, ok := req.Context().Value(dialInfoKey{}).(*dialInfo); ok && err == nil && proxy != nil {
			d.proxy = netx.HostPort(proxy)
		}
		return proxy, err
	}
}

func (p *policy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d, ok := ctx.Value(dialInfoKey{}).(*dialInfo)
	if !ok {
		return nil, refuse("the request has not been checked")
	}
	if d.proxy == "" {
		return p.connect(ctx, network, address, func(ctx context.Context, address string) error {
			return p.checkAddress(ctx, d, address)
		})
	}
	if err := p.checkBeforeProxy(ctx, d); err != nil {
		return nil, err
	}
	return p.connect(ctx, network, address, func(context.Context, string) error { return nil })
}

// checkBeforeProxy checks all addresses of a host before a proxy is asked to connect to it, since
// the proxy may choose any of them. A name that does not resolve here is for the proxy to resolve
// and check.
func (p *policy) checkBeforeProxy(ctx context.Context, d *dialInfo) error {
	name, port, err := net.SplitHostPort(d.host)
	if err != nil {
		return refuse("malformed host")
	}
	var all []netip.Addr
	if literal, err := netip.ParseAddr(name); err == nil {
		all = []netip.Addr{literal}
	} else {
		ctx, cancel := context.WithTimeout(ctx, proxyLookupTimeout)
		defer cancel()
		if all, err = p.lookup(ctx, name); err != nil {
			return nil
		}
	}
	for _, a := range all {
		if err := p.checkAddress(ctx, d, net.JoinHostPort(a.String(), port)); err != nil {
			return err
		}
	}
	return nil
}

func (p *policy) checkAddress(ctx context.Context, d *dialInfo, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return refuse("malformed address")
	}
	if p.anyAddress {
		return nil
	}
	scope := ScopeOf(at.Addr())
	if d.plain && scope != Loopback {
		return refuse("http is only allowed on this machine, and the host has a %v address", scope)
	}
	if p.isAllowed(d.host) {
		return nil
	}
	name, _, _ := net.SplitHostPort(d.host)
	isSource := p.isSource(name)
	if scope == Unusable {
		return refuse("the host has a %v address", scope)
	}
	if scope == Public && !isSource {
		return nil
	}
	nearest, err := p.sourceScope(ctx)
	if err == nil && !isSource {
		nearest = min(nearest, p.limit())
	}
	switch {
	case err != nil:
		return err
	case scope > nearest && p.source == nil:
		return refuse("the host has a %v address and is not an allowed host", scope)
	case scope > nearest:
		return refuse("the host has a %v address and the server that names it a %v one, "+
			"and the host is not an allowed host", scope, nearest)
	case isSource && scope < nearest:
		return refuse("the address of the server has changed during the discovery")
	}
	return nil
}

// sourceScope returns the scope of the source: the farthest of its addresses. It is cached, and
// requests to the source itself must be of the same scope, since a DNS server could return a
// different address here and another one when it is dialled.
func (p *policy) sourceScope(ctx context.Context) (NetworkScope, error) {
	if scope, ok := p.knownSourceScope(); ok {
		return scope, nil
	}
	s := p.source
	all, err := p.lookup(ctx, s.host)
	if err != nil {
		return Public, fmt.Errorf("look up the server: %w", err)
	}
	scope := Loopback
	for _, a := range all {
		scope = min(scope, max(ScopeOf(a), Public))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isStale() {
		s.scope, s.lookedUp = scope, time.Now()
	}
	return s.scope, nil
}

func (p *policy) knownSourceScope() (scope NetworkScope, known bool) {
	if p.source == nil {
		return Public, true
	}
	if netx.IsLoopback(p.source.host) {
		return Loopback, true
	} else if a, err := netip.ParseAddr(p.source.host); err == nil {
		return max(ScopeOf(a), Public), true
	}
	p.source.mu.Lock()
	defer p.source.mu.Unlock()
	return max(p.source.scope, Public), !p.source.isStale()
}

// limit returns the nearest scope of other hosts than the source. A source without a name needs no
// limit, since its address cannot change.
func (p *policy) limit() NetworkScope {
	if p.source == nil {
		return Public
	}
	if _, err := netip.ParseAddr(p.source.host); err == nil || netx.IsLoopback(p.source.host) {
		return Loopback
	}
	return p.source.limit
}

// A NetworkScope is from where an address can be reached. A greater scope is nearer to this
// machine.
type NetworkScope uint8

// The scopes of addresses.
const (
	Unusable NetworkScope = iota // no document and no endpoint can be at such an address; also: not known yet
	Public                       // reachable from the Internet
	Private                      // within the network of a company or a household
	Loopback                     // this machine
)

// String names the scope, for errors.
func (s NetworkScope) String() string {
	switch s {
	case Public:
		return "public"
	case Private:
		return "private"
	case Loopback:
		return "loopback"
	}
	return "special-purpose"
}

// MarshalText returns the name of the scope, for storage.
func (s NetworkScope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the name of a scope. An unknown name is Unusable.
func (s *NetworkScope) UnmarshalText(text []byte) error {
	*s = Unusable
	for _, known := range []NetworkScope{Public, Private, Loopback} {
		if known.String() == string(text) {
			*s = known
		}
	}
	return nil
}

// specialRanges are the special-purpose addresses. The first range that contains an address
// decides. An address in none of them is public if it is IPv4 or within 2000::/3. Spec: the IANA
// registries of special-purpose IPv4 and IPv6 addresses (RFC 6890).
var specialRanges = []struct {
	prefix netip.Prefix
	scope  NetworkScope
}{
	// Metadata services of clouds, which issue credentials, beside 169.254.169.254.
	{netip.MustParsePrefix("100.100.100.200/32"), Unusable}, // Alibaba
	{netip.MustParsePrefix("168.63.129.16/32"), Unusable},   // Azure
	{netip.MustParsePrefix("fd00:ec2::/32"), Unusable},      // Amazon
	{netip.MustParsePrefix("fd20:ce::/32"), Unusable},       // Google
	{netip.MustParsePrefix("fd00:42::42/128"), Unusable},    // Scaleway

	{netip.MustParsePrefix("0.0.0.0/8"), Unusable},       // this network
	{netip.MustParsePrefix("10.0.0.0/8"), Private},       // RFC 1918
	{netip.MustParsePrefix("100.64.0.0/10"), Private},    // RFC 6598: carriers, and overlay networks
	{netip.MustParsePrefix("127.0.0.0/8"), Loopback},     //
	{netip.MustParsePrefix("169.254.0.0/16"), Unusable},  // link-local
	{netip.MustParsePrefix("172.16.0.0/12"), Private},    // RFC 1918
	{netip.MustParsePrefix("192.0.0.0/24"), Unusable},    // protocol assignments
	{netip.MustParsePrefix("192.0.2.0/24"), Unusable},    // documentation
	{netip.MustParsePrefix("192.88.99.0/24"), Unusable},  // 6to4 relays
	{netip.MustParsePrefix("192.168.0.0/16"), Private},   // RFC 1918
	{netip.MustParsePrefix("198.18.0.0/15"), Unusable},   // benchmarking
	{netip.MustParsePrefix("198.51.100.0/24"), Unusable}, // documentation
	{netip.MustParsePrefix("203.0.113.0/24"), Unusable},  // documentation
	{netip.MustParsePrefix("224.0.0.0/3"), Unusable},     // multicast, reserved, broadcast

	{netip.MustParsePrefix("::1/128"), Loopback},
	{netip.MustParsePrefix("fc00::/7"), Private},       // RFC 4193
	{netip.MustParsePrefix("2001::/23"), Unusable},     // protocol assignments, Teredo among them
	{netip.MustParsePrefix("2001:db8::/32"), Unusable}, // documentation
	{netip.MustParsePrefix("2002::/16"), Unusable},     // 6to4, which embeds an IPv4 address
	{netip.MustParsePrefix("3fff::/20"), Unusable},     // documentation
}

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	// nat64 embeds an IPv4 address in the last four bytes; hosts without IPv4 reach the IPv4
	// Internet through it.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

// ScopeOf returns the scope of an address.
func ScopeOf(a netip.Addr) NetworkScope {
	a = a.Unmap()
	if !a.IsValid() || a.Zone() != "" {
		return Unusable
	}
	if nat64.Contains(a) {
		b := a.As16()
		if ScopeOf(netip.AddrFrom4([4]byte(b[12:]))) == Public {
			return Public
		}
		return Unusable
	}
	for _, r := range specialRanges {
		if r.prefix.Contains(a) {
			return r.scope
		}
	}
	if a.Is4() || globalUnicast.Contains(a) {
		return Public
	}
	return Unusable
}
