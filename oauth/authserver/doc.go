// Package authserver is an OAuth authorization server inside an MCP server.
//
// It is for small deployments without an identity provider: one process, with a few users who log
// in by password, or with users of an OpenID provider that does not itself support the features
// that MCP clients need, such as client registration. With an identity provider that does, use
// [oauth.Require] alone.
//
// A [Server] registers clients or fetches their metadata documents, asks the user for consent, lets
// a [Login] authenticate the user, and issues codes, access tokens and refresh tokens. It is an
// [http.Handler]. [Server.Verifier] verifies its tokens in the same process, where a revocation
// takes effect at once. An MCP server and its authorization server are two lines of a mux:
//
//	protect := oauth.Require(auth.Verifier(endpoint), auth.ResourceMetadata(endpoint), nil)
//	mux.Handle("/mcp", protect(mcphttp.NewHandler(server, nil)))
//	mux.Handle("/", auth)
//
// The last pattern must match the whole host: the Server serves its pages and endpoints, and the
// metadata of both servers below /.well-known/. See examples/authserver for a complete program.
// Package stores/bolt contains a [Store] that survives a restart.
//
// # Scopes
//
// A scope limits a client. It is not a permission of a user. A token contains the scopes that the
// client requested, limited by [Client.Scopes] for a pre-registered client, and by [Subject.Scopes]
// after the login. If Subject.Scopes is nil, every user can grant every scope to every client,
// including clients that registered themselves. A handler that only some users may call must then
// also check the user. No user limits a client that acts for itself. It gets the scopes in
// [Client.Scopes], or all scopes without [Scope.OnRequest].
//
// # Bound tokens
//
// If a token request contains a DPoP proof, the access token is bound to the key of the proof, and
// [oauth.Require] accepts it only with another proof. The refresh token of a public client is bound
// to the same key. A code is bound to the key that the parameter dpop_jkt of its authorization
// request names.
//
// # Several processes
//
// Servers with the same Options, the same SealKeys and a Store that they share are one
// authorization server: each of them accepts the codes, tokens, logins and registrations of the
// others. [Store] describes the requirements. Rate limits and metadata documents are kept per
// process. A revocation takes effect in all processes at once, because each verification reads the
// grant.
//
// The Server is not an OpenID provider: it issues no ID tokens and publishes no OpenID
// configuration.
//
// Spec: RFC 6749 with the rules of OAuth 2.1, RFC 7009, RFC 7523, RFC 7591, RFC 7636, RFC 7662, RFC
// 8414, RFC 8707, RFC 9068, RFC 9207, RFC 9449, RFC 9728; basic/authorization of 2025-03-26 and
// later; extension io.modelcontextprotocol/enterprise-managed-authorization.
package authserver
