package authserver

import (
	"net/url"
	"slices"
	"strings"
)

// resourceKey returns the normal form of a resource identifier: scheme and host in lower case,
// without the default port, with at least a slash as path.
//
// Spec: basic/authorization (2025-06-18 and later), Canonical Server URI; RFC 3986, section 6.2.
func resourceKey(identifier string) string {
	u, err := url.Parse(identifier)
	if err != nil || u.Host == "" || u.User != nil || strings.Contains(identifier, "#") {
		return "" // not a valid identifier
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

// isScope reports whether s is a valid scope name.
//
// Spec: RFC 6749, section 3.3.
func isScope(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}

// resourceFor returns the resource that a client requests. Clients of 2025-03-26 do not name one;
// this works if the client can access only a single resource.
func (s *Server) resourceFor(c *client, identifier string) (*Resource, error) {
	if identifier == "" {
		var only *Resource
		for i := range s.o.Resources {
			if !c.mayAccess(&s.o.Resources[i]) {
				continue
			}
			if only != nil {
				return nil, refuse(codeInvalidTarget, "resource is missing")
			}
			only = &s.o.Resources[i]
		}
		if only == nil {
			return nil, refuse(codeInvalidTarget, "the client may not access any resource")
		}
		return only, nil
	}
	res := s.resources[resourceKey(identifier)]
	if res == nil || !c.mayAccess(res) {
		return nil, refuse(codeInvalidTarget, "the resource is unknown or not available to this client")
	}
	return res, nil
}

// maxScope is the maximum length of the parameter scope in bytes.
const maxScope = 4 << 10

// scopesFor returns the scopes of a request at a resource: those of the requested scopes that
// exist, or without a scope parameter all scopes without OnRequest. Unknown scopes are ignored,
// because clients may request all scopes that they find in metadata.
//
// Spec: RFC 6749, section 3.3.
func scopesFor(c *client, res *Resource, requested string) ([]string, error) {
	var scopes []string
	for _, sc := range res.Scopes {
		if (requested == "" && !sc.OnRequest || requested != "" && hasScope(requested, sc.Name)) && c.mayHave(sc.Name) {
			scopes = append(scopes, sc.Name)
		}
	}
	if requested != "" {
		if err := checkScope(requested); err != nil {
			return nil, err
		}
		if len(scopes) == 0 && !onlyOffline(requested) {
			return nil, refuse(codeInvalidScope, "the resource has none of the scopes, or they are not available to this client")
		}
	}
	return scopes, nil
}

func checkScope(requested string) error {
	if len(requested) > maxScope {
		return refuse(codeInvalidScope, "scope is too long")
	}
	for s := range strings.SplitSeq(requested, " ") {
		if s != "" && !isScope(s) {
			return refuse(codeInvalidScope, "scope is malformed")
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

// scopeOffline is the scope with which clients request a refresh token from other servers. Here the
// grant types of a client decide that.
const scopeOffline = "offline_access"

func onlyOffline(requested string) bool {
	for s := range strings.FieldsSeq(requested) {
		if s != scopeOffline {
			return false
		}
	}
	return true
}

// narrow returns the requested scopes, which must have been granted, or all granted scopes if there
// is no scope parameter.
//
// Spec: RFC 6749, section 6.
func narrow(granted []string, requested string) ([]string, error) {
	if requested == "" {
		return granted, nil
	}
	if err := checkScope(requested); err != nil {
		return nil, err
	}
	var scopes []string
	for s := range strings.FieldsSeq(requested) {
		switch {
		case s == scopeOffline || slices.Contains(scopes, s):
		case !slices.Contains(granted, s):
			return nil, refuse(codeInvalidScope, "a requested scope was not granted")
		default:
			scopes = append(scopes, s)
		}
	}
	return scopes, nil
}

// errNotAllowed reports that the user may not grant any of the requested scopes.
var errNotAllowed = refuse(codeAccessDenied, "the user may not grant any of the requested scopes")

// scopesAllowedBy returns the scopes that the user may grant. If there are none, the result is an
// error for a client that requested scopes, and a token without scopes for one that did not.
func (in *interaction) scopesAllowedBy(u *Subject) ([]string, error) {
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

// stillAllowed returns the scopes that the resource has and the client may get.
func stillAllowed(c *client, res *Resource, scopes []string) []string {
	var allowed []string
	for _, name := range scopes {
		if c.mayHave(name) && slices.ContainsFunc(res.Scopes, func(sc Scope) bool { return sc.Name == name }) {
			allowed = append(allowed, name)
		}
	}
	return allowed
}

func (s *Server) resource(identifier string) *Resource { return s.resources[resourceKey(identifier)] }
