package authserver

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// Spec: RFC 8414, section 2; basic/authorization/client-registration (2026-07-28).
func (s *Server) newMetadata() *oauth.ServerMetadata {
	methods := []string{authNone, authBasic, authPost, authKey}
	m := &oauth.ServerMetadata{
		Issuer:                          s.o.Issuer,
		TokenEndpoint:                   s.o.Issuer + pathToken,
		RevocationEndpoint:              s.o.Issuer + pathRevoke,
		IntrospectionEndpoint:           s.o.Issuer + pathIntrospect,
		JWKSURI:                         s.o.Issuer + pathKeys,
		ResponseTypesSupported:          []string{},
		GrantTypesSupported:             []string{grantClient},
		TokenEndpointAuthMethods:        methods,
		TokenEndpointAuthAlgorithms:     assertionAlgorithmNames(),
		RevocationEndpointAuthMethods:   methods,
		IntrospectionEndpointAuthMethod: methods[1:],
		DPoPAlgorithms:                  s.proofs.Algorithms(),
	}
	if len(s.o.AssertionIssuers) > 0 {
		m.GrantTypesSupported = append(m.GrantTypesSupported, grantAssertion)
	}
	for _, r := range s.o.Resources {
		for _, sc := range r.Scopes {
			if !slices.Contains(m.ScopesSupported, sc.Name) {
				m.ScopesSupported = append(m.ScopesSupported, sc.Name)
			}
		}
	}
	if s.o.Login == nil {
		return m
	}
	m.AuthorizationEndpoint = s.o.Issuer + pathAuthorize
	m.ResponseTypesSupported = []string{"code"}
	m.ResponseModesSupported = []string{"query"}
	m.GrantTypesSupported = append([]string{grantCode, grantRefresh}, m.GrantTypesSupported...)
	m.CodeChallengeMethods = []string{methodS256}
	m.SupportsIssuerParameter = true
	if !s.o.Registration.Disabled {
		m.RegistrationEndpoint = s.o.Issuer + pathRegister
	}
	m.SupportsClientMetadata = !s.o.ClientMetadata.Disabled
	return m
}

// Metadata returns the metadata of the server. The caller must not modify it.
func (s *Server) Metadata() *oauth.ServerMetadata { return s.metadata }

func (s *Server) serveMetadata(w http.ResponseWriter, _ *http.Request) {
	cacheable(w.Header())
	writeJSON(w, http.StatusOK, s.metadata)
}

// ResourceMetadata returns the metadata of a resource, for [oauth.Require]. Its scopes are the
// scopes that a client should request initially. The Server serves the same metadata. To serve
// other metadata, mount an [oauth.NewMetadataHandler] at the more specific path. ResourceMetadata
// panics if the resource is not listed in [Options.Resources].
func (s *Server) ResourceMetadata(resource string) oauth.ResourceMetadata {
	res := s.mustResource(resource)
	return oauth.ResourceMetadata{
		Resource: res.URL, Name: res.Name, AuthorizationServers: []string{s.o.Issuer},
		BearerMethodsSupported: []string{"header"}, ScopesSupported: res.initialScopes(),
		DPoPAlgorithms: s.proofs.Algorithms(),
	}
}

func (r *Resource) initialScopes() (names []string) {
	for _, sc := range r.Scopes {
		if !sc.OnRequest {
			names = append(names, sc.Name)
		}
	}
	return names
}

func (s *Server) mustResource(resource string) *Resource {
	res := s.resource(resource)
	if res == nil {
		panic(fmt.Sprintf("authserver: resource %q is not listed in Options.Resources", resource))
	}
	return res
}

// pathResource is followed by the path of a resource in the path of its metadata. Clients also
// request it alone.
const pathResource = "/.well-known/oauth-protected-resource"

type resourceDocument struct {
	host    string // of the resource, normalized by plainHost
	path    string // of the metadata
	handler http.Handler
}

// newResourceDocuments returns the metadata of all resources with a URL that determines its path.
// Spec: RFC 9728, section 3; basic/authorization (2025-06-18 and later), Protected Resource
// Metadata Discovery.
func (s *Server) newResourceDocuments() []resourceDocument {
	var all []resourceDocument
	for _, res := range s.o.Resources {
		u, err := url.Parse(res.URL)
		if err != nil || strings.Contains(res.URL, "?") {
			continue // not a resource that oauth.Require protects
		}
		path := pathResource + u.Path
		if u.Path == "/" {
			path = pathResource
		}
		handler := oauth.NewMetadataHandler(s.ResourceMetadata(res.URL))
		all = append(all, resourceDocument{plainHost(u.Host), path, handler})
	}
	return all
}

func plainHost(host string) string {
	host = strings.ToLower(host)
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(host, ":443"), ":80"), ":")
}

// serveResource serves the metadata that the path and the host of the request determine. If no
// resource is at that host, a proxy replaced the header, and the host of the issuer is used.
func (s *Server) serveResource(w http.ResponseWriter, r *http.Request) {
	host := plainHost(r.Host)
	if !slices.ContainsFunc(s.resourceDocuments, func(d resourceDocument) bool { return d.host == host }) {
		host = plainHost(s.issuer.Host)
	}
	handler := s.resourceHandler(host, r.URL.Path)
	if handler == nil {
		http.NotFound(w, r)
		return
	}
	cacheable(w.Header())
	handler.ServeHTTP(w, r)
}

// resourceHandler returns the handler of the metadata at a path, or nil. pathResource
// alone is the path of the only resource of a host.
func (s *Server) resourceHandler(host, path string) http.Handler {
	var ofHost []http.Handler
	for _, d := range s.resourceDocuments {
		switch {
		case d.host != host:
		case d.path == path:
			return d.handler
		default:
			ofHost = append(ofHost, d.handler)
		}
	}
	if path == pathResource && len(ofHost) == 1 {
		return ofHost[0]
	}
	return nil
}
