package gatewayconfig

import (
	"cmp"
	"errors"
	"net/url"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
)

// CheckStore returns an error for a store that no [Settings].Store may contain. The error does not
// contain the text, which may contain a password.
func CheckStore(text string) error {
	// A digit in the text itself, such as a password, differs from the first digit or the second.
	return cmp.Or(checkStore(text, "1"), checkStore(text, "2"))
}

// checkStore checks a store with its variables replaced by a digit, which is valid in a port too.
func checkStore(text, digit string) error {
	plain := netx.ReplaceVariables(text, func(string) string { return digit })
	if path, ok := strings.CutPrefix(plain, "bolt:"); ok && path != "" || plain == digit {
		return nil
	}
	u, err := url.Parse(plain)
	switch {
	case strings.HasPrefix(plain, "postgres:"), strings.HasPrefix(plain, "postgresql:"):
		return errors.New("this program contains no client of PostgreSQL: want redis://HOST:PORT, or write a " +
			"server with the SDK that imports stores/postgres")
	case err != nil || u.Host == "" || u.Scheme != "redis" && u.Scheme != "rediss":
		return errors.New("want redis://HOST:PORT, rediss://HOST:PORT with TLS, or bolt:PATH")
	}
	if password, _ := u.User.Password(); password != "" && password != digit || u.Query().Has("password") {
		return errors.New("got a URL with a password: want a variable in its place, such as " +
			"redis://:${REDIS_PASSWORD}@HOST:PORT or redis://:${file:/run/secrets/redis}@HOST:PORT")
	}
	return nil
}
