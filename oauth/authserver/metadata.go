package authserver

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// describe returns what the server says of itself.
//
// Spec: RFC 8414, section 2; basic/authorization/client-registration (2026-07-28).
func (s *Server) describe() *oauth.ServerMetadata {
	ways := []string{authNone, authBasic, authPost, authKey}
	m := &oauth.ServerMetadata{
		Issuer:                          s.o.Issuer,
		TokenEndpoint:                   s.o.Issuer + pathToken,
		RevocationEndpoint:              s.o.Issuer + pathRevoke,
		IntrospectionEndpoint:           s.o.Issuer + pathIntrospect,
		JWKSURI:                         s.o.Issuer + pathKeys,
		ResponseTypesSupported:          []string{},
		GrantTypesSupported:             []string{grantClient},
		TokenEndpointAuthMethods:        ways,
		TokenEndpointAuthAlgorithms:     assertionAlgorithmNames(),
		RevocationEndpointAuthMethods:   ways,
		IntrospectionEndpointAuthMethod: ways[1:],
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
	m.SendsIssuer = true
	if !s.o.Registration.Disabled {
		m.RegistrationEndpoint = s.o.Issuer + pathRegister
	}
	m.TakesClientMetadata = !s.o.ClientMetadata.Disabled
	return m
}

// Metadata returns what the server says of itself. It is not to be changed.
func (s *Server) Metadata() *oauth.ServerMetadata { return s.metadata }

func (s *Server) serveMetadata(w http.ResponseWriter, _ *http.Request) {
	cacheable(w.Header())
	writeJSON(w, http.StatusOK, s.metadata)
}

// ResourceMetadata returns what one of the resources says of itself, for [oauth.Require]. Its scopes are those that a client
// should ask for at first. The Server serves the same document; whoever changes it mounts an [oauth.NewMetadataHandler]
// of what it is then before the Server. It panics if there is no such resource in [Options.Resources].
func (s *Server) ResourceMetadata(resource string) oauth.ResourceMetadata {
	res := s.mustResource(resource)
	m := oauth.ResourceMetadata{
		Resource: res.URL, Name: res.Name, AuthorizationServers: []string{s.o.Issuer}, BearerMethodsSupported: []string{"header"},
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
		panic(fmt.Sprintf("authserver: %q is none of Options.Resources", resource))
	}
	return res
}
