package root

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/auth"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/serve"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// loginsOf runs auth status without a target.
func loginsOf(t *testing.T) []auth.LoginReport {
	t.Helper()
	o := patchbay(t, "", "auth", "status", "--json")
	var got struct {
		Logins  []auth.LoginReport
		Storage struct{ Directory, Key string }
	}
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || o.status != exit.OK || got.Storage.Directory == "" ||
		got.Logins == nil {
		t.Fatalf("exit code %d, %q, %s, %v", o.status, o.stdout, o.stderr, err)
	}
	return got.Logins
}

func TestLoginsAreListed(t *testing.T) {
	mcptest.NoLeaks(t)
	dir := freshVault(t)
	if o := patchbay(t, "", "auth", "status"); o.status != exit.OK || o.stdout != "" ||
		o.stderr != "Not logged in to any server.\n" || len(loginsOf(t)) != 0 {
		t.Errorf("without a vault: %+v", o)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the vault: %v, want that it does not exist", err)
	}
	first, second, ann := protected(t), protected(t), newUserBrowser(t)
	for _, server := range []string{first, second} {
		if o := withBrowser(t, ann, "auth", "login", server); o.status != exit.OK {
			t.Fatalf("got %d, %s", o.status, o.stderr)
		}
	}
	if o := withBrowser(t, ann, "auth", "login", second+"?key=s3cret"); o.status != exit.OK && o.status != exit.Auth {
		t.Fatalf("got %d, %s", o.status, o.stderr)
	}
	o := patchbay(t, "", "auth", "status")
	var token [2]outcome
	for i, server := range []string{first, second} {
		token[i] = patchbay(t, "", "auth", "token", server)
		issuer := strings.TrimSuffix(server, connect.Endpoint)
		if want := server + "\n  issuer " + issuer + "\n  client "; !strings.Contains(o.stdout, want) {
			t.Errorf("got %s, want %q", o.stdout, want)
		}
		if strings.Contains(o.stdout, strings.TrimSpace(token[i].stdout)) {
			t.Errorf("got %s, want no token", o.stdout)
		}
	}
	if o.status != exit.OK || o.stderr != "" ||
		!strings.Contains(o.stdout, "\n  scopes "+serve.ScopeUse+"\n  token  expires in ") ||
		!strings.Contains(o.stdout, ", refreshed when needed\n") || strings.Contains(o.stdout, "s3cret") {
		t.Errorf("got %+v", o)
	}
	all := loginsOf(t)
	i := slices.IndexFunc(all, func(r auth.LoginReport) bool { return r.Server == first })
	if i < 0 || !all[i].LoggedIn || !all[i].Renewable || all[i].ClientID == "" || all[i].Expires.IsZero() ||
		all[i].Issuer != strings.TrimSuffix(first, connect.Endpoint) || !slices.Equal(all[i].Scopes, []string{serve.ScopeUse}) {
		t.Errorf("--json: got %+v", all)
	}
	t.Setenv(login.EnvClientID, "robot")
	if o := patchbay(t, "", "auth", "status"); o.status != exit.OK ||
		!strings.Contains(o.stderr, login.EnvClientID+" is set") {
		t.Errorf("with client credentials: got %+v", o)
	}
	t.Setenv(login.EnvClientID, "")
	if o := patchbay(t, "", "auth", "logout", first); o.status != exit.OK {
		t.Fatalf("logout: %+v", o)
	}
	if all := loginsOf(t); slices.ContainsFunc(all, func(r auth.LoginReport) bool { return r.Server == first }) ||
		len(all) == 0 {
		t.Errorf("after the logout: %+v", all)
	}
	writeFile(t, filepath.Join(dir, "broken.sealed"), "x")
	if o := patchbay(t, "", "auth", "status"); o.status != exit.Failure ||
		!strings.Contains(o.stderr, "broken.sealed") || !strings.Contains(o.stdout, second+"\n") {
		t.Errorf("with a damaged file: got %+v, want the others and an error", o)
	}
}

// The keys of oauthclient have no query and, if they are long, no URL.
func TestStoredServersAreNamed(t *testing.T) {
	freshVault(t)
	p := newRun(strings.NewReader(""), os.Stdout, os.Stderr)
	v, err := p.Vault.Open()
	if err != nil {
		t.Fatal(err)
	}
	put := func(key, value string) {
		if err := v.Update(t.Context(), key, func([]byte) ([]byte, error) { return []byte(value), nil }); err != nil {
			t.Fatal(err)
		}
	}
	p.Vault.KeyFileWarned.Store(true)
	const record = `{"issuer":"https://as.example","resource":"https://x.example/mcp"}`
	put("tokens https://as.example https://x.example/mcp", `{"issuer":"https://as.example","access_token":"s3cret",
		"refresh_token":"s3cret","token_type":"Bearer","expires":"2020-01-01T00:00:00Z"}`)
	want := []string{"a server with a long URL", "http://[::1]/", "http://localhost:8000/mcp",
		"https://x.example/mcp?…", "https://x.example:8443/mcp"}
	for _, key := range []string{"server https://x.example:443/mcp?sha256=00", "server https://x.example:8443/mcp",
		"server http://localhost:8000/mcp", "server http://[::1]:80/", "server sha256:00"} {
		put(key, record)
	}
	put("server https://gone.example:443/mcp", `{"issuer":"https://as.example"}`)
	put("settings https://x.example/mcp", `{}`)
	var names []string
	for _, r := range loginsOf(t) {
		names = append(names, r.Server)
		if !r.LoggedIn || !r.Renewable || r.Issuer != "https://as.example" {
			t.Errorf("got %+v", r)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	put("tokens https://as.example https://x.example/mcp", `{"issuer":"https://as.example","access_token":"s3cret",
		"token_type":"Bearer","expires":"2020-01-01T00:00:00Z"}`)
	if o := patchbay(t, "", "auth", "status"); o.status != exit.OK ||
		!strings.Contains(o.stdout, "/mcp?… (expired)\n") || strings.Contains(o.stdout, "s3cret") {
		t.Errorf("an expired token: %+v", o)
	}
}
