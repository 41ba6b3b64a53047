// Package oauth is the authorization of MCP over HTTP, in every revision that has it. It protects servers, and logs
// clients in.
//
// # Servers
//
// An MCP server is a protected resource. [Require] is middleware that lets requests through with an access token for it:
//
//	verifier := oauth.NewJWTVerifier("https://auth.example.com", nil)
//	protect := oauth.Require(verifier, oauth.ResourceMetadata{
//		Resource:             "https://example.com/mcp",
//		AuthorizationServers: []string{"https://auth.example.com"},
//	}, nil)
//	http.ListenAndServe(addr, protect(mcphttp.NewHandler(server, nil)))
//
// A [Verifier] says what a token means: [NewJWTVerifier] for signed tokens, [NewIntrospectionVerifier] for those that the
// authorization server has to be asked about, [NewStaticVerifier] for tokens of a configuration. Handlers find the caller
// in mcp.RequestFrom(ctx).Principal; the token itself does not reach them. [RequireScopes] says which tools need which
// scopes, and [CheckScopes] asks for more from within a handler.
//
// Package authserver is an authorization server for servers that have no other.
//
// # Clients
//
// [Transport] is an http.RoundTripper that gets the tokens which a server wants, and keeps them fresh:
//
//	login := oauth.NewTransport(url, &oauth.TransportOptions{Authorizer: oauth.NewBrowser(nil)})
//	client := &http.Client{Transport: login}
//	c, err := mcp.Connect(ctx, mcphttp.NewTransport(url, &mcphttp.TransportOptions{Client: client}), nil)
//
// It finds the authorization server as each revision says, from the challenge of the server, from well-known documents,
// or, for servers of 2025-03-26, by convention; registers the program where it has to; asks a person by way of an
// [Authorizer]; and asks again for more scopes when the server wants them. A [Store] keeps the tokens. Programs without
// a person have a [Grant] instead: [NewClientCredentials], [NewEnterprise], [NewWorkload]. [DPoPOptions] bind tokens to a
// key.
//
// # Security
//
// What a peer says is bounded, and where it leads is checked: a [Fetcher] calls https addresses alone, and none nearer
// than the MCP server itself. A token goes to the server that it is for, and nowhere else; ids, secrets and tokens belong
// to the issuer that gave them. PKCE, state, issuer and audience are always checked; what switches a check off has
// Insecure in its name.
package oauth
