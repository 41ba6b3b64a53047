// Package netx recognizes hosts of this machine, ports, URLs and their variables.
package netx

import (
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// IsLocalHost reports whether a host, as it appears in a URL without port and brackets, is this
// machine: localhost or a loopback address without an IPv6 zone. A name is not resolved.
func IsLocalHost(host string) bool {
	// The length excludes look-alikes: all other letters that fold to ASCII take more than one byte.
	const name = "localhost"
	if len(host) == len(name) && strings.EqualFold(host, name) {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && IsLocalAddr(addr)
}

// IsLocalAddr reports whether an address is a loopback address, also if it is mapped to IPv6. An
// address with an IPv6 zone is not.
func IsLocalAddr(addr netip.Addr) bool { return addr.Zone() == "" && addr.Unmap().IsLoopback() }

// ValidPort reports whether text is the number of a port that can be dialled: decimal digits from 1
// to 65535, without a leading zero.
func ValidPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0 && text[0] != '0'
}

// IsHTTP reports whether a URL is an http or https URL with a host and without an invalid port.
func IsHTTP(u *url.URL) bool {
	return (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" &&
		(ValidPort(u.Port()) || u.Port() == "" && !strings.HasSuffix(u.Host, ":"))
}

var variable = regexp.MustCompile(`\$\{[^}]*\}`)

// ReplaceVariables replaces the variables of a URL, such as ${NAME}, by the results of a function.
func ReplaceVariables(text string, replace func(variable string) string) string {
	return variable.ReplaceAllStringFunc(text, replace)
}

// IsOrigin reports whether text is the URL of an origin that is safe to send secrets to: https, or http
// on this machine, without a user, a path and a query.
func IsOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && IsHTTP(u) && (u.Scheme == "https" || IsLocalHost(u.Hostname())) && u.User == nil &&
		strings.Trim(u.Path, "/") == "" && !strings.ContainsAny(text, "?#")
}

// SameHost reports whether two URLs have the same host, at any port.
func SameHost(a, b string) bool {
	first, err := url.Parse(a)
	second, err2 := url.Parse(b)
	return err == nil && err2 == nil && strings.EqualFold(first.Hostname(), second.Hostname())
}
