// Package authserver is an OAuth authorization server for MCP servers that need to be self-contained.
//
// It registers clients or fetches their documents, asks the user for consent, leaves it to a [Login] to find out who the
// user is, and gives out codes, access tokens and refresh tokens. A [Server] is an [http.Handler]; [Server.Verifier]
// checks its tokens in the same process, where a revocation works at once.
//
// It is no OpenID provider: it issues no ID tokens, and says so by publishing no OpenID configuration.
//
// Spec: RFC 6749 with the rules of OAuth 2.1, RFC 7009, RFC 7591, RFC 7636, RFC 7662, RFC 8414, RFC 8707, RFC 9068, RFC
// 9207; basic/authorization of 2025-03-26 and later.
package authserver
