package apps

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// An origin is a source expression of a Content-Security-Policy: a scheme, a host, and optionally a
// port.
type origin struct {
	text  string // for a policy, in lower case
	local bool   // on the user's machine or local network
}

const maxName = 253

// parseOrigin parses an origin strictly: the result contains no character with a meaning in a
// policy. sockets allows the schemes wss and ws. Spec: SEP-1865, McpUiResourceCsp; CSP Level 3,
// host-source.
func parseOrigin(text string, sockets bool) (o origin, err error) {
	bad := func(what string) (origin, error) {
		return origin{}, fmt.Errorf("origin %.128q: %s", text, what)
	}
	kind, rest, ok := strings.Cut(text, "://")
	if !ok {
		return bad(`want a scheme and a host, such as "https://example.com"`)
	}
	kind = strings.ToLower(kind)
	plain := false
	switch {
	case kind == "https", kind == "wss" && sockets:
	case kind == "http", kind == "ws" && sockets:
		plain = true
	case sockets:
		return bad("the scheme is not https or wss")
	default:
		return bad("the scheme is not https")
	}
	host, port, hasPort := strings.Cut(rest, ":")
	if hasPort && !isPortNumber(port) {
		return bad("the port is not a number from 1 to 65535")
	}
	host = strings.ToLower(host)
	name, wildcard := strings.CutPrefix(host, "*.")
	if what := checkName(name); what != "" {
		return bad(what)
	}
	loopback := isLocalSource(name)
	switch {
	case wildcard && (!strings.Contains(name, ".") || name == loopbackAddress):
		return bad("the wildcard covers more than the subdomains of one domain")
	case plain && !loopback:
		return bad("the scheme " + kind + " is allowed for localhost only")
	}
	o = origin{text: kind + "://" + host, local: loopback || isPrivate(name)}
	if hasPort {
		o.text += ":" + port
	}
	return o, nil
}

func isPortNumber(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0 && text[0] != '0'
}

// loopbackAddress is the only IP address that browsers match against a policy.
const loopbackAddress = "127.0.0.1"

// checkName returns the fault of a lower-case host name, or "".
func checkName(name string) string {
	if name == "" || len(name) > maxName {
		return fmt.Sprintf("the host has %d characters, want 1 to %d", len(name), maxName)
	}
	if name == loopbackAddress {
		return ""
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		const longest = 63
		if label == "" || len(label) > longest || label[0] == '-' || label[len(label)-1] == '-' {
			return "a label of the host is empty, too long, or begins or ends with a hyphen"
		}
		if strings.ContainsFunc(label, func(r rune) bool { return !isNameRune(r) }) {
			return "the host has characters other than letters, digits, hyphens and dots (write them as xn--…)"
		}
	}
	// Browsers treat a host whose last label is a number as an IP address. No top-level domain
	// begins with a digit.
	if last := labels[len(labels)-1]; '0' <= last[0] && last[0] <= '9' {
		return "the host is an IP address, want a name"
	}
	return ""
}

func isNameRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-'
}

// isLocalSource reports whether a source expression with the name matches only the local machine.
func isLocalSource(name string) bool {
	return name == loopbackAddress || name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// isPrivate reports whether a name can only belong to a private network: it contains no dot, or a
// domain that is reserved for private networks or commonly used in them. Spec: RFC 6762, section 3
// and appendix G; RFC 8375.
func isPrivate(name string) bool {
	if !strings.Contains(name, ".") {
		return true
	}
	switch name[strings.LastIndexByte(name, '.')+1:] {
	case "local", "localdomain", "internal", "intranet", "private", "corp", "home", "lan":
		return true
	}
	return strings.HasSuffix(name, ".home.arpa")
}

// checkLink checks an http or https URL, and returns it in the form in which it is shown to the
// user and opened. Characters beyond ASCII are escaped, so that they cannot change how the rest of
// the URL is displayed. The host must be ASCII, because browsers disagree on escapes in it. Spec:
// SEP-1865, ui/open-link; basic/security_best_practices, Authorization URLs.
func checkLink(text string) (string, error) {
	if len(text) > maxURI {
		return "", fmt.Errorf("the URL has %d bytes, the limit is %d", len(text), maxURI)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }) {
		return "", errors.New("the URL has a space, a backslash or a control character")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", errors.New("the URL cannot be parsed")
	case u.Scheme != "https" && u.Scheme != "http":
		return "", errors.New("the scheme is not https or http")
	case u.User != nil:
		return "", errors.New("the URL has user information")
	case u.Hostname() == "":
		return "", errors.New("the URL has no host")
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r > '~' || r == '%' }):
		return "", errors.New("the host has escapes or characters beyond ASCII (write them as xn--…)")
	case u.Port() != "" && !isPortNumber(u.Port()):
		return "", errors.New("the port is not a number from 1 to 65535")
	}
	var b strings.Builder
	for _, c := range []byte(u.String()) { // String does not escape the query
		if c > '~' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}
