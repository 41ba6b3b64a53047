package oauth

// ResourceMetadata is the Protected Resource Metadata that a server publishes about itself.
//
// Spec: RFC 9728, section 2; basic/authorization (2025-06-18 and later), Authorization Server
// Location.
type ResourceMetadata struct {
	// Resource is the identifier of the resource: for an MCP server, the URL of its endpoint.
	Resource string `json:"resource"`
	// AuthorizationServers are the URLs of the issuers whose tokens the resource accepts.
	AuthorizationServers   []string `json:"authorization_servers,omitempty"`
	ScopesSupported        []string `json:"scopes_supported,omitempty"`
	BearerMethodsSupported []string `json:"bearer_methods_supported,omitempty"`
	Name                   string   `json:"resource_name,omitempty"`
	Documentation          string   `json:"resource_documentation,omitempty"`
	PolicyURI              string   `json:"resource_policy_uri,omitempty"`
	TermsURI               string   `json:"resource_tos_uri,omitempty"`
	JWKSURI                string   `json:"jwks_uri,omitempty"`
	// DPoPRequired is set if every token must be bound to a key of the client.
	DPoPRequired   bool     `json:"dpop_bound_access_tokens_required,omitempty"`
	DPoPAlgorithms []string `json:"dpop_signing_alg_values_supported,omitempty"`
}

// ServerMetadata is the metadata of an authorization server, as RFC 8414 and OpenID Connect
// Discovery define it.
//
// Spec: RFC 8414, section 2; OpenID Connect Discovery 1.0, section 3; RFC 9207, section 3.
type ServerMetadata struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint,omitempty"`
	TokenEndpoint         string   `json:"token_endpoint,omitempty"`
	RegistrationEndpoint  string   `json:"registration_endpoint,omitempty"`
	RevocationEndpoint    string   `json:"revocation_endpoint,omitempty"`
	IntrospectionEndpoint string   `json:"introspection_endpoint,omitempty"`
	UserinfoEndpoint      string   `json:"userinfo_endpoint,omitempty"`
	JWKSURI               string   `json:"jwks_uri,omitempty"`
	ScopesSupported       []string `json:"scopes_supported,omitempty"`
	// ResponseTypesSupported is required and encoded even if it is empty; only nil is omitted.
	ResponseTypesSupported []string `json:"response_types_supported,omitzero"`
	ResponseModesSupported []string `json:"response_modes_supported,omitempty"`
	GrantTypesSupported    []string `json:"grant_types_supported,omitempty"`
	// CodeChallengeMethods are the methods of PKCE. Without them clients must assume that the
	// server does not support PKCE.
	CodeChallengeMethods            []string `json:"code_challenge_methods_supported,omitempty"`
	TokenEndpointAuthMethods        []string `json:"token_endpoint_auth_methods_supported,omitempty"`
	TokenEndpointAuthAlgorithms     []string `json:"token_endpoint_auth_signing_alg_values_supported,omitempty"`
	RevocationEndpointAuthMethods   []string `json:"revocation_endpoint_auth_methods_supported,omitempty"`
	IntrospectionEndpointAuthMethod []string `json:"introspection_endpoint_auth_methods_supported,omitempty"`
	DPoPAlgorithms                  []string `json:"dpop_signing_alg_values_supported,omitempty"`
	// SupportsIssuerParameter is set if every authorization response contains the parameter iss.
	SupportsIssuerParameter bool `json:"authorization_response_iss_parameter_supported,omitempty"`
	// SupportsClientMetadata is set if the URL of a Client ID Metadata Document is accepted as
	// client_id.
	SupportsClientMetadata bool   `json:"client_id_metadata_document_supported,omitempty"`
	ServiceDocument        string `json:"service_documentation,omitempty"`
	PolicyURI              string `json:"op_policy_uri,omitempty"`
	TermsURI               string `json:"op_tos_uri,omitempty"`
}

// ClientMetadata describes a client, in a Client ID Metadata Document or in a request for Dynamic
// Client Registration.
//
// Spec: RFC 7591, section 2; basic/authorization/client-registration (2026-07-28).
type ClientMetadata struct {
	// ClientID is only set in a Client ID Metadata Document, whose URL it is.
	ClientID                string   `json:"client_id,omitempty"`
	Name                    string   `json:"client_name,omitempty"`
	URI                     string   `json:"client_uri,omitempty"`
	LogoURI                 string   `json:"logo_uri,omitempty"`
	RedirectURIs            []string `json:"redirect_uris,omitempty"`
	GrantTypes              []string `json:"grant_types,omitempty"`
	ResponseTypes           []string `json:"response_types,omitempty"`
	TokenEndpointAuthMethod string   `json:"token_endpoint_auth_method,omitempty"`
	// ApplicationType is "native" for programs on the user's machine, "web" otherwise.
	ApplicationType string   `json:"application_type,omitempty"`
	Scope           string   `json:"scope,omitempty"`
	Contacts        []string `json:"contacts,omitempty"`
	TermsURI        string   `json:"tos_uri,omitempty"`
	PolicyURI       string   `json:"policy_uri,omitempty"`
	JWKSURI         string   `json:"jwks_uri,omitempty"`
	SoftwareID      string   `json:"software_id,omitempty"`
	SoftwareVersion string   `json:"software_version,omitempty"`
}
