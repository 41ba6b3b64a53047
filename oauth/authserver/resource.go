package authserver

import (
	"net/url"
	"slices"
	"strings"
)

// resourceKey returns what two spellings of the identifier of one resource have in common: scheme and host compare without
// case, a port that is the default counts as none, and no path as a single slash.
//
// Spec: basic/authorization (2025-06-18 and later), Canonical Server URI; RFC 3986, section 6.2.
func resourceKey(identifier string) string {
	u, err := url.Parse(identifier)
	if err != nil || u.Host == "" || u.User != nil || strings.Contains(identifier, "#") {
		return "" // of no resource
	}
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	switch {
	case scheme == "https":
		host = strings.TrimSuffix(host, ":443")
	case scheme == "http":
		host = strings.TrimSuffix(host, ":80")
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	key := scheme + "://" + host + path
	if u.RawQuery != "" || u.ForceQuery {
		key += "?" + u.RawQuery
	}
	return key
}

// isScope reports whether s can be the name of a scope.
//
// Spec: RFC 6749, section 3.3.
func isScope(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}

// resourceFor returns the resource that a client asks for. Clients of 2025-03-26 do not say which, and do not have to
// where there is a single one for them.
func (s *Server) resourceFor(c *client, identifier string) (*Resource, error) {
	if identifier == "" {
		var only *Resource
		for i := range s.o.Resources {
			if !c.mayReach(&s.o.Resources[i]) {
				continue
			}
			if only != nil {
				return nil, refuse(codeInvalidTarget, "the parameter resource is missing")
			}
			only = &s.o.Resources[i]
		}
		if only == nil {
			return nil, refuse(codeInvalidTarget, "there is no resource for this client")
		}
		return only, nil
	}
	res := s.resources[resourceKey(identifier)]
	if res == nil || !c.mayReach(res) {
		return nil, refuse(codeInvalidTarget, "the resource is not one that this server gives tokens for")
	}
	return res, nil
}

// maxScope bounds the parameter scope.
const maxScope = 4 << 10

// scopesFor returns what a client that asks for scopes can have at a resource: of those that it names the ones that exist,
// or, if it names none, all that are not kept for those who ask. What nobody knows is dropped, so that a client may ask
// for all that some document lists.
//
// Spec: RFC 6749, section 3.3.
func scopesFor(c *client, res *Resource, asked string) ([]string, error) {
	var scopes []string
	for _, sc := range res.Scopes {
		if (asked == "" && !sc.OnRequest || asked != "" && hasScope(asked, sc.Name)) && c.mayHave(sc.Name) {
			scopes = append(scopes, sc.Name)
		}
	}
	if asked != "" {
		if err := checkScope(asked); err != nil {
			return nil, err
		}
		if len(scopes) == 0 && !onlyOffline(asked) {
			return nil, refuse(codeInvalidScope, "none of the scopes is one of this resource for this client")
		}
	}
	return scopes, nil
}

func checkScope(asked string) error {
	if len(asked) > maxScope {
		return refuse(codeInvalidScope, "the parameter scope is too long")
	}
	for s := range strings.SplitSeq(asked, " ") {
		if s != "" && !isScope(s) {
			return refuse(codeInvalidScope, "the parameter scope is malformed")
		}
	}
	return nil
}

func hasScope(list, name string) bool {
	for s := range strings.SplitSeq(list, " ") {
		if s == name {
			return true
		}
	}
	return false
}

// scopeOffline is what other servers want to be asked for before they give a refresh token. Here the grant types of a
// client say whether it gets one.
const scopeOffline = "offline_access"

func onlyOffline(asked string) bool {
	for s := range strings.FieldsSeq(asked) {
		if s != scopeOffline {
			return false
		}
	}
	return true
}

// narrow returns what is asked of what is granted: all of it if nothing is asked. More than what is granted is refused.
//
// Spec: RFC 6749, section 6.
func narrow(granted []string, asked string) ([]string, error) {
	if asked == "" {
		return granted, nil
	}
	if err := checkScope(asked); err != nil {
		return nil, err
	}
	var scopes []string
	for s := range strings.FieldsSeq(asked) {
		switch {
		case s == scopeOffline || slices.Contains(scopes, s):
		case !slices.Contains(granted, s):
			return nil, refuse(codeInvalidScope, "a scope is more than what was granted")
		default:
			scopes = append(scopes, s)
		}
	}
	return scopes, nil
}

// errNotAllowed is the error for scopes none of which the user may allow.
var errNotAllowed = refuse(codeAccessDenied, "the user may not allow any of the scopes")

// allowedBy returns those of the scopes that the user may allow. If none is left, that is no answer to a client which has
// asked for some; one that has not can do with a token without.
func (in *interaction) allowedBy(u *Subject) ([]string, error) {
	if u.Scopes == nil {
		return in.Scopes, nil
	}
	var scopes []string
	for _, name := range in.Scopes {
		if slices.Contains(u.Scopes, name) {
			scopes = append(scopes, name)
		}
	}
	if len(scopes) == 0 && in.Asked {
		return nil, errNotAllowed
	}
	return scopes, nil
}

// stillThere returns those of the scopes that the resource has and the client may have.
func stillThere(c *client, res *Resource, scopes []string) []string {
	var left []string
	for _, name := range scopes {
		if c.mayHave(name) && slices.ContainsFunc(res.Scopes, func(sc Scope) bool { return sc.Name == name }) {
			left = append(left, name)
		}
	}
	return left
}

func (s *Server) resource(identifier string) *Resource { return s.resources[resourceKey(identifier)] }
