package authserver

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/netx"
)

const maxRedirectURI = 2 << 10 // bytes

// checkRedirectURI returns an error unless a URI can be a redirect URI: https, http with a loopback
// address, or a private-use scheme that is a reversed domain name. Spec: RFC 8252, section 7;
// basic/authorization, Communication Security.
func checkRedirectURI(uri string) error {
	if uri == "" || len(uri) > maxRedirectURI {
		return fmt.Errorf("must have 1 to %d bytes", maxRedirectURI)
	}
	isInvalid := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\\\"<>^`{|}*", r) }
	if strings.ContainsFunc(uri, isInvalid) {
		return errors.New("must not have a wildcard or a character that is invalid in a URI")
	}
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return errors.New("malformed")
	case strings.Contains(uri, "#"):
		return errors.New("must not have a fragment")
	case u.User != nil || strings.Contains(u.Host, "@"):
		return errors.New("must not have user information")
	}
	for _, name := range []string{"code", "state", "iss", "error"} {
		if u.Query().Has(name) {
			return fmt.Errorf("must not have the query parameter %s", name)
		}
	}
	switch scheme := strings.ToLower(u.Scheme); {
	case scheme == "https" || scheme == "http":
		return checkWebRedirect(u, scheme)
	case strings.Contains(scheme, "."):
		return nil
	}
	return errors.New("must be https, http with a loopback address, or a private-use scheme with a dot")
}

func checkWebRedirect(u *url.URL, scheme string) error {
	switch {
	case u.Opaque != "" || u.Hostname() == "" || !netx.HasValidPort(u):
		return errors.New("must have a host, and a valid port if any")
	case strings.Contains(u.Host, "%"):
		return errors.New("must not have an escaped host")
	case scheme == "http" && !netx.IsLoopback(u.Hostname()):
		return errors.New("http is allowed only with a loopback address")
	}
	if netx.HasDotSegments(u.EscapedPath()) {
		return errors.New("must not have a path with the segments . and .. in it")
	}
	return nil
}

// isLoopbackRedirect reports whether a redirect URI is http with a loopback address: that of a
// program on the user's machine.
func isLoopbackRedirect(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && u.Scheme == "http" && netx.IsLoopback(u.Hostname())
}

// matchRedirect reports whether a redirect URI equals a registered redirect URI. The ports of
// loopback addresses may differ. Spec: OAuth 2.1, section 2.3.1; RFC 8252, section 7.3.
func matchRedirect(registered []string, uri string) bool {
	if checkRedirectURI(uri) != nil {
		return false
	}
	return slices.ContainsFunc(registered, func(r string) bool {
		return r == uri || isLoopbackRedirect(r) && isLoopbackRedirect(uri) && withoutPort(r) == withoutPort(uri)
	})
}

// withoutPort removes the port from the text of a loopback URI. It does not normalize the text.
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
