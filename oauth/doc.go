// Package oauth protects MCP servers with OAuth 2.1: it verifies access tokens, checks scopes, and
// tells clients how to get a token.
//
// An MCP server that requires authorization is an OAuth 2.1 resource server. It does not issue
// tokens; an authorization server does. If your identity provider supports the features that MCP
// clients need, such as client registration, use it. Package
// [github.com/patchbay-mcp/patchbay/oauth/authserver] is an authorization server for small
// deployments without such a provider. The MCP server performs three duties, which [Require]
// performs as HTTP middleware:
//
//	verifier := oauth.NewJWTVerifier("https://auth.example.com", nil)
//	protect := oauth.Require(verifier, oauth.ResourceMetadata{
//		Resource:             "https://example.com/mcp",
//		AuthorizationServers: []string{"https://auth.example.com"},
//	}, nil)
//	err := mcphttp.ListenAndServe(ctx, addr, "/mcp", mcphttp.NewHandler(server, nil), protect)
//
// It serves the Protected Resource Metadata (RFC 9728) that names the authorization server. It
// answers a request without a valid access token with status 401 and a challenge (WWW-Authenticate)
// that points to this metadata. And it accepts only tokens that were issued for this server:
// genuine, not expired, with its URL as audience.
//
// Package [github.com/patchbay-mcp/patchbay/oauth/oauthclient] is the other side: it logs clients
// in. This package also contains the types that both sides share, such as [ServerMetadata],
// [ClientMetadata] and [Challenge].
//
// # Verifying tokens
//
// A [Verifier] verifies a token and returns its claims: [NewJWTVerifier] for signed tokens (JWT),
// [NewIntrospectionVerifier] for opaque tokens that the authorization server must be asked about,
// [NewStaticVerifier] for a few tokens in a configuration. Handlers get the caller with
// mcp.PrincipalFrom(ctx). They never see the token, so that they cannot pass it on.
//
// # Scopes and step-up authorization
//
// A scope is a permission that a token grants. [RequireOptions.Scopes] are needed by every request,
// [RequireScopes] contains rules for tools, prompts and methods that need more, and [CheckScopes]
// checks scopes within a handler. A request that lacks scopes is refused with status 403 and a
// challenge that names them. The client then logs in again for more scopes: step-up authorization.
//
// # DPoP
//
// With DPoP (RFC 9449) a token is bound to a key of the client, and every request carries a proof
// that its sender holds the key. A stolen token is then of no use. [RequireOptions.DPoP] requires
// or allows it.
//
// # Security
//
// All input of clients and servers is bounded. URLs that come from them are fetched by a [Fetcher],
// which guards against server-side request forgery. The name of an option that disables a check
// contains Insecure in its name.
package oauth
