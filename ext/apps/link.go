package apps

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// checkLink returns the URL of a page of the web in the form in which it is shown to the user and opened: what is not ASCII
// is escaped, so that nothing in it can change how the rest looks. The host has to be ASCII as it is: an escape in it means
// something else to each browser.
//
// Spec: SEP-1865, ui/open-link; basic/security_best_practices, Authorization URLs.
func checkLink(text string) (string, error) {
	if len(text) > maxURI {
		return "", fmt.Errorf("it has %d characters, at most %d are taken", len(text), maxURI)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }) {
		return "", errors.New("it holds a space, a backslash or a control character")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", errors.New("it cannot be parsed")
	case u.Scheme != "https" && u.Scheme != "http":
		return "", errors.New("its scheme is neither https nor http")
	case u.User != nil:
		return "", errors.New("it holds a user")
	case u.Hostname() == "":
		return "", errors.New("it has no host")
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r > '~' || r == '%' }):
		return "", errors.New("its host has letters beyond ASCII or escapes (such letters are written as xn--…)")
	case u.Port() != "" && !isPort(u.Port()):
		return "", errors.New("its port is not a number from 1 to 65535")
	}
	var b strings.Builder
	for _, c := range []byte(u.String()) { // its query is as it came
		if c > '~' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}
