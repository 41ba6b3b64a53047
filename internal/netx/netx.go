// Package netx holds the small questions about hosts, ports, origins and HTTP tokens that several
// packages ask. It does not link package net, so that a stdio server can use it.
package netx

import (
	"net/netip"
	"net/url"
	"strings"
)

// IsLoopback reports whether a host, as it appears in a URL without port and brackets, is this
// machine: localhost or a loopback address without an IPv6 zone. Letters are compared in ASCII:
// Unicode case folding would admit look-alikes. A name is not resolved.
func IsLoopback(host string) bool {
	if host == "127.0.0.1" || EqualFoldASCII(host, "localhost") { // most hosts are not parsed
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && IsLoopbackAddr(addr)
}

// IsLoopbackAddr reports whether an address is a loopback address, also an IPv4 address that is
// mapped to IPv6. An address with an IPv6 zone is not.
func IsLoopbackAddr(addr netip.Addr) bool { return addr.Zone() == "" && addr.Unmap().IsLoopback() }

// EqualFoldASCII reports whether two strings are equal when the case of ASCII letters is ignored.
func EqualFoldASCII(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

// IsSubdomain reports whether a host is a domain or below it: "as.example.com" is below
// "example.com". Both must be written as in a URL, without port. No host is below an address or a
// name without a dot.
func IsSubdomain(host, domain string) bool {
	if EqualFoldASCII(host, domain) {
		return host != ""
	}
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(strings.Trim(domain, "."), ".") {
		return false
	}
	return strings.HasSuffix(LowerASCII(host), "."+LowerASCII(domain))
}

// LowerASCII returns s with its ASCII letters in lower case.
func LowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, s)
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// IsPort reports whether text is the number of a port that can be dialled: decimal digits from 1 to
// 65535, without a leading zero.
func IsPort(text string) bool {
	const maxDigits, maxPort = 5, 65535
	if text == "" || len(text) > maxDigits || text[0] == '0' {
		return false
	}
	n := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
		n = 10*n + int(text[i]-'0')
	}
	return n <= maxPort
}

// Port returns the port of an http or https URL, the default of its scheme without a port.
func Port(u *url.URL) string {
	switch port := u.Port(); {
	case port != "":
		return port
	case strings.EqualFold(u.Scheme, "https"):
		return "443"
	}
	return "80"
}

// HasValidPort reports whether a URL contains a port that can be dialled, or no port.
// "http://host:" contains an empty port, which is neither.
func HasValidPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	return IsPort(u.Port())
}

// IsHTTP reports whether a URL is an http or https URL with a host and without an invalid port.
func IsHTTP(u *url.URL) bool {
	return (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && HasValidPort(u)
}

// HostPort returns the host of an http or https URL with its port, in lower case: the form in which
// hosts are compared.
func HostPort(u *url.URL) string {
	host := LowerASCII(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + Port(u)
}

// Origin returns scheme, host and port of a URL as they are written there.
func Origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// SameOrigin reports whether two http or https URLs share scheme, host and port.
//
// Spec: RFC 6454, section 5.
func SameOrigin(a, b *url.URL) bool {
	return EqualFoldASCII(a.Scheme, b.Scheme) && HostPort(a) == HostPort(b)
}

// IsToken reports whether text is a token of HTTP, such as the name of a header or an
// authentication scheme.
//
// Spec: RFC 9110, section 5.6.2.
func IsToken(text string) bool {
	for i := range len(text) {
		if !IsTokenByte(text[i]) {
			return false
		}
	}
	return text != ""
}

// IsTokenByte reports whether a byte may appear in a token of HTTP.
//
// Spec: RFC 9110, section 5.6.2.
func IsTokenByte(c byte) bool {
	letter := c | 0x20
	return 'a' <= letter && letter <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// PathContains reports whether path is parent or is below it. Paths are compared as they are
// written, so a path with dot segments, which denotes another path, is only within itself. A slash
// at the end makes no difference.
func PathContains(parent, path string) bool {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(path, "/"), strings.TrimSuffix(parent, "/"))
	switch {
	case !ok || rest != "" && rest[0] != '/':
		return false
	case rest == "":
		return true
	}
	return !HasDotSegments(rest)
}

// HasDotSegments reports whether a path contains a segment "." or "..", also in its escaped form.
func HasDotSegments(path string) bool {
	for segment := range strings.SplitSeq(LowerASCII(path), "/") {
		if dots := strings.ReplaceAll(segment, "%2e", "."); dots == "." || dots == ".." {
			return true
		}
	}
	return false
}

// IsCredentialHeader reports whether the name of a header suggests that its value is a credential:
// Authorization, Cookie, and names that contain a word such as token or api-key.
func IsCredentialHeader(name string) bool {
	name = strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	for _, word := range []string{"auth", "cookie", "token", "secret", "password", "passwd", "credential", "signature",
		"apikey", "accesskey", "privatekey", "sessionid"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}
