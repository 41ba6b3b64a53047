package gateway_test

import (
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// begin returns the page of a login of a caller.
func (g *loginGateway) begin(t *testing.T, p *mcp.Principal) string {
	t.Helper()
	l, err := g.host.Operator().BeginLogin(t.Context(), "notes", &policy.Caller{Principal: p})
	if err != nil {
		t.Fatal(err)
	}
	return l.URL()
}

func person(name string) *mcp.Principal { return &mcp.Principal{Issuer: loginIssuer, Subject: name} }

// stop returns a client that does not follow redirects, with the cookies of v.
func (v *visitor) stop() *http.Client {
	c := *v.http
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// start presses the button of a page, and returns the page of the authorization server.
func (v *visitor) start(page string) (status int, to *url.URL) {
	v.t.Helper()
	res, err := v.stop().Get(page)
	if err != nil {
		v.t.Fatal(err)
	}
	if res, err = v.stop().PostForm(page, form(v.read(res))); err != nil {
		v.t.Fatal(err)
	}
	v.read(res)
	to, err = res.Location()
	if err != nil {
		to = nil
	}
	return res.StatusCode, to
}

// response logs in at the authorization server, and returns the redirect to the gateway.
func (v *visitor) response(page *url.URL) *url.URL {
	v.t.Helper()
	client := *v.http
	client.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), v.g.url) {
			return http.ErrUseLastResponse
		}
		return nil
	}
	res, err := client.Get(page.String())
	for range 4 {
		if err != nil {
			v.t.Fatal(err)
		}
		if to, err := res.Location(); err == nil && strings.HasPrefix(to.String(), v.g.url) {
			res.Body.Close()
			return to
		}
		text := v.read(res)
		action := testAction.FindStringSubmatch(text)
		if action == nil {
			v.t.Fatalf("no form: %s", text)
		}
		to, parseErr := res.Request.URL.Parse(html.UnescapeString(action[1]))
		if parseErr != nil {
			v.t.Fatal(parseErr)
		}
		res, err = client.PostForm(to.String(), form(text))
	}
	v.t.Fatal("no response")
	return nil
}

func (v *visitor) get(page string) (status int, text string) {
	v.t.Helper()
	res, err := v.stop().Get(page)
	if err != nil {
		v.t.Fatal(err)
	}
	return res.StatusCode, v.read(res)
}

func (g *loginGateway) loggedIn(t *testing.T, p *mcp.Principal) bool {
	t.Helper()
	value, err := g.store(p.Key()).Load(t.Context(), "server "+g.upstream)
	if err != nil {
		t.Fatal(err)
	}
	return value != nil
}

// The names of callers come from their authorization server, and are text on a page.
func TestNamesOnLoginPagesAreEscaped(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
	for name, want := range map[string]string{
		`"><script>alert(1)</script>`: "&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;",
		`' onfocus='x & y`:            "&#39; onfocus=&#39;x &amp; y",
		"&lt;b&gt;":                   "&amp;lt;b&amp;gt;",
		"bad \xff\x00":                `bad \xff\x00`,
		"javascript:alert(2)":         "<dd>javascript:alert(2) (",
	} {
		page := g.begin(t, person(name))
		status, text := g.visitor(t, "eve@notes").get(page)
		if status != 200 || !strings.Contains(text, want) {
			t.Errorf("%q: %d, %s, want %q", name, status, text, want)
		}
		if strings.Contains(text, "<script") || strings.Contains(text, `="javascript:`) ||
			strings.Count(text, "<form") != 1 {
			t.Errorf("%q changed the page: %s", name, text)
		}
	}
}

// The address of a login is for one visit. Reading it does not use it: programs show previews.
func TestTicketIsForOneVisit(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
	page := g.begin(t, person("ann"))
	ann, other := g.visitor(t, "ann@notes"), g.visitor(t, "eve@notes")
	for range 3 {
		if status, text := other.get(page); status != 200 || !strings.Contains(text, "ann (https://people.example)") {
			t.Errorf("%d, %s, want the caller", status, text)
		}
	}
	if status, to := ann.start(page); status != http.StatusSeeOther || !strings.HasPrefix(to.String(), u.issuer+"/authorize?") {
		t.Fatalf("got %d, %v", status, to)
	}
	for _, v := range []*visitor{ann, other} {
		if status, text := v.get(page); status != http.StatusGone || strings.Contains(text, "<form") {
			t.Errorf("a second visit: %d, %s, want 410", status, text)
		}
		if status, to := v.start(page); status != http.StatusGone || to != nil {
			t.Errorf("a second start: %d, %v, want 410", status, to)
		}
	}
	for _, path := range []string{"/connect/", "/connect/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "/connect/callback",
		"/connect/callback?state=x&code=y", "/connect/" + strings.Repeat("a", 300),
		"/connect/https:%2F%2Fevil.example", "/connect/a/b"} {
		if status, text := other.get(g.url + path); status != http.StatusNotFound || strings.Contains(text, "evil") {
			t.Errorf("%s: %d, %s, want 404", path, status, text)
		}
	}
	for _, method := range []string{"PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"} {
		r, err := http.NewRequestWithContext(t.Context(), method, page, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := other.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if other.read(res); res.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d, want 405", method, res.StatusCode)
		}
	}
}

// Another site, and another browser, cannot start a login.
func TestLoginIsStartedByItsPage(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
	page := g.begin(t, person("ann"))
	ann := g.visitor(t, "ann@notes")
	_, text := ann.get(page)
	fields := form(text)
	for name, change := range map[string]func(c *http.Client, r *http.Request, f url.Values){
		"no token":       func(_ *http.Client, _ *http.Request, f url.Values) { f.Del("csrf") },
		"wrong token":    func(_ *http.Client, _ *http.Request, f url.Values) { f.Set("csrf", strings.Repeat("0", 64)) },
		"no cookie":      func(c *http.Client, _ *http.Request, _ url.Values) { c.Jar = nil },
		"another cookie": func(c *http.Client, _ *http.Request, _ url.Values) { c.Jar = g.visitor(t, "x").http.Jar },
		"two cookies":    func(_ *http.Client, r *http.Request, _ url.Values) { r.Header.Set("Cookie", "patchbay_connect=x") },
		"another site":   func(_ *http.Client, r *http.Request, _ url.Values) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a sibling":      func(_ *http.Client, r *http.Request, _ url.Values) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"in the query":   func(_ *http.Client, r *http.Request, f url.Values) { r.URL.RawQuery = f.Encode(); f.Del("csrf") },
	} {
		client, own := ann.stop(), url.Values{}
		for key, values := range fields {
			own[key] = values
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, page, nil)
		if err != nil {
			t.Fatal(err)
		}
		change(client, r, own)
		body := own.Encode()
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if ann.read(res); res.StatusCode != http.StatusForbidden || res.Header.Get("Location") != "" {
			t.Errorf("%s: %d, %q, want 403", name, res.StatusCode, res.Header.Get("Location"))
		}
	}
	if status, to := ann.start(page); status != http.StatusSeeOther || to == nil {
		t.Errorf("afterwards: %d, %v, want the login", status, to)
	}
}

// A response that is not the one of the authorization server to this browser does not log in.
func TestResponsesAreChecked(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
	ann, eve := g.visitor(t, "ann@notes"), g.visitor(t, "eve@notes")
	with := func(u *url.URL, change func(q url.Values)) string {
		q := u.Query()
		change(q)
		out := *u
		out.RawQuery = q.Encode()
		return out.String()
	}
	for name, c := range map[string]struct {
		change func(q url.Values)
		status int
		ends   bool // the login
	}{
		"wrong state":  {func(q url.Values) { q.Set("state", "x") }, 404, false},
		"no state":     {func(q url.Values) { q.Del("state") }, 404, false},
		"wrong issuer": {func(q url.Values) { q.Set("iss", "https://evil.example") }, 502, true},
		"no issuer":    {func(q url.Values) { q.Del("iss") }, 502, true},
		"wrong code":   {func(q url.Values) { q.Set("code", "x") }, 502, true},
		"no code":      {func(q url.Values) { q.Del("code") }, 502, true},
		"two codes":    {func(q url.Values) { q.Add("code", "x") }, 502, true},
		"two issuers":  {func(q url.Values) { q.Add("iss", "https://evil.example") }, 502, true},
		"refused": {func(q url.Values) {
			q.Del("code")
			q.Set("error", "access_denied")
			q.Set("error_description", "<script>alert(1)</script> Call 555-0100")
		}, 502, true},
		"huge": {func(q url.Values) { q.Set("x", strings.Repeat("x", 20_000)) }, 404, false},
	} {
		t.Run(name, func(t *testing.T) {
			caller := person("ann" + strings.ReplaceAll(name, " ", ""))
			_, to := ann.start(g.begin(t, caller))
			back := ann.response(to)
			status, text := ann.get(with(back, c.change))
			if status != c.status || strings.Contains(text, "script>") || strings.Contains(text, "555") {
				t.Errorf("%d, %s, want %d", status, text, c.status)
			}
			if g.loggedIn(t, caller) {
				t.Error("the caller is logged in")
			}
			status, text = ann.get(back.String())
			if loggedIn := g.loggedIn(t, caller); loggedIn == c.ends || (status == 200) == c.ends {
				t.Errorf("the true response afterwards: %d, %s, logged in %t", status, text, loggedIn)
			}
			if status, _ := ann.get(back.String()); status != 404 {
				t.Errorf("the same response again: %d, want 404", status)
			}
		})
	}
	// The response of the attacker in the browser of the victim, and the reverse: neither binds the account of one
	// to the caller of the other.
	_, to := eve.start(g.begin(t, person("eve")))
	back := eve.response(to)
	if status, _ := ann.get(back.String()); status != http.StatusForbidden || g.loggedIn(t, person("eve")) {
		t.Errorf("the response in another browser: %d, want 403", status)
	}
	if status, _ := eve.get(back.String()); status != 200 || !g.loggedIn(t, person("eve")) {
		t.Errorf("then in the right one: %d, want 200", status)
	}
	g.checkNoTokens(t, u)
}

// The confused deputy: an attacker sends the address of the attacker's login to a victim. A caller with a
// key must enter it, so that the access of the victim does not become that of the attacker.
func TestConfusedDeputyNeedsTheKeyOfTheCaller(t *testing.T) {
	u := newProtectedUpstream(t)
	keys := gateway.NewKeyStore(&state.Memory{})
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", func(o *gateway.Options) {
		o.KeyStore, o.ConnectPrincipal = keys, nil
	})
	eve := newKey(t, keys, gateway.Key{Name: "eve", Subject: "eve"})
	all, err := keys.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%d keys, %v", len(all), err)
	}
	attacker := &mcp.Principal{Issuer: gateway.KeyIssuer, Subject: "eve", ClientID: all[0].Generation}
	victim := newKey(t, keys, gateway.Key{Name: "ann", Subject: "ann"})
	page := g.begin(t, attacker)
	ann := g.visitor(t, "ann@notes")
	_, text := ann.get(page)
	if !strings.Contains(text, "eve (patchbay:key)") || !strings.Contains(text, `name="key"`) ||
		!strings.Contains(text, "Continue only if you are this caller") {
		t.Fatalf("the page does not name the caller or ask for the key: %s", text)
	}
	for _, entered := range []string{"", victim, gateway.NewKey(), key, "patchbay_x", strings.Repeat("x", 5000)} {
		fields := form(text)
		fields.Set("key", entered)
		res, err := ann.stop().PostForm(page, fields)
		if err != nil {
			t.Fatal(err)
		}
		if answer := ann.read(res); res.StatusCode != http.StatusForbidden || entered != "" && strings.Contains(answer, entered) {
			t.Errorf("key %.20q: %d, %s, want 403", entered, res.StatusCode, answer)
		}
	}
	fields := form(text)
	fields.Set("key", eve)
	res, err := ann.stop().PostForm(page, fields)
	if err != nil {
		t.Fatal(err)
	}
	if ann.read(res); res.StatusCode != http.StatusSeeOther {
		t.Errorf("with the key of the caller: %d, want 303", res.StatusCode)
	}
	for _, secret := range []string{eve, victim} {
		if strings.Contains(g.logs.String()+g.pages.String(), secret) {
			t.Error("a log or page has a key")
		}
	}
	if u.count(authserver.AuditLogin) != 0 {
		t.Error("the victim was logged in")
	}
}

// A program that knows who its visitors are refuses the page to others.
func TestPageIsForThePrincipalOfTheProxy(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", func(o *gateway.Options) {
		o.ConnectPrincipal = func(r *http.Request) (*mcp.Principal, error) {
			if c, err := r.Cookie("who"); err == nil {
				return person(c.Value), nil
			}
			return nil, http.ErrNoCookie
		}
	})
	at, err := url.Parse(g.url)
	if err != nil {
		t.Fatal(err)
	}
	for who, want := range map[string]int{"": 403, "ann": 403, "eve": 303} {
		v := g.visitor(t, "ann@notes")
		if who != "" {
			v.http.Jar.SetCookies(at, []*http.Cookie{{Name: "who", Value: who, Path: "/"}})
		}
		if status, _ := v.start(g.begin(t, person("eve"))); status != want {
			t.Errorf("%q at the page of eve: %d, want %d", who, status, want)
		}
	}
}

// Names of servers and callers are text on a page, with what is invisible shown.
func TestPagesShowNamesAsText(t *testing.T) {
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(2)>`
	text := fmt.Sprintf(`{"mcpServers": {%q: {"url": "https://notes.example/mcp"}}, "patchbay": {"servers": {%q: {"auth": "caller"}}}}`,
		evil, evil)
	f, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(t.Context(), f, &host.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	g := gateway.New(h, &gateway.Options{Keys: []string{key}, PublicURL: "https://gateway.example",
		ConnectPrincipal: func(*http.Request) (*mcp.Principal, error) { return nil, http.ErrNoCookie },
		Logger:           slog.New(slog.DiscardHandler)})
	l, err := h.Operator().BeginLogin(t.Context(), evil, &policy.Caller{Principal: &mcp.Principal{
		Issuer: evil, Subject: "ann\u202e" + evil + strings.Repeat("x", 1000), ClientID: "a\x00b"}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, httptest.NewRequest("GET", l.URL()+"?next=https://evil.example", nil))
	page := w.Body.String()
	for _, bad := range []string{"<script", "<img", "\u202e", "\x00", "evil.example", strings.Repeat("x", 300)} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %.20q: %s", bad, page)
		}
	}
	if w.Code != 200 || !strings.Contains(page, `\u{202e}`) || !strings.Contains(page, "&lt;script") {
		t.Errorf("%d, %s", w.Code, page)
	}
	for name, want := range map[string]string{"Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
		"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Content-Type": "text/html; charset=utf-8"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	policy := w.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "style-src 'sha256-",
		"form-action 'self' https:;"} {
		if !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
			t.Errorf("the policy is %q, want %q", policy, want)
		}
	}
	cookie, err := http.ParseSetCookie(w.Header().Get("Set-Cookie"))
	if err != nil || !cookie.Secure || !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Path != "/" || cookie.Name != "__Host-patchbay_connect" ||
		cookie.Domain != "" || len(cookie.Value) != 32 {
		t.Errorf("the cookie is %+v, %v", cookie, err)
	}
}
