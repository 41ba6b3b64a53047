// Package authserver is an OAuth authorization server for MCP servers that need to be self-contained.
//
// It registers clients or fetches their documents, asks the user for consent, leaves it to a [Login] to find out who the
// user is, and gives out codes, access tokens and refresh tokens. A [Server] is an [http.Handler]; [Server.Verifier]
// checks its tokens in the same process, where a revocation works at once. An MCP server and its authorization server
// are two lines of a mux:
//
//	protect := oauth.Require(auth.Verifier(endpoint), auth.ResourceMetadata(endpoint), nil)
//	mux.Handle("/mcp", protect(mcphttp.NewHandler(server, nil)))
//	mux.Handle("/", auth)
//
// The last one has to take the whole host: the pages and endpoints, and what is below /.well-known/, where clients look
// for the metadata of both. See examples/authserver for a whole program.
//
// # Scopes
//
// A scope limits a client; it is no permission of a user. What a token allows is what the client asked for, cut to what
// [Client.Scopes] lets it have, if the operator knows it, and, after the login, to [Subject.Scopes]. Where that is nil,
// every user can consent to every scope, for every client, among them those that have registered themselves: then a
// handler that does what not everybody may has to ask who the caller is, too. Clients that act for themselves have no
// user to limit them: they get what [Client.Scopes] names, or all scopes but those with [Scope.OnRequest].
//
// It is no OpenID provider: it issues no ID tokens, and says so by publishing no OpenID configuration.
//
// Spec: RFC 6749 with the rules of OAuth 2.1, RFC 7009, RFC 7591, RFC 7636, RFC 7662, RFC 8414, RFC 8707, RFC 9068, RFC
// 9207, RFC 9728; basic/authorization of 2025-03-26 and later.
package authserver
