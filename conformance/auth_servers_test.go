package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A loginClient is our client with a user who logs in.
type loginClient struct {
	user   *loginUser
	store  oauthclient.Store
	client oauthclient.Identity

	mu     sync.Mutex
	scopes []string // of every login
}

// unusedCallback is the redirect URI. No server listens there, since the response is read from the
// redirect.
const unusedCallback = "http://127.0.0.1:47998/callback"

func newLoginClient(t *testing.T) *loginClient {
	t.Helper()
	return &loginClient{user: newLoginUser(t), store: oauthclient.NewMemoryStore()}
}

// transport returns a transport whose logins are completed by the user.
func (s *loginClient) transport(t *testing.T, endpoint string) *oauthclient.Transport {
	t.Helper()
	return oauthclient.NewTransport(endpoint, &oauthclient.TransportOptions{
		Store: s.store, Client: s.client, Logger: logger(t),
		Authorizer: oauthclient.NewAuthorizer(unusedCallback,
			func(ctx context.Context, login *oauthclient.LoginRequest) (url.Values, error) {
				page, err := url.Parse(login.URL)
				if err != nil {
					return nil, err
				}
				s.mu.Lock()
				s.scopes = append(s.scopes, page.Query().Get("scope"))
				s.mu.Unlock()
				return s.user.authorize(ctx, login.URL, unusedCallback)
			}),
	})
}

// connect returns a client whose requests are authorized.
func (s *loginClient) connect(ctx context.Context, t *testing.T, endpoint string) *mcp.Client {
	t.Helper()
	client := &http.Client{Transport: s.transport(t, endpoint)}
	return dial(ctx, t, mcphttp.NewTransport(endpoint, &mcphttp.TransportOptions{Client: client, Logger: logger(t)}),
		nil)
}

// A protectedPeer is a server that another SDK protects.
type protectedPeer struct {
	endpoint string
	issuer   string
	// revoke invalidates the issued access tokens.
	revoke func(t *testing.T)
}

// logIn runs the client operations against a server: login, call, step-up, refresh, and logout.
func (p protectedPeer) logIn(t *testing.T, s *loginClient) {
	ctx := within(t, time.Minute)
	c := s.connect(ctx, t, p.endpoint)
	who := asCaller(t, must(mcp.CallTool[string](ctx, c, "who_am_i", nil))(t))
	if !slices.Contains(who.Scopes, "mcp:read") {
		t.Errorf("scopes %q, want mcp:read in them", who.Scopes)
	}
	equal(t, "written", must(mcp.CallTool[string](ctx, c, "write", nil))(t), "written")
	who = asCaller(t, must(mcp.CallTool[string](ctx, c, "who_am_i", nil))(t))
	if !slices.Contains(who.Scopes, "mcp:write") {
		t.Errorf("scopes after the step-up: %q, want mcp:write in them", who.Scopes)
	}
	logins := len(s.scopes)
	before := must(s.transport(t, p.endpoint).Status(ctx))(t)
	equal(t, "issuer", before.Issuer, p.issuer)
	if p.revoke != nil {
		p.revoke(t)
		must(mcp.CallTool[string](ctx, c, "write", nil))(t)
		equal(t, "logins after a refresh", len(s.scopes), logins)
	}
	// Another process with the same store needs no login.
	second := s.connect(ctx, t, p.endpoint)
	must(mcp.CallTool[string](ctx, second, "write", nil))(t)
	equal(t, "logins of the second client", len(s.scopes), logins)
	if err := s.transport(t, p.endpoint).Logout(ctx); err != nil {
		t.Errorf("Logout: %v", err)
	}
	if after := must(s.transport(t, p.endpoint).Status(ctx))(t); after != nil {
		t.Errorf("status after the logout: tokens of %s, want none", after.Issuer)
	}
}

// TestLogInToTypeScriptServer logs in to a server that the official TypeScript SDK protects. Its
// authorization server is also of that SDK.
func TestLogInToTypeScriptServer(t *testing.T) {
	cmd := exec.Command(needNode(t), "peers/typescript/server.mjs")
	cmd.Stderr = t.Output()
	endpoint := startPeer(t, cmd)
	origin := strings.TrimSuffix(endpoint, "/mcp")
	protectedPeer{endpoint: endpoint, issuer: origin + "/", revoke: func(t *testing.T) {
		res := must(http.Post(origin+"/test/forget", "", nil))(t)
		_ = res.Body.Close()
	}}.logIn(t, newLoginClient(t))
}

// TestLogInToGoSDKServer logs in to a server that the official Go SDK protects. Its authorization
// server is ours in one case and an OpenID provider in the other. When a scope is missing, the
// middleware of that SDK sends a challenge without an error parameter.
func TestLogInToGoSDKServer(t *testing.T) {
	t.Run("our authorization server", func(t *testing.T) {
		l := listen(t)
		h := newProtectedServer(t, func(o *authserver.Options) {
			o.Resources = append(o.Resources, notesAt(endpointAt(l)))
		})
		startGoSDK(t, l, h.issuer)
		protectedPeer{endpoint: endpointAt(l), issuer: h.issuer}.logIn(t, newLoginClient(t))
	})
	t.Run("an OpenID provider", func(t *testing.T) {
		p := startProvider(t, providerConfig{AlwaysRefresh: true})
		l := listen(t)
		startGoSDK(t, l, p.issuer)
		protectedPeer{endpoint: endpointAt(l), issuer: p.issuer}.logIn(t, newLoginClient(t))
		if events := p.events(t); !slices.Contains(events, "refresh_token.destroyed") {
			t.Errorf("events of the provider: %q, want the refresh token destroyed by the logout", events)
		}
	})
}

// startGoSDK starts a server of the official Go SDK, protected by its middleware.
func startGoSDK(t *testing.T, l net.Listener, issuer string) {
	t.Helper()
	origin, endpoint := "http://"+l.Addr().String(), endpointAt(l)
	tokens := oauth.NewJWTVerifier(issuer, nil)
	verify := func(ctx context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		got, err := tokens.Verify(ctx, token)
		switch {
		case errors.Is(err, oauth.ErrInvalidToken), err == nil && !slices.Contains(got.Audience, endpoint):
			return nil, auth.ErrInvalidToken
		case err != nil:
			return nil, err
		}
		return &auth.TokenInfo{Scopes: got.Scopes, Expiration: got.Expires, UserID: got.Subject}, nil
	}
	const metadata = "/.well-known/oauth-protected-resource/mcp"
	requireScopes := func(scopes ...string) func(http.Handler) http.Handler {
		return auth.RequireBearerToken(verify,
			&auth.RequireBearerTokenOptions{ResourceMetadataURL: origin + metadata, Scopes: scopes})
	}
	server := gosdk.NewServer(&gosdk.Implementation{Name: "gosdk-protected", Version: "1.0.0"}, nil)
	type none struct{}
	gosdk.AddTool(server, &gosdk.Tool{Name: "who_am_i"},
		func(_ context.Context, req *gosdk.CallToolRequest, _ none) (*gosdk.CallToolResult, any, error) {
			text, err := json.Marshal(caller{Subject: req.Extra.TokenInfo.UserID, Scopes: req.Extra.TokenInfo.Scopes})
			return &gosdk.CallToolResult{Content: []gosdk.Content{&gosdk.TextContent{Text: string(text)}}}, nil, err
		})
	gosdk.AddTool(server, &gosdk.Tool{Name: "write"},
		func(context.Context, *gosdk.CallToolRequest, none) (*gosdk.CallToolResult, any, error) {
			return &gosdk.CallToolResult{Content: []gosdk.Content{&gosdk.TextContent{Text: "written"}}}, nil, nil
		})
	handler := gosdk.NewStreamableHTTPHandler(func(*http.Request) *gosdk.Server { return server }, nil)
	readers, writers := requireScopes("mcp:read")(handler), requireScopes("mcp:read", "mcp:write")(handler)
	mux := http.NewServeMux()
	mux.Handle(metadata, auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: endpoint, AuthorizationServers: []string{issuer}, ScopesSupported: []string{"mcp:read", "mcp:write"},
	}))
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		// The SDK checks scopes for whole requests. A scope for one tool requires decoding the
		// body.
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"name":"write"`)) {
			writers.ServeHTTP(w, r)
			return
		}
		readers.ServeHTTP(w, r)
	})
	serveHTTP(t, l, mux)
}
