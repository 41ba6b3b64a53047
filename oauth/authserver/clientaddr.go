package authserver

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

const (
	// maxForwarded is the maximum number of addresses of X-Forwarded-For that are read. No real
	// chain of proxies is longer.
	maxForwarded = 16
	// siteBits is the length of the IPv6 prefix that a site has: all of its addresses count as one.
	siteBits = 64
)

// address returns the key of the client's address in rate limits and logs.
func (l *limits) address(r *http.Request) string { return addressKey(l.clientAddr(r)) }

func addressKey(addr netip.Addr) string {
	switch {
	case !addr.IsValid():
		return "unknown"
	case addr.Is6():
		site, _ := addr.Prefix(siteBits)
		return site.String()
	}
	return addr.String()
}

// clientAddr returns the address that a request comes from: the peer of the connection, or the
// address that trusted proxies forward. It is invalid if the peer has no address, such as that of a
// Unix socket.
func (l *limits) clientAddr(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := peer.Addr().Unmap().WithZone("")
	if l.trusts(addr) {
		addr = l.forwardedFor(r.Header, addr)
	}
	return addr
}

// forwardedFor reads X-Forwarded-For from the nearest proxy outwards, as long as the proxies are
// trusted. Anything before the first untrusted address may be forged.
func (l *limits) forwardedFor(h http.Header, nearest netip.Addr) netip.Addr {
	hops := strings.Split(strings.Join(h.Values("X-Forwarded-For"), ","), ",")
	addr := nearest
	for i := len(hops) - 1; i >= 0 && i >= len(hops)-maxForwarded; i-- {
		hop, err := parseHop(hops[i])
		if err != nil {
			return addr
		}
		addr = hop
		if !l.trusts(addr) {
			return addr
		}
	}
	return addr
}

// parseHop parses an address with or without a port: proxies write either.
func parseHop(text string) (netip.Addr, error) {
	text = strings.TrimSpace(text)
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return withPort.Addr().Unmap().WithZone(""), nil
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("invalid address: %w", err)
	}
	return addr.Unmap().WithZone(""), nil
}

func (l *limits) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(l.proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}
