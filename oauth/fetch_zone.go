package oauth

import "net/netip"

// A zone is how near an address is.
type zone uint8

const (
	nowhere  zone = iota // an address that no document and no endpoint can be at
	public               // on the Internet
	private              // in the network of a company or a home
	loopback             // on this machine
)

// String names the zone for errors.
func (z zone) String() string {
	switch z {
	case public:
		return "public"
	case private:
		return "private"
	case loopback:
		return "loopback"
	}
	return "special"
}

// MarshalText returns the name, for what is stored.
func (z zone) MarshalText() ([]byte, error) { return []byte(z.String()), nil }

// UnmarshalText reads a name. What is none is nowhere.
func (z *zone) UnmarshalText(text []byte) error {
	*z = nowhere
	for _, known := range []zone{public, private, loopback} {
		if known.String() == string(text) {
			*z = known
		}
	}
	return nil
}

// ranges are the special addresses. The first that holds an address decides. What is not here is public if it is IPv4 or
// within 2000::/3.
//
// Spec: the IANA registries of special-purpose IPv4 and IPv6 addresses (RFC 6890).
var ranges = []struct {
	prefix netip.Prefix
	zone   zone
}{
	// Where clouds keep the credentials of a machine, beside the link-local 169.254.169.254.
	{netip.MustParsePrefix("100.100.100.200/32"), nowhere}, // Alibaba
	{netip.MustParsePrefix("168.63.129.16/32"), nowhere},   // Azure
	{netip.MustParsePrefix("fd00:ec2::/32"), nowhere},      // Amazon
	{netip.MustParsePrefix("fd20:ce::/32"), nowhere},       // Google
	{netip.MustParsePrefix("fd00:42::42/128"), nowhere},    // Scaleway

	{netip.MustParsePrefix("0.0.0.0/8"), nowhere},       // this network
	{netip.MustParsePrefix("10.0.0.0/8"), private},      // RFC 1918
	{netip.MustParsePrefix("100.64.0.0/10"), private},   // RFC 6598: carriers, and overlay networks
	{netip.MustParsePrefix("127.0.0.0/8"), loopback},    //
	{netip.MustParsePrefix("169.254.0.0/16"), nowhere},  // link-local
	{netip.MustParsePrefix("172.16.0.0/12"), private},   // RFC 1918
	{netip.MustParsePrefix("192.0.0.0/24"), nowhere},    // protocol assignments
	{netip.MustParsePrefix("192.0.2.0/24"), nowhere},    // documentation
	{netip.MustParsePrefix("192.88.99.0/24"), nowhere},  // relays of 6to4
	{netip.MustParsePrefix("192.168.0.0/16"), private},  // RFC 1918
	{netip.MustParsePrefix("198.18.0.0/15"), nowhere},   // benchmarking
	{netip.MustParsePrefix("198.51.100.0/24"), nowhere}, // documentation
	{netip.MustParsePrefix("203.0.113.0/24"), nowhere},  // documentation
	{netip.MustParsePrefix("224.0.0.0/3"), nowhere},     // multicast, reserved, broadcast

	{netip.MustParsePrefix("::1/128"), loopback},
	{netip.MustParsePrefix("fc00::/7"), private},      // RFC 4193
	{netip.MustParsePrefix("2001::/23"), nowhere},     // protocol assignments, Teredo among them
	{netip.MustParsePrefix("2001:db8::/32"), nowhere}, // documentation
	{netip.MustParsePrefix("2002::/16"), nowhere},     // 6to4, which holds an IPv4 address
	{netip.MustParsePrefix("3fff::/20"), nowhere},     // documentation
}

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	// nat64 holds an IPv4 address in its last four bytes; hosts without IPv4 reach all of that world by it.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

func zoneOf(a netip.Addr) zone {
	a = a.Unmap()
	if !a.IsValid() || a.Zone() != "" {
		return nowhere
	}
	if nat64.Contains(a) {
		b := a.As16()
		if zoneOf(netip.AddrFrom4([4]byte(b[12:]))) == public {
			return public
		}
		return nowhere
	}
	for _, r := range ranges {
		if r.prefix.Contains(a) {
			return r.zone
		}
	}
	if a.Is4() || globalUnicast.Contains(a) {
		return public
	}
	return nowhere
}
