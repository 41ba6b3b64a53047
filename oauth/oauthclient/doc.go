// Package oauthclient logs MCP clients in to servers that require authorization, with OAuth 2.1.
//
// [Transport] is an http.RoundTripper that obtains access tokens, adds them to requests and
// refreshes them:
//
//	login := oauthclient.NewTransport(url, &oauthclient.TransportOptions{
//		Authorizer: oauthclient.NewBrowser(nil),
//	})
//	client := &http.Client{Transport: login}
//	c, err := mcp.Connect(ctx, mcphttp.NewTransport(url, &mcphttp.TransportOptions{Client: client}), nil)
//
// # Login
//
// A login begins when the server refuses a request with status 401. The Transport then takes the
// steps of the MCP specification:
//
//   - Discovery: it fetches the Protected Resource Metadata that the challenge names, also at another
//     origin if it is about the URL of the server, and the metadata of the authorization server. For
//     servers of revision 2025-03-26, which publish no metadata, it uses the default endpoints.
//   - Client registration: it uses the client id of the options ([Identity]), or a Client ID
//     Metadata Document (an https URL as client id, see [NewMetadataHandler]), or Dynamic Client
//     Registration, in this order.
//   - Authorization: the [Authorizer] opens the login page for the user and receives the
//     authorization code; [NewBrowser] does so with the system's browser and a server on a loopback
//     address. PKCE protects the code, and the issuer and the state of the response are checked.
//   - Token request: it redeems the code for an access token and, often, a refresh token.
//
// Requests that need a login at the same time share it, and processes that share a [Store] share
// refreshed tokens.
//
// # Step-up authorization
//
// If the server refuses a request with status 403 because the token lacks scopes, the Transport
// logs in again for more scopes and repeats the request.
//
// # Programs without a user
//
// A [Grant] replaces the login: [NewClientCredentialsGrant] for programs that act for themselves,
// [NewWorkloadGrant] for programs whose platform vouches for them, [NewEnterpriseGrant] for users
// who logged in at the identity provider of their company. [Transport.Extensions] declares the
// extension that defines the grant.
//
// # DPoP
//
// With [TransportOptions.DPoP] tokens are bound to a key of the client, so that a stolen token is
// of no use.
//
// # Security
//
// A token is only sent to the server it is for, and client secrets only to the issuer they belong
// to. Metadata is fetched by an [oauth.Fetcher], which guards against server-side request forgery.
// Text from servers is cleaned before it appears in errors. The name of an option that disables a
// check contains Insecure in its name.
package oauthclient
