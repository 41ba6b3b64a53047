package authserver

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/netx"
)

// resourceKey returns the normal form of a resource identifier: scheme and host in lower case,
// with its port, with at least a slash as path. Spec: basic/authorization (2025-06-18
// and later), Canonical Server URI; RFC 3986, section 6.2.
func resourceKey(identifier string) string {
	u, err := url.Parse(identifier)
	if err != nil || u.Host == "" || u.User != nil || strings.Contains(identifier, "#") {
		return "" // not a valid identifier
	}
	key := strings.ToLower(u.Scheme) + "://" + netx.HostPort(u) + cmp.Or(u.EscapedPath(), "/")
	if u.RawQuery != "" || u.ForceQuery {
		key += "?" + u.RawQuery
	}
	return key
}

// Spec: RFC 6749, section 3.3.
func isScope(s string) bool { return s != "" && isPrintable(s) && !strings.ContainsAny(s, `"\`) }

// resourceFor returns the resource that a client requests. Clients of 2025-03-26 do not name one;
// this works if the client can access only a single resource.
func (s *Server) resourceFor(c *client, identifier string) (*Resource, error) {
	if identifier == "" {
		all := keep(slices.Collect(maps.Values(s.resources)), c.mayAccess)
		switch len(all) {
		case 0:
			return nil, refuse(codeInvalidTarget, "the client may not access any resource")
		case 1:
			return all[0], nil
		}
		return nil, refuse(codeInvalidTarget, "resource is missing")
	}
	res := s.resource(identifier)
	if res == nil || !c.mayAccess(res) {
		return nil, refuse(codeInvalidTarget, "the resource is unknown or not available to this client")
	}
	return res, nil
}

const maxScope = 4 << 10 // bytes

// scopesFor returns the scopes of a request at a resource: the requested scopes that
// exist, or without a scope parameter all scopes without OnRequest. Unknown scopes are ignored,
// because clients may request all scopes that they find in metadata. Spec: RFC 6749, section 3.3.
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
			return nil, refuse(codeInvalidScope,
				"the resource has none of the scopes, or they are not available to this client")
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

func hasScope(list, name string) bool { return slices.Contains(strings.Split(list, " "), name) }

// scopeOffline is the scope with which clients request a refresh token from other servers. Here the
// grant types of a client decide that.
const scopeOffline = "offline_access"

func onlyOffline(requested string) bool {
	return !slices.ContainsFunc(strings.Fields(requested), func(s string) bool { return s != scopeOffline })
}

// narrow returns the requested scopes, which must have been granted, or all granted scopes if there
// is no scope parameter. Spec: RFC 6749, section 6.
func narrow(granted []string, requested string) ([]string, error) {
	if requested == "" {
		return granted, nil
	}
	if err := checkScope(requested); err != nil {
		return nil, err
	}
	var scopes []string
	for s := range strings.FieldsSeq(requested) {
		if s != scopeOffline && !slices.Contains(granted, s) {
			return nil, refuse(codeInvalidScope, "a requested scope was not granted")
		}
		if s != scopeOffline && !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	return scopes, nil
}

var errNotAllowed = refuse(codeAccessDenied, "the user may not grant any of the requested scopes")

// scopesAllowedBy returns the scopes that the user may grant. If there are no scopes, the result is
// an error for a client that requested scopes, and a token without scopes for a client that did
// not.
func (in *interaction) scopesAllowedBy(u *Subject) ([]string, error) {
	if u.Scopes == nil {
		return in.Scopes, nil
	}
	scopes := keep(in.Scopes, func(name string) bool { return slices.Contains(u.Scopes, name) })
	if len(scopes) == 0 && in.Asked {
		return nil, errNotAllowed
	}
	return scopes, nil
}

// stillAllowed returns the scopes that the resource supports and the client may get.
func stillAllowed(c *client, res *Resource, scopes []string) []string {
	return keep(scopes, func(name string) bool {
		return c.mayHave(name) && slices.ContainsFunc(res.Scopes, func(sc Scope) bool { return sc.Name == name })
	})
}

// keep returns the elements for which f is true.
func keep[T any](all []T, f func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return !f(v) })
}

func (s *Server) resource(identifier string) *Resource { return s.resources[resourceKey(identifier)] }
