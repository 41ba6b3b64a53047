package oauthclient_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// An authorization server that names the login page of an honest one would get that one's codes. Where
// responses have no iss the login is refused before the user is asked.
func TestMixUpWithoutIssuerInResponses(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		honest := w.newServer(otherIssuer)
		honest.set(func(s *fakeServer) { s.noIss = true })
		w.as.document["authorization_endpoint"] = otherIssuer + "/authorize"
		delete(w.as.document, "authorization_response_iss_parameter_supported")
		asked := 0
		tr := w.transport(&oauthclient.TransportOptions{Authorizer: oauthclient.NewAuthorizer(clientRedirect,
			func(_ context.Context, login *oauthclient.LoginRequest) (url.Values, error) {
				asked++
				u, err := url.Parse(login.URL)
				honest.set(func(s *fakeServer) { s.clients[u.Query().Get("client_id")] = "" })
				return honest.authorize(u.Query()), err
			})})
		_, _, err := post(tr, t.Context())
		if err == nil || !strings.Contains(err.Error(), "configure the issuer of the client") || asked != 0 || w.as.count("authorization_code") != 0 {
			t.Errorf("got error %v after %d logins, want one before any login that names the setting", err, asked)
		}
		if w.as.count("register") != 0 {
			t.Error("the client registered")
		}
	})
}

// The login page must be at the host of the issuer or below it, or both at that of the MCP server, unless
// responses name the issuer or the program has chosen it.
func TestHostOfAuthorizationEndpoint(t *testing.T) {
	const at = "/.well-known/oauth-authorization-server"
	for _, tt := range []struct {
		issuer, page string
		ok           bool
	}{
		{"https://as.example", "https://as.example/authorize", true},
		{"https://as.example", "https://AS.example:8443/authorize", true},
		{"https://as.example/tenant", "https://as.example/login", true},
		{"https://as.example", "https://login.as.example/authorize", true},
		{"https://as.example", "https://a.b.AS.example/authorize", true},
		{"https://as.example", "https://evilas.example/authorize", false},
		{"https://as.example", "https://as.example.evil.example/authorize", false},
		{"https://as.example", "https://example/authorize", false},
		{"https://a.example.com", "https://b.example.com/authorize", false},
		{"https://evil.example.com", "https://example.com/authorize", false},
		{"https://as.mcp.example", "https://mcp.example/authorize", true}, // both within the MCP server's host
		{"https://as.mcp.example", "https://login.mcp.example/authorize", true},
		{"https://as.example", "https://mcp.example/authorize", false},
		{"https://as.mcp.example", "https://evilmcp.example/authorize", false},
		{"https://8.8.8.8", "https://8.8.8.8:8443/authorize", true},
		{"https://8.8", "https://8.8.8.8/authorize", false},
		{"https://example", "https://as.example/authorize", false},
	} {
		for _, how := range []string{"neither", "issuer in responses", "configured"} {
			t.Run(tt.issuer+" "+tt.page+" "+how, func(t *testing.T) {
				w := newNetwork(t)
				parts := strings.SplitN(strings.TrimPrefix(tt.issuer, "https://"), "/", 2)
				path := ""
				if len(parts) == 2 {
					path = "/" + parts[1]
				}
				sendsIssuer := ""
				if how == "issuer in responses" {
					sendsIssuer = `"authorization_response_iss_parameter_supported":true,`
				}
				w.Doc(mcpPath, resourceDoc(mcpServer, tt.issuer))
				w.Doc("https://"+parts[0]+at+path, `{`+sendsIssuer+`"issuer":"`+tt.issuer+`","authorization_endpoint":"`+tt.page+
					`","token_endpoint":"`+tt.issuer+`/token","code_challenge_methods_supported":["S256"]}`)
				d, err := oauthclient.Discover(t.Context(), w.fetcher(nil), &oauthclient.DiscoveryQuery{Endpoint: mcpServer})
				if err != nil {
					t.Fatal(err)
				}
				configured := ""
				if how == "configured" {
					configured = tt.issuer
				}
				server, _ := url.Parse(mcpServer)
				if err := oauthclient.CheckLoginPage(d, server, configured); (err == nil) != (tt.ok || how != "neither") {
					t.Errorf("got error %v, want success %t", err, tt.ok || how != "neither")
				}
			})
		}
	}
}

// Names and addresses of this machine are one host.
func TestLoginPageAtLoopback(t *testing.T) {
	d := &oauthclient.Discovery{Issuer: "http://localhost:8001", Server: &oauth.ServerMetadata{
		Issuer: "http://localhost:8001", AuthorizationEndpoint: "http://127.0.0.1:8001/authorize",
	}}
	server, _ := url.Parse("http://localhost:8000/mcp")
	if err := oauthclient.CheckLoginPage(d, server, ""); err != nil {
		t.Error(err)
	}
	d.Server.AuthorizationEndpoint = otherIssuer + "/authorize"
	if err := oauthclient.CheckLoginPage(d, server, ""); err == nil {
		t.Error("a login page elsewhere was accepted")
	}
}

// A token endpoint at another host is that of the issuer, whose metadata names it.
func TestTokenEndpointAtAnotherHost(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		delete(w.as.document, "authorization_response_iss_parameter_supported")
		w.as.set(func(s *fakeServer) { s.noIss = true })
		w.Page("https://tokens.example/token", w.as.token)
		w.as.document["token_endpoint"] = "https://tokens.example/token"
		w.mustPost(w.transport(nil))
	})
}
