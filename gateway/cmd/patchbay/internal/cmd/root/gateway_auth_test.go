package root

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/serve"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// companyLogin serves an authorization server for a resource, apart from it.
func companyLogin(t *testing.T, resource string) (issuer string) {
	t.Helper()
	hash, err := authserver.HashPassword(serve.DemoPassword)
	if err != nil {
		t.Fatal(err)
	}
	var users []authserver.PasswordUser
	for _, name := range serve.DemoUsers() {
		users = append(users, authserver.PasswordUser{Name: name, Hash: hash})
	}
	login, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{Users: users})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	auth, err := authserver.New(&authserver.Options{Issuer: s.URL, Name: "Company", Login: login,
		Logger: slog.New(slog.DiscardHandler), Resources: []authserver.Resource{{URL: resource, Name: "Gateway",
			Scopes: []authserver.Scope{{Name: "mcp:use", Description: "Use the tools"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle("/", auth)
	return s.URL
}

// Two users log in at an authorization server for a gateway that accepts tokens only, and are two callers.
// The key of the local user is refused, and not announced.
func TestGatewayWithOIDC(t *testing.T) {
	mcptest.NoLeaks(t)
	t.Setenv(userdir.EnvState, t.TempDir())
	freshVault(t)
	addr := freeport.Addr(t)
	issuer := companyLogin(t, "http://"+addr+connect.Endpoint)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, fmt.Sprintf(`{"mcpServers": {"one": %s}, "patchbay": {"audit": {"sync": "record", "args": "full"},
		"auth": {"keys": false, "oidc": {"issuer": %q, "audience": "https://other.example", "scopes": ["mcp:use"]}}}}`,
		demoEntry(t), issuer))
	g := startGateway(t, nil, "--config", file, "--addr", addr, "-v")
	if o := patchbay(t, "", append([]string{"tools", g.url}, g.header()...)...); o.status != exit.Auth {
		t.Errorf("with the key of the local user: %+v, want %d", o, exit.Auth)
	}
	for _, user := range serve.DemoUsers() {
		freshVault(t)
		browser := newUserBrowser(t)
		browser.user = user
		o := withBrowser(t, browser, "call", g.url, "add", "a=20", "b=22")
		if o.status != exit.OK || !strings.Contains(o.stdout, "42") || !strings.Contains(o.stderr, "at "+issuer) {
			t.Fatalf("%s: %+v, want a login at the authorization server, and the sum", user, o)
		}
	}
	stopped := g.stop()
	text := auditText(t)
	for _, want := range []string{`"caller":"ann ` + issuer + `"`, `"caller":"bob ` + issuer + `"`, `"outcome":"accepted"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the audit log has no %s:\n%s", want, text)
		}
	}
	all := stopped.stdout + stopped.stderr + auditSignature.ReplaceAllString(text, "")
	if strings.Contains(all, g.key) || strings.Contains(all, "eyJ") ||
		strings.Contains(stopped.stdout, "Clients need a key") || strings.Contains(stopped.stdout, "Authorization: Bearer") {
		t.Errorf("the output or the audit log has a key or a token:\n%s", all)
	}
}

// auditSignature matches the signature of a checkpoint, which is random: one in 3,000 has the letters that
// tokens begin with.
var auditSignature = regexp.MustCompile(`"sig":"[^"]*"`)

// At an address that other machines reach, a gateway with tokens needs its public URL.
func TestGatewayNeedsItsPublicURL(t *testing.T) {
	t.Setenv(userdir.EnvState, t.TempDir())
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, `{"mcpServers": {"one": `+demoEntry(t)+`}, "patchbay": {"listen": "0.0.0.0:0",
		"auth": {"oidc": {"issuer": "https://login.example.com", "audience": "mcp"}}}}`)
	if o := patchbay(t, "", "gateway", "--config", file); o.status != exit.Usage || !strings.Contains(o.stderr, "missing publicURL") {
		t.Errorf("%+v, want an error that names publicURL", o)
	}
}

// The announced URL and the configuration are those of the public URL.
func TestGatewayAnnouncesItsPublicURL(t *testing.T) {
	file := keysConfig(t)
	writeFile(t, file, `{"mcpServers": {"one": `+demoEntry(t)+`}, "patchbay": {"publicURL": "https://mcp.example.com"}}`)
	if k := createKey(t, file, "ann"); k.URL != "https://mcp.example.com/mcp" || k.Config.Servers["patchbay"].URL != k.URL {
		t.Errorf("%+v, want the public URL", k)
	}
}
