package oauth

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// checkResource refuses the identifier of a resource that is not the MCP server at endpoint, or something that this is
// within: the scheme, host and port are those of the endpoint; the path is that of the endpoint, or one above it that ends
// where a segment does. A slash at the end makes no difference. What stands in the identifier is used as it is.
//
// Spec: RFC 9728, section 3.3; RFC 8707, section 2.
func (p *policy) checkResource(resource string, endpoint *url.URL) error {
	u, err := p.checkText(resource)
	switch {
	case err != nil:
		return fmt.Errorf("its resource is none: %w", err)
	case !isSameOrigin(u, endpoint):
		return errors.New("it is for a resource at another origin")
	case u.ForceQuery || u.RawQuery != "" && u.RawQuery != endpoint.RawQuery:
		return errors.New("it is for another resource, by its query")
	case !isPathWithin(endpoint.EscapedPath(), u.EscapedPath()):
		return errors.New("it is for another resource, by its path")
	}
	return nil
}

// isPathWithin reports whether a path is another one, or below it. Both are compared as they are written, so that a path
// with dots in it, which means another one, is within none but itself.
func isPathWithin(path, above string) bool {
	path, above = strings.TrimSuffix(path, "/"), strings.TrimSuffix(above, "/")
	rest, ok := strings.CutPrefix(path, above)
	switch {
	case !ok || rest != "" && rest[0] != '/':
		return false
	case rest == "":
		return true
	}
	for segment := range strings.SplitSeq(strings.ToLower(rest), "/") {
		if dots := strings.ReplaceAll(segment, "%2e", "."); dots == "." || dots == ".." {
			return false
		}
	}
	return true
}

// checkServer refuses metadata that is not that of the issuer, or holds a URL that may not be called.
//
// Spec: RFC 8414, section 3.3; basic/authorization (2026-07-28), Authorization Server Metadata Discovery.
func (p *policy) checkServer(m *ServerMetadata, issuer string) error {
	if m.Issuer != issuer {
		return errors.New("its issuer is another one than it was fetched for")
	}
	if m.TokenEndpoint == "" {
		return errors.New("it has no token_endpoint")
	}
	for _, endpoint := range []struct{ name, text string }{
		{"authorization_endpoint", m.AuthorizationEndpoint},
		{"token_endpoint", m.TokenEndpoint},
		{"registration_endpoint", m.RegistrationEndpoint},
		{"revocation_endpoint", m.RevocationEndpoint},
		{"introspection_endpoint", m.IntrospectionEndpoint},
		{"userinfo_endpoint", m.UserinfoEndpoint},
		{"jwks_uri", m.JWKSURI},
	} {
		if endpoint.text == "" {
			continue
		}
		if _, err := p.checkText(endpoint.text); err != nil {
			return fmt.Errorf("its %s: %w", endpoint.name, err)
		}
	}
	return nil
}

// checkCodeFlow says why the authorization code flow cannot be had with what was found. Metadata that is silent about
// PKCE is that of a server which may not have it, so that a stolen code would be of use; where there is no metadata at
// all, nobody can say, and revision 2025-03-26 demands it.
//
// Spec: basic/authorization (2025-11-25), Authorization Code Protection.
func (d *discovery) checkCodeFlow() error {
	m := d.Server
	switch {
	case m.AuthorizationEndpoint == "":
		return errors.New("oauth: the authorization server has no authorization endpoint")
	case d.Conventional:
		return nil
	case !slices.Contains(m.CodeChallengeMethods, "S256"):
		return errors.New("oauth: the authorization server does not say that it supports PKCE with S256, without which there is no safe login")
	case len(m.ResponseTypesSupported) > 0 && !slices.Contains(m.ResponseTypesSupported, "code"):
		return errors.New("oauth: the authorization server does not give authorization codes")
	}
	return nil
}
