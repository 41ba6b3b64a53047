package console_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/access"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/logs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// roles lists all paths but the assets, with the role that each requires. A new path must be added
// here.
var roles = map[string]page.Role{
	"GET /":                 page.RoleViewer,
	"GET /stream":           page.RoleViewer,
	"GET /login":            page.RoleAnyone,
	"POST /login":           page.RoleAnyone,
	"POST /logout":          page.RoleViewer,
	"GET /login/identity":   page.RoleAnyone,
	"GET /login/callback":   page.RoleAnyone,
	"POST /theme":           page.RoleViewer,
	"GET /palette":          page.RoleViewer,
	"POST /servers/restart": page.RoleOperator,
	"POST /servers/stop":    page.RoleOperator,
	"GET /pins":             page.RoleViewer,
	"POST /pins/approve":    page.RoleOperator,
	"GET /policy":           page.RoleViewer,
	"POST /policy/explain":  page.RoleOperator,
	"POST /policy/compare":  page.RoleOperator,
	"GET /audit":            page.RoleViewer,
	"GET /settings":         page.RoleViewer,
	"POST /settings/check":  page.RoleOperator,
	"POST /settings/save":   page.RoleOperator,
	"POST /settings/reload": page.RoleOperator,
	"GET /traffic":          page.RoleOperator,
	"GET /traffic/export":   page.RoleOperator,
	"GET /logs":             page.RoleOperator,
	"GET /doctor":           page.RoleViewer,
	"POST /doctor/run":      page.RoleOperator,
	"GET /limits":           page.RoleViewer,
	"GET /tasks":            page.RoleViewer,
	"GET /tasks/result":     page.RoleOperator,
	"POST /tasks/cancel":    page.RoleOperator,
	"GET /metrics":          page.RoleViewer,
	"GET /keys":             page.RoleViewer,
	"POST /keys":            page.RoleOperator,
	"POST /keys/revoke":     page.RoleOperator,
	"GET /explore":          page.RoleViewer,
	"GET /explore/data":     page.RoleViewer,
	"POST /explore/run":     page.RoleOperator,
	"GET /explore/save":     page.RoleOperator,
	"POST /explore/save":    page.RoleOperator,
	"POST /explore/again":   page.RoleOperator,
	"POST /explore/replay":  page.RoleOperator,
	"POST /explore/cancel":  page.RoleOperator,
	"POST /explore/task":    page.RoleOperator,
	"POST /explore/watch":   page.RoleOperator,
	"GET /apps":             page.RoleOperator,
	"GET /apps/file":        page.RoleOperator,
	"GET /apps/stream":      page.RoleOperator,
	"POST /apps/open":       page.RoleOperator,
	"POST /apps/set":        page.RoleOperator,
	"POST /apps/close":      page.RoleOperator,
	"POST /apps/message":    page.RoleOperator,
	"GET /inbox":            page.RoleViewer,
	"POST /inbox/decide":    page.RoleOperator,
	"POST /inbox/answer":    page.RoleOperator,
	"POST /inbox/revoke":    page.RoleOperator,
	"GET /server":           page.RoleViewer,
	"POST /server/login":    page.RoleOperator,
	"POST /server/logout":   page.RoleOperator,
}

func TestEachPathRequiresItsRole(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, func(o *console.Options) {
		i, err := access.NewIdentity(&gateway.OAuth{AuthorizationServers: []string{"https://login.example"},
			ClientID: "c", Fetcher: oauth.NewFetcher(nil)}, &gatewayconfig.ConsoleRoles{}, "https://console.example")
		if err != nil {
			t.Fatal(err)
		}
		o.Gateway, o.Capture, o.Logs = true, capture.New(nil), &logs.Book{}
		o.Access = &access.Access{Identity: i}
	})
	for path, role := range s.Console.Paths() {
		want := roles[path]
		if strings.HasPrefix(path, "GET /assets/") {
			want = page.RoleAnyone
		}
		if role != want {
			t.Errorf("%s requires the role %q, want %q", path, role, want)
		}
	}
}

// A console without a gateway has no screens of a gateway.
func TestScreensOfAGatewayAreAbsentWithoutIt(t *testing.T) {
	mcptest.NoLeaks(t)
	paths := consoletest.New(t, nil).Console.Paths()
	for _, path := range []string{"GET /policy", "GET /audit"} {
		if _, ok := paths[path]; ok {
			t.Errorf("the console has %s", path)
		}
	}
	for _, path := range []string{"GET /pins", "GET /settings"} {
		if _, ok := paths[path]; !ok {
			t.Errorf("the console lacks %s", path)
		}
	}
}

// form returns a form for a method: nil for GET.
func form(method string) url.Values {
	if method == http.MethodPost {
		return url.Values{"server": {"none"}}
	}
	return nil
}

// refused reports whether a response reveals nothing: a refusal, or a redirect to the login.
func refused(res *http.Response) bool {
	return res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusUnauthorized ||
		strings.HasPrefix(res.Header.Get("Location"), "/login?")
}

// Another user of the machine is refused without a token and a cookie, with guessed values, and
// with the values of another console.
func TestOtherUsersAreRefused(t *testing.T) {
	mcptest.NoLeaks(t)
	s, other := consoletest.New(t, nil), consoletest.New(t, nil)
	at, err := url.Parse(s.Base)
	if err != nil {
		t.Fatal(err)
	}
	name := "patchbay-" + at.Port()
	strangers := map[string]*http.Client{"no cookie": s.Stranger(), "guessed cookie": s.Stranger(),
		"cookie of another console": s.Stranger()}
	strangers["guessed cookie"].Jar.SetCookies(at, []*http.Cookie{{Name: name, Value: strings.Repeat("0", 40)}})
	own := other.Browser()
	otherAt, err := url.Parse(other.Base)
	if err != nil {
		t.Fatal(err)
	}
	cookies := own.Jar.Cookies(otherAt)
	for _, c := range cookies { // of the same host: browsers send them to all ports
		cookies = append(cookies, &http.Cookie{Name: name, Value: c.Value})
	}
	strangers["cookie of another console"].Jar.SetCookies(at, cookies)
	for who, b := range strangers {
		for path, role := range s.Console.Paths() {
			method, path, _ := strings.Cut(path, " ")
			res, _ := s.Send(b, method, path, form(method))
			if role != page.RoleAnyone && !refused(res) {
				t.Errorf("%s: %s %s: got %d, want a refusal", who, method, path, res.StatusCode)
			}
		}
		if res, _ := s.Send(b, http.MethodGet, "/unknown", nil); !refused(res) {
			t.Errorf("%s: unknown path: got %d, want a refusal", who, res.StatusCode)
		}
	}
	_, token := other.Link()
	for _, guess := range []string{"", token, strings.Repeat("0", 40)} {
		if res, _ := s.Send(s.Stranger(), http.MethodPost, "/login", url.Values{"token": {guess}}); !refused(res) {
			t.Errorf("token %q: got %d, want a refusal", guess, res.StatusCode)
		}
	}
}

// A page whose name resolves to this machine sends its own name.
func TestOtherHostsAreRefused(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, func(o *console.Options) { o.Hosts = []string{"console.example"} })
	b := s.Browser()
	for host, want := range map[string]bool{"evil.example": false, "evil.example:6280": false, "localhost.evil.example": false,
		"127.0.0.1@evil.example": false, "localhost:1": true, "127.0.0.1:6280": true, "[::1]:6280": true,
		"console.example": true} {
		for path := range s.Console.Paths() {
			method, path, _ := strings.Cut(path, " ")
			if path == "/logout" {
				continue
			}
			res, text := s.Send(b, method, path, form(method), "Host", host)
			isRefused := res.StatusCode == http.StatusForbidden && strings.Contains(text, "invalid header Host")
			if isRefused == want {
				t.Errorf("Host %q: %s %s: got %d, want it served: %t", host, method, path, res.StatusCode, want)
			}
		}
	}
}

// The cookie of a host name that nobody else knows reaches no server on another port. No response
// before the login contains the name.
func TestHostNameIsRandom(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, func(o *console.Options) { o.Addr = "" })
	u, err := url.Parse(s.Base)
	name, ok := strings.CutSuffix(u.Hostname(), ".localhost")
	if err != nil || !ok || len(name) < 26 {
		t.Fatalf("got the URL %s, want a random name of 128 bits below localhost", s.Base)
	}
	local := func() *http.Client { // without a resolver, which may not know the name
		b := s.Stranger()
		b.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+u.Port())
		}
		return b
	}
	for _, host := range []string{"127.0.0.1:" + u.Port(), "localhost:" + u.Port(), "evil.example"} {
		for _, path := range []string{"/", "/login", "/assets/x", "/settings"} {
			res, text := s.Send(local(), http.MethodGet, path, nil, "Host", host)
			if strings.Contains(fmt.Sprint(res.Header)+text, name) {
				t.Errorf("%s%s: the response contains the name", host, path)
			}
		}
	}
	b := local()
	res, _ := s.Send(b, http.MethodPost, "/login", url.Values{"token": {s.Token}})
	for _, c := range res.Cookies() {
		if c.Domain != "" {
			t.Errorf("the cookie is for other hosts: %+v", c)
		}
	}
	if res, _ := s.Send(b, http.MethodGet, "/", nil); res.StatusCode != http.StatusOK {
		t.Errorf("after the login: got %d", res.StatusCode)
	}
}

// Other sites can link to the console, and nothing else. A site on another port of this machine is
// not cross-site, so its requests have the cookie.
func TestOtherSitesAreRefused(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, nil)
	b := s.Browser()
	for name, header := range map[string][]string{
		"form of another site":            {"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"},
		"form of another port":            {"Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate"},
		"form of an old browser":          {"Origin", "https://evil.example"},
		"script of another site":          {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"},
		"request of another port":         {"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"},
		"frame of another site":           {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"},
		"image with the cookie, one port": {"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"},
	} {
		for path := range s.Console.Paths() {
			method, path, _ := strings.Cut(path, " ")
			if method == http.MethodGet && strings.Contains(name, "form") {
				continue
			}
			if res, _ := s.Send(b, method, path, form(method), header...); res.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s %s: got %d, want 403", name, method, path, res.StatusCode)
			}
		}
	}
	res, _ := s.Send(b, http.MethodGet, "/", nil, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate",
		"Sec-Fetch-Dest", "document")
	if res.StatusCode != http.StatusOK {
		t.Errorf("link of another site: got %d, want 200", res.StatusCode)
	}
}

func TestTokensAndCookiesExpire(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, nil)
	b := s.Browser()
	s.Console.Age(2*time.Minute + time.Second)
	res, _ := s.Send(s.Stranger(), http.MethodPost, "/login", url.Values{"token": {s.Token}})
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("token after 2 minutes: got %d, want 403", res.StatusCode)
	}
	if res, _ := s.Send(b, http.MethodGet, "/", nil); res.StatusCode != http.StatusOK {
		t.Errorf("cookie after 2 minutes: got %d, want 200", res.StatusCode)
	}
	s.Console.Age(12 * time.Hour)
	if res, _ := s.Send(b, http.MethodGet, "/", nil); !refused(res) {
		t.Errorf("cookie after 12 hours: got %d, want a refusal", res.StatusCode)
	}
}

// A person with the whole URL pastes it where the browser runs no scripts. The login leads to no
// other site.
func TestLoginTakesTheURLAndStaysOnTheSite(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, nil)
	for next, want := range map[string]string{"/?a=b": "/?a=b", "": "/", "//evil.example": "/", "///evil.example": "/",
		"https://evil.example": "/",
		`/\evil.example`:       "/", "javascript:alert(1)": "/"} {
		link := s.Console.URL()
		form := url.Values{"token": {" " + link + "\n"}, "next": {next}}
		res, _ := s.Send(s.Stranger(), http.MethodPost, "/login", form)
		if got := res.Header.Get("Location"); res.StatusCode != http.StatusSeeOther || got != want {
			t.Errorf("next %q: got %d, %q, want 303, %q", next, res.StatusCode, got, want)
		}
	}
}

func TestRolesLimitPaths(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, func(o *console.Options) {
		o.Authenticate = func(r *http.Request) (*mcp.Principal, page.Role, error) {
			role := page.Role(r.Header.Get("X-Role"))
			if role == "error" {
				return nil, page.RoleOperator, errors.New("revoked")
			}
			return &mcp.Principal{Subject: "ann"}, role, nil
		}
	})
	b := s.Stranger()
	for path, required := range s.Console.Paths() {
		method, path, _ := strings.Cut(path, " ")
		for _, role := range []string{"viewer", "operator", "", "admin", "error", string(page.RoleAnyone)} {
			res, _ := s.Send(b, method, path, form(method), "X-Role", role)
			want := required == page.RoleAnyone || role == "operator" || role == "viewer" && required == page.RoleViewer
			if got := !refused(res); got != want && path != "/login" {
				t.Errorf("%s %s as %q: got %d, want it served: %t", method, path, role, res.StatusCode, want)
			}
		}
	}
	if res, page := s.Send(b, http.MethodGet, "/", nil, "X-Role", "viewer"); strings.Contains(page, "/servers/stop") {
		t.Errorf("the page of a viewer has actions of an operator: %d", res.StatusCode)
	}
	if link := s.Console.URL(); strings.Contains(link, "#") {
		t.Errorf("got %s, want a URL without a token", link)
	}
}

func TestAddressMustBeLoopback(t *testing.T) {
	admin := func(*mcp.Principal) *http.Client { return http.DefaultClient }
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0", "6280"} {
		c, err := console.New(&console.Options{Admin: admin, Addr: addr})
		if err == nil {
			t.Errorf("%q: the console listens at %s", addr, c.URL())
		}
	}
}

func TestResponsesHaveTheHeaders(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, nil)
	b := s.Browser()
	for path := range s.Console.Paths() {
		method, path, _ := strings.Cut(path, " ")
		if path == "/logout" {
			continue
		}
		res, _ := s.Send(b, method, path, form(method))
		policy := res.Header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self';", "require-trusted-types-for 'script'",
			"frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy %q lacks %s", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || res.Header.Get("X-Content-Type-Options") != "nosniff" ||
			res.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: got the headers %v", path, res.Header)
		}
		if cache := res.Header.Get("Cache-Control"); cache != "no-store" && !strings.HasPrefix(path, "/assets/") {
			t.Errorf("%s: got Cache-Control %q", path, cache)
		}
	}
	res, _ := s.Send(s.Stranger(), http.MethodPost, "/login", url.Values{"token": {s.Token}})
	for _, c := range res.Cookies() {
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" {
			t.Errorf("got the cookie %+v", c)
		}
	}
}
