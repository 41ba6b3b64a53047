package gatewayconfig

import (
	"cmp"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
)

// CheckStore returns an error for a store that no [Settings].Store may contain. The error does not
// contain the text, which may contain a password.
func CheckStore(text string) error {
	// A digit in the text itself, such as a password, differs from the first digit or the second.
	return cmp.Or(checkStore(text, "1"), checkStore(text, "2"))
}

// brokenEscape matches a variable within a percent escape. The escape could hide a part of a password.
var brokenEscape = regexp.MustCompile(`%.?\$\{`)

// checkStore checks a store with its variables replaced by a digit, which is valid in a port too.
func checkStore(text, digit string) error {
	plain := netx.ReplaceVariables(text, func(string) string { return digit })
	if path, ok := strings.CutPrefix(plain, "bolt:"); ok && path != "" || plain == digit {
		return nil
	}
	u, err := url.Parse(plain)
	if err != nil || !hasServer(u) {
		return errors.New("want redis://HOST:PORT, rediss://HOST:PORT with TLS, postgres://HOST/DATABASE, or bolt:PATH")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || brokenEscape.MatchString(text) {
		return errors.New("got a URL with an invalid percent escape: want % and two digits from 0 to F, without a " +
			"variable between them")
	}
	password, _ := u.User.Password()
	isSecret := func(text string) bool { return isPassword(text, digit) }
	if isSecret(password) || query.Has("password") || slices.ContainsFunc(query["sslpassword"], isSecret) {
		return errors.New("got a URL with a password: want a variable in its place, such as " +
			u.Scheme + "://USER:${PASSWORD}@HOST or " + u.Scheme + "://USER:${file:/run/secrets/password}@HOST")
	}
	return nil
}

// hasServer reports whether a URL is of a store. For PostgreSQL, the query or variables of the environment may name
// the host.
func hasServer(u *url.URL) bool {
	switch u.Scheme {
	case "redis", "rediss":
		return u.Host != ""
	case "postgres", "postgresql":
		return u.Opaque == ""
	}
	return false
}

// isPassword reports whether text is a password other than a variable.
func isPassword(text, digit string) bool { return text != "" && text != digit }
