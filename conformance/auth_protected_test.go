package conformance_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// The user and password of our own login form.
const (
	demoUser     = "ada"
	demoPassword = "correct horse battery staple"
)

// A protectedServer is an MCP server with its own authorization server, each at its own origin.
type protectedServer struct {
	issuer, endpoint string
	authserver       *authserver.Server
}

// newProtectedServer starts a protected server until the test ends. Users log in at our own form
// unless change replaces it.
func newProtectedServer(t *testing.T, change func(o *authserver.Options)) *protectedServer {
	t.Helper()
	authListener, mcpListener := listen(t), listen(t)
	h := &protectedServer{issuer: "http://" + authListener.Addr().String(), endpoint: endpointAt(mcpListener)}
	opts := authserver.Options{
		Issuer: h.issuer, Name: "Patchbay test server", Logger: logger(t),
		Resources: []authserver.Resource{notesAt(h.endpoint)},
	}
	if change != nil {
		change(&opts)
	}
	if opts.Login == nil {
		opts.Login = passwords(t)
	}
	h.authserver = must(authserver.New(&opts))(t)
	serveHTTP(t, authListener, h.authserver)
	protect := oauth.Require(h.authserver.Verifier(h.endpoint), oauth.ResourceMetadata{
		Resource: h.endpoint, AuthorizationServers: []string{h.issuer},
		ScopesSupported: []string{"mcp:read", "mcp:write"}, Name: "Notes",
	}, &oauth.RequireOptions{Scopes: oauth.AllOf("mcp:read"), Logger: logger(t)})
	serveMCP(t, mcpListener, newNotes(), protect)
	return h
}

// notesAt returns the resource of a server with the name shown to users.
func notesAt(endpoint string) authserver.Resource {
	return authserver.Resource{URL: endpoint, Name: "Notes", Scopes: []authserver.Scope{
		{Name: "mcp:read", Description: "Read your notes"},
		{Name: "mcp:write", Description: "Change and delete your notes", OnRequest: true},
	}}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	return must(net.Listen("tcp", "127.0.0.1:0"))(t)
}

// endpointAt returns the URL of an MCP server on a listener.
func endpointAt(l net.Listener) string { return "http://" + l.Addr().String() + "/mcp" }

// passwords returns our own login form, with one user.
func passwords(t *testing.T) authserver.Login {
	t.Helper()
	hash := must(authserver.HashPassword(demoPassword))(t)
	users := []authserver.PasswordUser{{Name: demoUser, Hash: hash}}
	return must(authserver.NewPasswordLogin(&authserver.PasswordOptions{Users: users}))(t)
}

// serveHTTP serves on a listener until the test ends.
func serveHTTP(t *testing.T, l net.Listener, h http.Handler) {
	t.Helper()
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
}

// serveMCP serves an MCP server on a listener until the test ends.
func serveMCP(t *testing.T, l net.Listener, s *mcp.Server, middleware ...func(http.Handler) http.Handler) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- mcphttp.Serve(ctx, l, "/", mcphttp.NewHandler(s, &mcphttp.Options{Logger: logger(t)}), middleware...)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// A caller is the result of who_am_i.
type caller struct {
	Issuer  string         `json:"issuer,omitempty"`
	Subject string         `json:"subject,omitempty"`
	User    string         `json:"user,omitempty"` // the member name of the subject in patchbay serve
	Client  string         `json:"client,omitempty"`
	Scopes  []string       `json:"scopes"`
	Claims  map[string]any `json:"claims,omitempty"`
}

// newNotes returns a server with a tool that returns the caller and a tool that requires a further
// scope.
func newNotes() *mcp.Server {
	s := mcp.NewServer("notes", "1.0.0", &mcp.ServerOptions{Middleware: []mcp.Middleware{
		oauth.RequireScopes(&oauth.ScopeRules{Tools: map[string]oauth.Scopes{"write": oauth.AllOf("mcp:write")}}),
	}})
	mcp.AddTool(s, &mcp.Tool{Name: "who_am_i", Description: "Returns the caller."},
		func(ctx context.Context, _ struct{}) (string, error) {
			p := mcp.RequestFrom(ctx).Principal
			text, err := json.Marshal(caller{Issuer: p.Issuer, Subject: p.Subject, Client: p.ClientID, Scopes: p.Scopes,
				Claims: p.Claims})
			return string(text), err
		})
	mcp.AddTool(s, &mcp.Tool{Name: "write", Description: "Requires the scope mcp:write."},
		func(context.Context, struct{}) (string, error) {
			return "written", nil
		})
	return s
}
