package authserver

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// newMetadata returns the metadata of the server.
//
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
	m.GrantTypesSupported = []string{grantCode, grantRefresh, grantClient}
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

// ResourceMetadata returns the metadata of one of the resources, for [oauth.Require]. Its scopes
// are those that a client should request initially. The Server serves the same metadata. To serve
// other metadata, mount an [oauth.NewMetadataHandler] at the more specific path. ResourceMetadata
// panics if the resource is not listed in [Options.Resources].
func (s *Server) ResourceMetadata(resource string) oauth.ResourceMetadata {
	res := s.mustResource(resource)
	m := oauth.ResourceMetadata{
		Resource: res.URL, Name: res.Name, AuthorizationServers: []string{s.o.Issuer},
		BearerMethodsSupported: []string{"header"},
	}
	for _, sc := range res.Scopes {
		if !sc.OnRequest {
			m.ScopesSupported = append(m.ScopesSupported, sc.Name)
		}
	}
	return m
}

func (s *Server) mustResource(resource string) *Resource {
	res := s.resource(resource)
	if res == nil {
		panic(fmt.Sprintf("authserver: resource %q is not listed in Options.Resources", resource))
	}
	return res
}
