package apps

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// checkLink checks an http or https URL, and returns it in the form in which it is shown to the
// user and opened. Characters beyond ASCII are escaped, so that they cannot change how the rest of
// the URL is displayed. The host has to be ASCII, because browsers disagree on escapes in it.
//
// Spec: SEP-1865, ui/open-link; basic/security_best_practices, Authorization URLs.
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
