package conformance_test

import (
	"net"
	"net/http"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A foreignProvider is an authorization server of another project, with its default behaviour. It protects one of our
// servers.
type foreignProvider struct {
	// start starts the provider for an MCP server and returns its issuer.
	start func(t *testing.T, resource string) (issuer string)
	// verify returns the verifier with which the MCP server checks tokens of the provider.
	verify func(issuer string) oauth.Verifier
	// client is the registration that the provider expects. The zero value is for dynamic registration.
	client oauthclient.Identity
	// scopes are the scopes that the server requires and the client requests.
	scopes []string
	// audience is the audience of the provider's tokens if it is not the MCP server.
	audience string
	// user and password are the credentials of the user.
	user, password string
	// refreshes reports whether the provider issues refresh tokens to this client.
	refreshes bool
}

// goProvider returns a function that starts a provider written in Go.
func goProvider(name string) func(t *testing.T, resource string) string {
	return func(t *testing.T, _ string) string {
		t.Helper()
		cmd := exec.Command(build(t, "providers", "./"+name), unusedCallback)
		cmd.Stderr = t.Output()
		return startPeer(t, cmd)
	}
}

// nodeProvider returns a function that starts a provider written in JavaScript.
func nodeProvider(name string) func(t *testing.T, resource string) string {
	return func(t *testing.T, resource string) string {
		t.Helper()
		cmd := exec.Command(needNode(t), "providers/"+name, resource)
		cmd.Stderr = t.Output()
		return startPeer(t, cmd)
	}
}

// introspection returns a function that returns a verifier for an introspection endpoint.
func introspection(path string) func(issuer string) oauth.Verifier {
	return func(issuer string) oauth.Verifier {
		return oauth.NewIntrospectionVerifier(issuer, &oauth.IntrospectionOptions{
			Endpoint: issuer + path, ClientID: "mcp", ClientSecret: "secret", InsecureAudience: "mcp"})
	}
}

func foreignProviders() map[string]foreignProvider {
	registered := oauthclient.Identity{ID: "mcp", Secret: "secret", InsecureAnyIssuer: true}
	return map[string]foreignProvider{
		"oidc-provider": {
			start: func(t *testing.T, _ string) string { return startProvider(t, providerConfig{}).issuer },
			verify: func(issuer string) oauth.Verifier {
				return oauth.NewJWTVerifier(issuer, nil)
			},
			scopes: []string{"mcp:read"}, user: "ann", refreshes: true,
		},
		"zitadel": {
			start: goProvider("zitadel"), verify: introspection("oauth/introspect"), client: registered, audience: "mcp",
			scopes: []string{"openid"}, user: "test-user@localhost", password: "verysecure", refreshes: true,
		},
		"fosite": {
			start: goProvider("fosite"), verify: introspection("/oauth2/introspect"), client: registered, audience: "mcp",
			scopes: []string{"mcp:read"}, user: "ann", refreshes: true,
		},
		"cloudflare": {
			start: nodeProvider("cloudflare.mjs"), verify: introspection("/introspect"),
			scopes: []string{"mcp:read"}, user: "ann", refreshes: true,
		},
		"openauth": {
			start: nodeProvider("openauth.mjs"),
			verify: func(issuer string) oauth.Verifier {
				return oauth.NewJWTVerifier(issuer, &oauth.JWTOptions{JWKSURI: issuer + "/.well-known/jwks.json", InsecureAnyType: true})
			},
			client: oauthclient.Identity{ID: "mcp", InsecureAnyIssuer: true, InsecureUnlistedPKCE: true}, audience: "mcp", user: "ann", refreshes: true,
		},
	}
}

// TestLoginsAtForeignProviders logs in at authorization servers of other projects, calls a tool, refreshes the tokens, and
// logs out.
func TestLoginsAtForeignProviders(t *testing.T) {
	for name, p := range foreignProviders() {
		t.Run(name, func(t *testing.T) { p.logIn(t) })
	}
}

func (p foreignProvider) logIn(t *testing.T) {
	l := listen(t)
	endpoint := endpointAt(l)
	issuer := p.start(t, endpoint)
	access := p.protect(t, l, issuer)
	ctx := within(t, 2*time.Minute)
	s := newLoginClient(t)
	s.user.name, s.user.password, s.client = p.user, p.password, p.client
	c := s.connect(ctx, t, endpoint)
	who := asCaller(t, must(mcp.CallTool[string](ctx, c, "who_am_i", nil))(t))
	if who.Issuer != issuer || who.Subject == "" {
		t.Errorf("caller: got %+v, want one of %s", who, issuer)
	}
	for _, scope := range p.scopes {
		if len(who.Scopes) > 0 && !slices.Contains(who.Scopes, scope) {
			t.Errorf("scopes %q, want %q in them", who.Scopes, scope)
		}
	}
	status := must(s.transport(t, endpoint).Status(ctx))(t)
	equal(t, "issuer", status.Issuer, issuer)
	equal(t, "is renewable", status.Renewable, p.refreshes)
	if p.refreshes {
		access.revoke()
		must(mcp.CallTool[string](ctx, c, "who_am_i", nil))(t)
		equal(t, "logins after a refresh", len(s.scopes), 1)
	}
	if err := s.transport(t, endpoint).Logout(ctx); err != nil {
		t.Errorf("Logout: %v", err)
	}
	if after := must(s.transport(t, endpoint).Status(ctx))(t); after != nil {
		t.Errorf("status after the logout: tokens of %s, want none", after.Issuer)
	}
	must(mcp.CallTool[string](ctx, s.connect(ctx, t, endpoint), "who_am_i", nil))(t)
	equal(t, "logins after the logout", len(s.scopes), 2)
}

// protect serves an MCP server that accepts tokens of the provider.
func (p foreignProvider) protect(t *testing.T, l net.Listener, issuer string) *accessTokens {
	t.Helper()
	opts := &oauth.RequireOptions{Logger: logger(t)}
	if len(p.scopes) > 0 {
		opts.Scopes = oauth.AllOf(p.scopes...)
	}
	if p.audience != "" {
		opts.Audiences = []string{p.audience}
	}
	protect := oauth.Require(p.verify(issuer), oauth.ResourceMetadata{Resource: endpointAt(l),
		AuthorizationServers: []string{issuer}, ScopesSupported: p.scopes}, opts)
	tokens := &accessTokens{revoked: map[string]bool{}}
	serveMCP(t, l, newNotes(), tokens.check, protect)
	return tokens
}

// accessTokens records the access tokens of requests, so that a test can revoke the last.
type accessTokens struct {
	mu      sync.Mutex // guards the fields below
	last    string
	revoked map[string]bool
}

func (a *accessTokens) check(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.last = r.Header.Get("Authorization")
		if a.revoked[a.last] {
			r.Header.Set("Authorization", "Bearer revoked")
		}
		a.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

// revoke makes the server refuse the access token of the last request.
func (a *accessTokens) revoke() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revoked[a.last] = true
}
