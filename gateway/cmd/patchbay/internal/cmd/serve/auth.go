package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

// authDemo is the value of --auth.
const authDemo = "demo"

// Scopes of the demo server: all requests require scopeUse, a single tool requires scopeReset.
const (
	ScopeUse   = "demo:use"
	ScopeReset = "demo:reset"
)

// DemoPassword is the password of all demoUsers. It is public: the server is on a loopback address.
const DemoPassword = "demo"

// DemoUsers holds the users of the protected demo server.
func DemoUsers() []string { return []string{"ann", "bob"} }

// checkAuth returns an error for invalid values of --auth and the flags that depend on it.
func checkAuth(auth, addr string, stdio bool) error {
	switch {
	case auth == "":
		return nil
	case auth != authDemo:
		return exit.UsageError(fmt.Errorf("invalid --auth %q: want %s", auth, authDemo))
	case stdio:
		return exit.UsageError(errors.New("--auth is for HTTP: it cannot be used with --stdio"))
	}
	host, _, err := net.SplitHostPort(observe.WithLoopbackHost(addr))
	if ip, notIP := netip.ParseAddr(host); err != nil || notIP != nil || !ip.IsLoopback() {
		return exit.UsageError(fmt.Errorf(
			"invalid --addr %q: --auth demo has a public password and no TLS, and requires a "+
				"loopback address such as 127.0.0.1:8765", addr))
	}
	return nil
}

// serveProtected serves a demo server and its authorization server until ctx is done.
func serveProtected(ctx context.Context, f *cmdutil.Factory, listener net.Listener, addr string,

	h *mcphttp.Handler) error {
	store := demoStore(f, addr, listener.Addr())
	defer store.Close()
	origin := "http://" + listener.Addr().String()
	d, err := NewProtectedDemo(origin, h, store, f.IO.Logger())
	if err != nil {
		return err
	}
	if err := announceProtected(f.IO.Out.W, origin+connect.Endpoint); err != nil {
		return err
	}
	return mcphttp.Serve(ctx, listener, "/", d.Handler, d.Route)
}

// A protectedDemo contains the demo server and its authorization server, on the same origin.
type protectedDemo struct {
	Handler *mcphttp.Handler
	auth    *authserver.Server
	protect func(http.Handler) http.Handler
	Host    string
}

// DemoScopes returns the scopes that the protected demo server supports.
func DemoScopes() mcp.Middleware {
	rules := &oauth.ScopeRules{Tools: map[string]oauth.Scopes{demo.ToolReset: oauth.AllOf(ScopeReset)}}
	return oauth.RequireScopes(rules)
}

// NewProtectedDemo returns a demo server that requires a login.
func NewProtectedDemo(
	origin string, h *mcphttp.Handler, store authserver.Store, log *slog.Logger,
) (*protectedDemo, error) {
	hash, err := authserver.HashPassword(DemoPassword)
	if err != nil {
		return nil, err
	}
	var users []authserver.PasswordUser
	for _, name := range DemoUsers() {
		users = append(users, authserver.PasswordUser{Name: name, Hash: hash})
	}
	login, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{Users: users})
	if err != nil {
		return nil, err
	}
	resource := origin + connect.Endpoint
	auth, err := authserver.New(&authserver.Options{
		Issuer: origin, Name: "Patchbay demo", Login: login, Store: store, Logger: log,
		Resources: []authserver.Resource{{URL: resource, Name: "Patchbay demo", Scopes: []authserver.Scope{
			{Name: ScopeUse, Description: "Use the demo server"},
			{Name: ScopeReset, Description: "Set its counter to zero", OnRequest: true},
		}}},
	})
	if err != nil {
		return nil, err
	}
	return NewProtected(resource, h, auth, log), nil
}

// NewProtected returns the demo server with an authorization server on the same origin.
func NewProtected(resource string, h *mcphttp.Handler, auth *authserver.Server, log *slog.Logger) *protectedDemo {
	return &protectedDemo{
		Handler: h,
		auth:    auth,
		protect: oauth.Require(auth.Verifier(resource), oauth.ResourceMetadata{
			Resource: resource, AuthorizationServers: []string{auth.Issuer()},
			ScopesSupported: []string{ScopeUse}, Name: "Patchbay demo",
		}, &oauth.RequireOptions{Scopes: oauth.AllOf(ScopeUse), Logger: log}),
		Host: strings.TrimPrefix(auth.Issuer(), "http://"),
	}
}

// Route sends requests for the MCP server and its metadata to the protected handler, and others to
// the authorization server. It rejects other Host headers, against DNS rebinding.
func (d *protectedDemo) Route(next http.Handler) http.Handler {
	protected := d.protect(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host != d.Host:
			http.Error(w, "this server is http://"+d.Host, http.StatusMisdirectedRequest)
		case r.URL.Path == connect.Endpoint, strings.HasPrefix(r.URL.Path, "/.well-known/oauth-protected-resource"):
			protected.ServeHTTP(w, r)
		case r.URL.Path == "/":
			connect.NameEndpoint("http://"+d.Host+connect.Endpoint)(next).ServeHTTP(w, r)
		default:
			d.auth.ServeHTTP(w, r)
		}
	})
}

// demoStore returns the store of the authorization server. It is a file for each address, since
// clients remember their registration. If that fails, the store is in memory.
func demoStore(f *cmdutil.Factory, addr string, bound net.Addr) authserver.Store {
	name := addrName(addr, bound)
	if name == "" {
		return authserver.NewMemoryStore() // the port changes with each start
	}
	dir, err := userdir.Dir("demo")
	if err == nil {
		var store authserver.Store
		if store, err = bolt.OpenAuthorization(filepath.Join(dir, name+".db"), nil); err == nil {
			return struct{ authserver.Store }{store} // hides Path: a demo needs no warning about its keys
		}
	}
	f.IO.Err.Printf("patchbay: logins are kept in memory only: %s", term.Clean(err.Error()))
	return authserver.NewMemoryStore()
}

func announceProtected(w io.Writer, url string) error {
	_, err := fmt.Fprintf(w, `The demo server is running at %[1]s
It requires a login: user %[2]s, password %[3]s. In another terminal, run:

  patchbay call %[1]s who_am_i         opens your browser to log in
  patchbay call %[1]s reset_counter    requires an additional scope
  patchbay auth status %[1]s
  patchbay auth logout %[1]s

Client configuration:
%[4]s

Stop with Ctrl-C.
`, url, strings.Join(DemoUsers(), " or "), DemoPassword, demoConfig(cmdutil.ConfigEntry{Type: "http", URL: url}))
	return err
}

func demoConfig(server cmdutil.ConfigEntry) string {
	return cmdutil.ClientConfig("mcpServers", "patchbay-demo", server)
}
