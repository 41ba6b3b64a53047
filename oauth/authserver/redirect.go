package authserver

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
)

// maxRedirectURI bounds a redirect URI.
const maxRedirectURI = 2 << 10

// checkRedirectURI says what keeps a URI from being a redirect URI of anybody: it must be https, http at a loopback
// address, or of a private-use scheme that is a reversed domain name.
//
// Spec: RFC 8252, section 7; basic/authorization, Communication Security.
func checkRedirectURI(uri string) error {
	if uri == "" || len(uri) > maxRedirectURI {
		return errors.New("it is empty or too long")
	}
	if strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\\\"<>^`{|}*", r) }) {
		return errors.New("it holds a character that no URI holds, or a wildcard")
	}
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return errors.New("it cannot be parsed")
	case strings.Contains(uri, "#"):
		return errors.New("it has a fragment")
	case u.User != nil || strings.Contains(u.Host, "@"):
		return errors.New("it has user information")
	}
	for _, name := range []string{"code", "state", "iss", "error"} {
		if u.Query().Has(name) {
			return errors.New("its query holds a parameter that the answer will hold")
		}
	}
	switch scheme := strings.ToLower(u.Scheme); {
	case scheme == "https" || scheme == "http":
		return checkWebRedirect(u, scheme)
	case strings.Contains(scheme, "."):
		return nil
	}
	return errors.New("it is neither https, nor http at a loopback address, nor of a private-use scheme with a dot in it")
}

func checkWebRedirect(u *url.URL, scheme string) error {
	switch {
	case u.Opaque != "" || u.Hostname() == "" || !isPort(u):
		return errors.New("it has no host, or a port that cannot be")
	case strings.Contains(u.Host, "%"):
		return errors.New("its host is escaped")
	case scheme == "http" && !isLoopback(u.Hostname()):
		return errors.New("http is for loopback addresses alone")
	}
	for segment := range strings.SplitSeq(strings.ToLower(u.EscapedPath()), "/") {
		if s := strings.ReplaceAll(segment, "%2e", "."); s == "." || s == ".." {
			return errors.New("its path goes up")
		}
	}
	return nil
}

func isPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}

// isLoopbackRedirect reports whether a redirect URI leads to a program on the user's machine.
func isLoopbackRedirect(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && u.Scheme == "http" && isLoopback(u.Hostname())
}

// matchRedirect reports whether a request may name a redirect URI: it is one of those of the client to the letter, or
// differs from a loopback one in nothing but the port.
//
// Spec: OAuth 2.1, section 2.3.1; RFC 8252, section 7.3.
func matchRedirect(registered []string, uri string) bool {
	if checkRedirectURI(uri) != nil {
		return false
	}
	for _, r := range registered {
		if r == uri || isLoopbackRedirect(r) && isLoopbackRedirect(uri) && withoutPort(r) == withoutPort(uri) {
			return true
		}
	}
	return false
}

// withoutPort takes the port out of a loopback URI, as text: nothing else of it is normalised.
func withoutPort(uri string) string {
	scheme, rest, _ := strings.Cut(uri, "://")
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	host := rest[:end]
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		host = host[:i]
	}
	return scheme + "://" + host + rest[end:]
}

// withQuery adds parameters to a redirect URI, whose own query stays as it is.
func withQuery(uri string, add url.Values) string {
	if strings.Contains(uri, "?") {
		return uri + "&" + add.Encode()
	}
	return uri + "?" + add.Encode()
}
