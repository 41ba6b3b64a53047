package oauthfetch

import (
	"net/netip"
)

// A NetworkScope says from where an address can be reached. A greater one is nearer to this
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
// decides. An address in none of them is public if it is IPv4 or within 2000::/3.
//
// Spec: the IANA registries of special-purpose IPv4 and IPv6 addresses (RFC 6890).
var specialRanges = []struct {
	prefix netip.Prefix
	scope  NetworkScope
}{
	// Metadata services of clouds, which hand out credentials, beside the link-local
	// 169.254.169.254.
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
