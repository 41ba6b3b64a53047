package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/access"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const proxySecret = "the-secret-of-the-proxy"

// behindProxy serves a console whose proxy authenticates people. Its peers are addresses of other machines
// unless the test connects from peer.
func behindProxy(t *testing.T, peer string) *consoletest.Site {
	return consoletest.New(t, func(o *console.Options) {
		proxy, err := access.NewProxy(&gatewayconfig.ConsoleProxy{User: "X-User", Groups: "X-Groups",
			Peers: []string{peer}, Secret: "SECRET", SecretHeader: "X-Secret",
			Viewer:   []string{"group:staff", "user:bob"},
			Operator: []string{"group:platform", "user:ann"}}, proxySecret)
		if err != nil {
			t.Fatal(err)
		}
		o.Access = &access.Access{URL: "https://" + publicHost, Proxy: proxy}
	})
}

// The proxy names the person of each request, whose role follows from the name and the groups. A forged
// header is refused on every path and at every host, also of a person who is logged in.
func TestProxyAuthenticatesPeople(t *testing.T) {
	mcptest.NoLeaks(t)
	s := behindProxy(t, "127.0.0.1")
	at, err := url.Parse(s.Base)
	if err != nil {
		t.Fatal(err)
	}
	secret := []string{"X-Secret", proxySecret}
	for name, c := range map[string]struct {
		header []string
		role   page.Role // "" for a refusal
	}{
		"operator by name":              {append(secret, "X-User", "ann"), page.RoleOperator},
		"viewer by name":                {append(secret, "X-User", "bob"), page.RoleViewer},
		"operator by group":             {append(secret, "X-User", "c", "X-Groups", "platform, x"), page.RoleOperator},
		"viewer by group":               {append(secret, "X-User", "carol", "X-Groups", "staff"), page.RoleViewer},
		"no role":                       {append(secret, "X-User", "eve", "X-Groups", "guests"), ""},
		"group with the name of a user": {append(secret, "X-User", "eve", "X-Groups", "ann"), ""},
		"user with the name of a group": {append(secret, "X-User", "platform"), ""},
		"prefix in the name":            {append(secret, "X-User", "group:platform"), ""},
		"forged, no secret":             {[]string{"X-User", "ann"}, ""},
		"forged, wrong secret":          {[]string{"X-User", "ann", "X-Secret", "guess"}, ""},
		"forged groups":                 {[]string{"X-Groups", "platform"}, ""},
		"nobody":                        {nil, ""},
	} {
		b := s.Browser() // its cookie of the local user must not matter
		for path, required := range s.Console.Paths() {
			method, path, _ := strings.Cut(path, " ")
			if path == "/login" || path == "/logout" {
				continue
			}
			res, text := s.Send(b, method, path, form(method), append(c.header, "Host", publicHost)...)
			want := c.role != "" && (c.role.Grants(required) || required == page.RoleAnyone)
			if refused(res) == want {
				t.Errorf("%s: %s %s: got %d, %s, want it served: %t", name, method, path, res.StatusCode, text, want)
			}
			res, _ = s.Send(b, method, path, form(method), append(c.header, "Host", at.Host)...)
			if strings.HasPrefix(name, "forged") && res.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s %s at the local host: got %d, want 403", name, method, path, res.StatusCode)
			}
		}
	}
	if res, text := s.Send(s.Stranger(), http.MethodGet, "/", nil, append(secret, "X-User", "bob", "Host",
		publicHost)...); res.StatusCode != http.StatusOK || !strings.Contains(text, "bob") ||
		strings.Contains(text, "Log out") {
		t.Errorf("got %d, %s, want the name, and no button to log out", res.StatusCode, text)
	}
	if res, _ := s.Send(s.Browser(), http.MethodGet, "/", nil); res.StatusCode != http.StatusOK {
		t.Errorf("the local user: got %d", res.StatusCode)
	}
}

// A client that is not the proxy names nobody, even with the secret.
func TestOtherClientsThanTheProxyNameNobody(t *testing.T) {
	mcptest.NoLeaks(t)
	s := behindProxy(t, "10.1.0.0/24")
	for _, host := range []string{publicHost, strings.TrimPrefix(s.Base, "http://")} {
		for path := range s.Console.Paths() {
			method, path, _ := strings.Cut(path, " ")
			res, text := s.Send(s.Browser(), method, path, form(method), "X-User", "ann", "X-Secret", proxySecret,
				"Host", host)
			if res.StatusCode != http.StatusForbidden || !strings.Contains(text, "was not sent by the proxy") {
				t.Errorf("%s %s at %s: got %d, %s, want 403", method, path, host, res.StatusCode, text)
			}
		}
	}
}
