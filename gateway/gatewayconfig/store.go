package gatewayconfig

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// storeVariable matches a variable in the text of a store.
var storeVariable = regexp.MustCompile(`\$\{[^}]*\}`)

// CheckStore returns an error for a store that no [Settings].Store may contain. The error does not
// contain the text, which may contain a password.
func CheckStore(text string) error {
	const digit = "1" // replaces a variable, also in a port
	plain := storeVariable.ReplaceAllString(text, digit)
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
