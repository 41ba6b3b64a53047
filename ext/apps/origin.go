package apps

import (
	"fmt"
	"strconv"
	"strings"
)

// An origin is a source of a Content-Security-Policy: a scheme and a host, perhaps with a port.
type origin struct {
	text  string // as it stands in a policy, in lower case
	local bool   // it leads to the user's own machine or network
}

// maxName bounds the name of a host, as DNS does.
const maxName = 253

// parseOrigin reads an origin strictly: what it lets pass holds no character that means something in a policy. sockets
// lets WebSockets be among the schemes.
//
// Spec: SEP-1865, McpUiResourceCsp; CSP Level 3, host-source.
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
	if hasPort && !isPort(port) {
		return bad("the port is not a number from 1 to 65535")
	}
	host = strings.ToLower(host)
	name, wildcard := strings.CutPrefix(host, "*.")
	if what := checkName(name); what != "" {
		return bad(what)
	}
	loopback := isLoopback(name)
	switch {
	case wildcard && (!strings.Contains(name, ".") || name == loopbackAddress):
		return bad("the wildcard takes in more than the subdomains of one name")
	case plain && !loopback:
		return bad("plain " + kind + " is for localhost only")
	}
	o = origin{text: kind + "://" + host, local: loopback || isPrivate(name)}
	if hasPort {
		o.text += ":" + port
	}
	return o, nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0 && text[0] != '0'
}

// loopbackAddress is the only address that browsers match against a policy.
const loopbackAddress = "127.0.0.1"

// checkName says what is wrong with the name of a host, in lower case.
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
			return "a part of the host is empty, too long, or begins or ends with a hyphen"
		}
		if strings.ContainsFunc(label, func(r rune) bool { return !isNameRune(r) }) {
			return "the host holds more than letters, digits, hyphens and dots (other letters are written as xn--…)"
		}
	}
	// A host that ends in a number is an address to browsers, however it is written. No domain begins with a digit.
	if last := labels[len(labels)-1]; '0' <= last[0] && last[0] <= '9' {
		return "the host is an address, want a name"
	}
	return ""
}

// isNameRune reports whether a character stands in names of hosts.
func isNameRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-'
}

// isLoopback reports whether a name is that of the machine itself.
func isLoopback(name string) bool {
	return name == loopbackAddress || name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// isPrivate reports whether a name can only be one of the user's own network: one without a dot, or under a domain that is
// set apart for it, or that such networks use and the public never will.
//
// Spec: RFC 6762, section 3 and appendix G; RFC 8375.
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
