package console_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/access"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A person has a role until its context ends.
type person struct {
	name string
	role gateway.ConsoleRole
	ctx  context.Context
}

func (p *person) Check() (*mcp.Principal, gateway.ConsoleRole, error) {
	return &mcp.Principal{Issuer: "test", Subject: p.name}, p.role, p.ctx.Err()
}

func (p *person) Bind(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

const publicHost = "console.example.com"

// newRemote serves a console to which the keys "patchbay_" with the name of a person log in. revoke
// ends the key of ann.
func newRemote(t *testing.T) (s *consoletest.Site, revoke func()) {
	t.Helper()
	ctx, revoke := context.WithCancel(context.Background())
	t.Cleanup(revoke)
	people := map[string]*person{"ann": {"ann", gateway.ConsoleOperator, ctx},
		"bob": {"bob", gateway.ConsoleViewer, context.Background()}}
	return consoletest.New(t, func(o *console.Options) {
		o.Access = &access.Access{URL: "https://" + publicHost,
			LogIn: func(_ *http.Request, key string) (access.Person, error) {
				if p := people[strings.TrimPrefix(key, gateway.KeyPrefix)]; p != nil && p.ctx.Err() == nil {
					return p, nil
				}
				return nil, errors.New("wrong key")
			}}
	}), revoke
}

// cookieOf logs in with a key at a host, and returns the cookie, or "".
func cookieOf(s *consoletest.Site, key, host string) string {
	res, _ := s.Send(s.Stranger(), http.MethodPost, "/login", url.Values{"token": {key}}, "Host", host)
	for _, c := range res.Cookies() {
		return c.Name + "=" + c.Value
	}
	return ""
}

// TestRemoteRequests sends each path with each kind of cookie, host and origin.
func TestRemoteRequests(t *testing.T) {
	mcptest.NoLeaks(t)
	s, revoke := newRemote(t)
	at, err := url.Parse(s.Base)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"", "ann", "patchbay_", "patchbay_eve", "patchbay_" + strings.Repeat("a", 32)} {
		if got := cookieOf(s, key, publicHost); got != "" {
			t.Errorf("key %q: got the cookie %s", key, got)
		}
	}
	cookies := map[string]map[string]string{} // by person and host
	for _, who := range []string{"ann", "bob"} {
		cookies[who] = map[string]string{publicHost: cookieOf(s, "patchbay_"+who, publicHost),
			at.Host: cookieOf(s, "patchbay_"+who, at.Host)}
		if !strings.HasPrefix(cookies[who][publicHost], "__Host-patchbay-") {
			t.Errorf("%s: got the cookie %q at the public host", who, cookies[who][publicHost])
		}
	}
	cookies["guess"] = map[string]string{publicHost: "__Host-patchbay-" + at.Port() + "=" + strings.Repeat("0", 40)}
	cookies["nobody"] = map[string]string{}
	granted := map[string]page.Role{"ann": page.RoleOperator, "bob": page.RoleViewer}
	client := s.Stranger() // of all requests: the console examines each new connection
	client.Jar = nil
	send := func(path, who, host, origin string, required page.Role, isKnown bool) {
		method, path, _ := strings.Cut(path, " ")
		cookie := cookies[who][host]
		header := []string{"Host", host, "Cookie", cookie}
		if origin != "" {
			header = append(header, "Origin", origin, "Sec-Fetch-Site", "cross-site")
		}
		res, _ := s.Send(client, method, path, form(method), header...)
		mayUse := required == page.RoleAnyone || cookie != "" && granted[who].Grants(required)
		if want := isKnown && origin == "" && mayUse; refused(res) == want {
			t.Errorf("%s %s by %s at %s from %q: got %d, want it served: %t", method, path, who, host, origin,
				res.StatusCode, want)
		}
	}
	check := func() {
		for path, required := range s.Console.Paths() {
			if strings.HasSuffix(path, " /login") || strings.HasSuffix(path, " /logout") {
				continue
			}
			for who := range cookies {
				for host, isKnown := range map[string]bool{publicHost: true, at.Host: true, publicHost + ":6280": false,
					"evil.example": false} {
					send(path, who, host, "", required, isKnown)
					send(path, who, host, "https://evil.example", required, isKnown)
				}
			}
		}
	}
	check()
	revoke()
	delete(granted, "ann")
	check()
	if got := cookieOf(s, "patchbay_ann", publicHost); got != "" {
		t.Errorf("after the end of the key: got the cookie %s", got)
	}
}

// A stream tells its page when the login ends.
func TestEndOfAKeyEndsItsStreams(t *testing.T) {
	mcptest.NoLeaks(t)
	s, revoke := newRemote(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Base+"/stream?page=/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = publicHost
	req.Header.Set("Cookie", cookieOf(s, "patchbay_ann", publicHost))
	res, err := s.Stranger().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("got %s", res.Status)
	}
	revoke()
	text, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(text), "event: end\n") {
		t.Errorf("got %q, %v, want the end", text, err)
	}
}

// Behind a proxy with TLS, a browser keeps the cookie with the attribute Secure, and logs out.
func TestRemoteBehindAProxy(t *testing.T) {
	mcptest.NoLeaks(t)
	s, _ := newRemote(t)
	to, err := url.Parse(s.Base)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	rewrite := func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = publicHost // as the browser's name for the proxy
	}
	proxy := httptest.NewTLSServer(&httputil.ReverseProxy{Transport: transport, Rewrite: rewrite})
	t.Cleanup(proxy.Close)
	b := s.Stranger()
	b.Transport = proxy.Client().Transport
	send := func(method, path string, form url.Values) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, proxy.URL+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		if form != nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		res, err := b.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res
	}
	res := send(http.MethodPost, "/login", url.Values{"token": {"patchbay_bob"}})
	for _, c := range res.Cookies() {
		if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" {
			t.Errorf("got the cookie %+v", c)
		}
	}
	if res := send(http.MethodGet, "/", nil); res.StatusCode != http.StatusOK {
		t.Errorf("logged in: got %s", res.Status)
	}
	send(http.MethodPost, "/logout", url.Values{})
	if res := send(http.MethodGet, "/", nil); !refused(res) {
		t.Errorf("logged out: got %s", res.Status)
	}
}
