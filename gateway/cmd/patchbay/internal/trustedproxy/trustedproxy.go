// Package trustedproxy reads who sent a request from the headers of a reverse proxy that authenticates people.
package trustedproxy

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName and maxGroups limit the name of a person or a group in bytes, and the groups of a person.
const maxName, maxGroups = 256, 1000

// The errors of [Proxy.Person].
var (
	ErrNotProxy = errors.New("the request names a person, and was not sent by the proxy")
	ErrNoPerson = errors.New("the proxy must name one person in one header")
)

// A Proxy is a reverse proxy. User, Groups and SecretHeader name its headers; an empty Groups means that
// people belong to no groups. It is safe for concurrent use and must not change.
type Proxy struct {
	User, Groups, SecretHeader string

	Peers  []netip.Prefix // the addresses of the proxy; nil means any address
	Secret string         // the value of SecretHeader; empty means that Peers identifies the proxy
}

// A Person is a person whom a proxy authenticated.
type Person struct {
	Name   string
	Groups []string
}

// Person returns the person whom the headers of a request name, or nil for a request without the headers.
// A request with the headers that the proxy did not send, such as a forged request, is an error: the
// caller must refuse the request.
func (p *Proxy) Person(r *http.Request) (*Person, error) {
	user, groups, secret := r.Header.Values(p.User), r.Header.Values(p.Groups), r.Header.Values(p.SecretHeader)
	switch {
	case len(user) == 0 && len(groups) == 0 && (len(secret) == 0 || p.Secret == ""):
		return nil, nil
	case !p.isPeer(r.RemoteAddr) || p.Secret != "" && (len(secret) != 1 || !isEqual(secret[0], p.Secret)):
		return nil, ErrNotProxy
	case len(user) != 1 || !isName(user[0]) || len(groups) > 1: // a proxy may pass on a header of the client
		return nil, ErrNoPerson
	}
	person := &Person{Name: user[0]}
	for group := range strings.SplitSeq(strings.Join(groups, ""), ",") {
		if group = strings.TrimSpace(group); isName(group) && len(person.Groups) < maxGroups {
			person.Groups = append(person.Groups, group)
		}
	}
	return person, nil
}

// isPeer reports whether an address belongs to the proxy.
func (p *Proxy) isPeer(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	return p.Peers == nil || err == nil && slices.ContainsFunc(p.Peers, func(x netip.Prefix) bool {
		return x.Contains(at.Addr().Unmap())
	})
}

// isEqual compares hashes, so the time that it takes reveals nothing about the secret.
func isEqual(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// isName reports whether text is the name of a person or a group.
func isName(text string) bool {
	return text != "" && len(text) <= maxName && utf8.ValidString(text) && strings.TrimSpace(text) == text &&
		!strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsGraphic(c) })
}
