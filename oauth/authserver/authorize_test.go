package authserver_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// Requirement: AUTHR-25, SEC-04, AUTHB-09, AUTHB-15
func TestRedirectURIsMatchExactly(t *testing.T) {
	registered := []string{"http://127.0.0.1/callback", "http://[::1]:5/callback?x=1", "https://app.example/cb",
		"https://app.example/cb?tenant=1", "com.example.app:/cb"}
	w := newEnv(t, func(o *authserver.Options) { o.Clients[0].RedirectURIs = registered })
	for _, uri := range append(registered, "http://127.0.0.1:1/callback", "http://127.0.0.1:65535/callback",
		"http://[::1]/callback?x=1") {
		res := w.browser().get("/authorize?" + authorizeQuery("redirect_uri", uri).Encode())
		if res.StatusCode != http.StatusSeeOther || !strings.HasPrefix(res.Header.Get("Location"), w.issuer) {
			t.Errorf("registered %s: %s, want a redirect to the consent page", uri, res.Status)
		}
	}
	for _, uri := range []string{
		"https://app.example/cb/", "https://app.example/cb?", "https://app.example/CB", "https://APP.example/cb",
		"HTTPS://app.example/cb", "https://app.example:443/cb", "https://app.example:8443/cb", "http://app.example/cb",
		"https://app.example/cb#", "https://app.example/cb#x", "https://app.example/cb?tenant=2",
		"https://app.example/cb?tenant=1&x=1",
		"https://app.example/cb/../cb", "https://app.example/./cb", "https://app.example/%63b",
		"https://app.example//cb",
		"https://app.example.evil.example/cb", "https://evil.example/cb", "https://app.example@evil.example/cb",
		"https://user:pw@app.example/cb", "https://app.example\\@evil.example/cb", " https://app.example/cb",
		"https://app.example/cb ",
		"https://app.example/cb\n", "https://app.example/cb\x00", "//app.example/cb", "/cb", "https:/app.example/cb",
		"https:app.example/cb", "javascript:alert(1)", "data:text/html,x", "http://localhost/callback",
		"http://127.0.0.2/callback",
		"http://127.0.0.1/callback/", "http://127.0.0.1.evil.example/callback",
		"http://127.0.0.1:80@evil.example/callback",
		"http://127.0.0.1:4711/callback?x=1", "https://127.0.0.1/callback", "http://127.0.0.1:/callback",
		"http://127.0.0.1:99999/callback",
		"http://[::1]:5/callback", "http://[::2]/callback?x=1", "com.example.app:/cb2", "com.example.app2:/cb",
		"https://*.example/cb", "*",
		"http://2130706433/callback", "http://0x7f.1/callback",
	} {
		res := w.browser().get("/authorize?" + authorizeQuery("redirect_uri", uri).Encode())
		if res.StatusCode != http.StatusBadRequest || res.Header.Get("Location") != "" || strings.Contains(res.body,
			"evil.example") {
			t.Errorf("%q: %s, Location %q, want 400 without a redirect", uri, res.Status, res.Header.Get("Location"))
		}
	}
	// A request without a redirect URI is ambiguous if several are registered.
	res := w.browser().get("/authorize?" + authorizeQuery("redirect_uri", "").Encode())
	if res.StatusCode != http.StatusBadRequest {
		t.Errorf("no redirect URI: %s, want 400", res.Status)
	}
}

// Requirement: REG-20
func TestErrorsHaveStateAndIssuer(t *testing.T) {
	w := newEnv(t, nil)
	for name, c := range map[string]struct {
		change []string
		code   string
	}{
		"no response_type":          {[]string{"response_type", ""}, "invalid_request"},
		"response_type token":       {[]string{"response_type", "token"}, "unsupported_response_type"},
		"response_type code token":  {[]string{"response_type", "code token"}, "unsupported_response_type"},
		"response_mode fragment":    {[]string{"response_mode", "fragment"}, "invalid_request"},
		"response_mode form_post":   {[]string{"response_mode", "form_post"}, "invalid_request"},
		"no challenge":              {[]string{"code_challenge", ""}, "invalid_request"},
		"no method (default plain)": {[]string{"code_challenge_method", ""}, "invalid_request"},
		"method plain":              {[]string{"code_challenge_method", "plain"}, "invalid_request"},
		"method s256":               {[]string{"code_challenge_method", "s256"}, "invalid_request"},
		"short challenge":           {[]string{"code_challenge", challenge()[1:]}, "invalid_request"},
		"padded challenge":          {[]string{"code_challenge", challenge() + "="}, "invalid_request"},
		"challenge not base64":      {[]string{"code_challenge", strings.Repeat("+", 43)}, "invalid_request"},
		"request object":            {[]string{"request", "x"}, "request_not_supported"},
		"request URI":               {[]string{"request_uri", "https://evil.example"}, "request_uri_not_supported"},
		"unknown scope alone":       {[]string{"scope", "root"}, "invalid_scope"},
		"malformed scope":           {[]string{"scope", `read "`}, "invalid_scope"},
		"long scope":                {[]string{"scope", "read " + strings.Repeat("x", 5000)}, "invalid_scope"},
		"prompt none":               {[]string{"prompt", "none"}, "interaction_required"},
		"control character":         {[]string{"login_hint", "a\x00b"}, "invalid_request"},
		"invalid UTF-8":             {[]string{"login_hint", "a\xffb"}, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			res := w.browser().get("/authorize?" + authorizeQuery(c.change...).Encode())
			u, err := res.Location()
			if err != nil || u.Host != "127.0.0.1:4711" {
				t.Fatalf("%s, Location %v, want a redirect to the client", res.Status, u)
			}
			q := u.Query()
			if q.Get("error") != c.code || q.Get("iss") != w.issuer || q.Get("state") != "the state" || q.Has("code") {
				t.Errorf("got %v, want error %s with iss and state", q, c.code)
			}
		})
	}
}

func TestDuplicateParametersAreRefused(t *testing.T) {
	w := newEnv(t, nil)
	for name := range authorizeQuery() {
		q := authorizeQuery()
		q.Add(name, q.Get(name))
		res := w.browser().get("/authorize?" + q.Encode())
		switch name {
		case "client_id", "redirect_uri":
			if res.StatusCode != http.StatusBadRequest || res.Header.Get("Location") != "" {
				t.Errorf("two %s: %s, want 400 without a redirect", name, res.Status)
			}
		case "resource":
			if got := w.browser().redirectQuery(res).Get("error"); got != "invalid_target" {
				t.Errorf("two %s: error %q, want invalid_target", name, got)
			}
		default:
			answer := w.browser().redirectQuery(res)
			if answer.Get("error") != "invalid_request" || name == "state" && answer.Has("state") {
				t.Errorf("two %s: %v, want invalid_request", name, answer)
			}
		}
	}
	code := w.code()
	for name := range exchangeForm(code) {
		f := exchangeForm(code)
		f.Add(name, f.Get(name))
		want := "invalid_request"
		if name == "resource" {
			want = "invalid_target"
		}
		w.post("/token", f).wantError(t, http.StatusBadRequest, want)
	}
	w.tokensOf(w.post("/token", exchangeForm(code))) // refused requests did not use up the code
}

// The server must not be an open redirector for clients that the user has not seen yet.
//
// Spec: RFC 9700, section 4.11.2.
func TestErrorsOfUnknownClientsDoNotRedirect(t *testing.T) {
	w := newEnv(t, nil)
	id := w.registerPublic("https://phish.example/cb", "http://localhost/cb")
	res := w.browser().get("/authorize?" + authorizeQuery("client_id", id, "redirect_uri", "https://phish.example/cb",
		"scope", "root").Encode())
	if res.StatusCode != http.StatusBadRequest || res.Header.Get("Location") != "" || !strings.Contains(res.body,
		"phish.example") {
		t.Errorf("got %s, Location %q, %s; want 400 and a page with the host",
			res.Status, res.Header.Get("Location"), res.body)
	}
	res = w.browser().get("/authorize?" + authorizeQuery("client_id", id, "redirect_uri", "http://localhost:1/cb",
		"scope", "root").Encode())
	if got := w.browser().redirectQuery(res).Get("error"); got != "invalid_scope" {
		t.Errorf("loopback redirect URI: error %q, want invalid_scope", got)
	}
}

func TestUnknownScopesAreIgnored(t *testing.T) {
	w := newEnv(t, nil)
	for asked, want := range map[string]string{
		"": "read write", "read": "read", "read root": "read", "write read": "read write", "admin": "admin",
		"offline_access":      "",
		"read offline_access": "read",
	} {
		if got := w.tokensOf(w.post("/token", exchangeForm(w.code("scope", asked)))).Scope; got != want {
			t.Errorf("request for %q granted %q, want %q", asked, got, want)
		}
	}
}

func TestInteractionsAreBoundToTheBrowser(t *testing.T) {
	logins := 0
	w := newEnv(t, func(o *authserver.Options) {
		o.Login = authserver.LoginFunc(func(rw http.ResponseWriter, r *http.Request, l *authserver.LoginRequest) {
			logins++
			aliceLogsIn(rw, r, l)
		})
	})
	mine, other := w.browser(), w.browser()
	page, form := mine.consentPage(authorizeQuery())
	wantRefused := func(what string, res response) {
		t.Helper()
		if res.StatusCode != http.StatusBadRequest || res.Header.Get("Location") != "" {
			t.Errorf("%s: %s, Location %q, want 400 without a redirect", what, res.Status, res.Header.Get("Location"))
		}
	}
	wantRefused("consent page in another browser", other.get(page.Request.URL.String()))
	wantRefused("consent from another browser", other.decide(form, "allow"))
	login := w.issuer + "/login?interaction=" + form.Get("interaction")
	callback := w.issuer + "/login/callback?state=" + form.Get("interaction") + ".x"
	wantRefused("login before consent", mine.get(login))
	wantRefused("callback before consent", mine.get(callback))
	res := mine.decide(form, "allow")
	stored := res.Header.Get("Location")
	if !strings.HasPrefix(stored, w.issuer+"/login?interaction=") || strings.Contains(stored, form.Get("interaction")) {
		t.Fatalf("consent redirects to %q, want the login with the ID of the interaction", stored)
	}
	wantRefused("login by ID in another browser", other.get(stored))
	wantRefused("login in another browser", other.get(login))
	for _, c := range mine.client.Jar.Cookies(mustURL(w.issuer)) { // same name, another value
		planted := &http.Cookie{Name: c.Name, Value: c.Value[1:] + c.Value[:1], Path: "/"}
		other.client.Jar.SetCookies(mustURL(w.issuer), []*http.Cookie{planted})
	}
	wantRefused("login with a planted cookie", other.get(login))
	wantRefused("callback in another browser", other.get(callback))
	if logins != 0 {
		t.Errorf("the Login was called %d times, want 0", logins)
	}
	if code := mine.redirectQuery(mine.get(login)).Get("code"); code == "" || logins != 1 {
		t.Errorf("login in the first browser: code %q, %d logins, want a code and 1", code, logins)
	}
	wantRefused("login again", mine.get(login))
}

// Requirement: SEC-02, SEC-05
func TestFormsNeedTheCSRFToken(t *testing.T) {
	w := newEnv(t, nil)
	b := w.browser()
	_, form := b.consentPage(authorizeQuery())
	for _, csrf := range []string{"", "x", form.Get("csrf")[1:]} {
		bad := url.Values{"interaction": form["interaction"], "csrf": {csrf}, "decision": {"allow"}}
		if res := b.submit("/consent", bad); res.StatusCode != http.StatusForbidden {
			t.Errorf("consent with CSRF token %q: %s, want 403", csrf, res.Status)
		}
	}
	form.Set("decision", "allow")
	if res := b.submit("/consent", form, "Sec-Fetch-Site", "cross-site"); res.StatusCode != http.StatusForbidden {
		t.Errorf("consent from another site: %s, want 403", res.Status)
	}
	if res := b.get("/consent?" + form.Encode()); res.StatusCode != http.StatusOK {
		t.Errorf("consent with GET: %s, want 200 and the page again", res.Status)
	}
	if res := b.decide(form, "perhaps"); res.StatusCode != http.StatusForbidden {
		t.Errorf("unknown decision: %s, want 403", res.Status)
	}
	if res := b.get("/login?interaction=" + form.Get("interaction")); res.StatusCode != http.StatusBadRequest {
		t.Errorf("login before consent: %s, want 400", res.Status)
	}
	if res := b.decide(form, "allow"); res.StatusCode != http.StatusSeeOther {
		t.Errorf("consent with the CSRF token: %s, want 303", res.Status)
	}
	res := b.submit("/login", url.Values{"interaction": form["interaction"]})
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("login form without CSRF token: %s, want 403", res.Status)
	}
}

// Requirement: SEC-03
func TestInteractionCookieIsProtected(t *testing.T) {
	w := newInProcessEnv(t, nil)
	res := w.browser().get("/authorize?" + authorizeQuery().Encode())
	cookies := res.Cookies()
	if len(cookies) != 1 {
		t.Fatalf("got %d cookies, want 1", len(cookies))
	}
	c := cookies[0]
	if !strings.HasPrefix(c.Name, "__Host-") || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode ||
		c.Path != "/" || c.Domain != "" || c.MaxAge != 600 || len(c.Value) < 40 {
		t.Errorf("cookie is %v, want a __Host- cookie with all protections for 600 s", c)
	}
	if strings.Contains(res.Header.Get("Location"), c.Value) {
		t.Error("the URL contains the value of the cookie")
	}
}

// Requirement: AUTHB-15
func TestInteractionsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, nil)
		b := w.browser()
		_, form := b.consentPage(authorizeQuery())
		b.client.Jar = fixedJar{b.client.Jar.Cookies(mustURL(w.issuer))} // ignores Max-Age
		time.Sleep(10*time.Minute - time.Second)
		if res := b.get("/consent?interaction=" + form.Get("interaction")); res.StatusCode != http.StatusOK {
			t.Errorf("a second before it expires: %s, want 200", res.Status)
		}
		time.Sleep(time.Second)
		if res := b.decide(form, "allow"); res.StatusCode != http.StatusBadRequest {
			t.Errorf("when it has expired: %s, want 400", res.Status)
		}
	})
}

// A fixedJar sends the same cookies with every request.
type fixedJar struct{ cookies []*http.Cookie }

func (j fixedJar) SetCookies(*url.URL, []*http.Cookie) {}
func (j fixedJar) Cookies(*url.URL) []*http.Cookie     { return j.cookies }
func mustURL(s string) *url.URL                        { u, _ := url.Parse(s); return u }

// Requirement: SEC-04
func TestRedirectURIIsCheckedAgainAfterLogin(t *testing.T) {
	store := authserver.NewMemoryStore()
	w := newEnv(t, func(o *authserver.Options) { o.Store = store })
	id := w.registerPublic("https://app.example/a")
	b := w.browser()
	_, form := b.consentPage(authorizeQuery("client_id", id, "redirect_uri", "https://app.example/a"))
	b.decide(form, "allow")
	value, err := store.Get(t.Context(), "new-client", id)
	if err != nil || value == nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(value), "https://app.example/a", "https://app.example/b", 1)
	if err := store.Put(t.Context(), "new-client", id, []byte(changed), time.Time{}); err != nil {
		t.Fatal(err)
	}
	if res := b.get("/login?interaction=" + form.Get("interaction")); res.StatusCode != http.StatusBadRequest ||
		res.Header.Get("Location") != "" {
		t.Errorf("got %s, Location %q, want 400 without a redirect", res.Status, res.Header.Get("Location"))
	}
}

func TestInvalidSubjectsGetNoCode(t *testing.T) {
	for _, id := range []string{"", "a\nb", strings.Repeat("x", 256), machineID, "\xff"} {
		w := newEnv(t, func(o *authserver.Options) {
			o.Login = authserver.LoginFunc(func(rw http.ResponseWriter, r *http.Request, l *authserver.LoginRequest) {
				l.Finish(rw, r, authserver.Subject{ID: id})
			})
		})
		if answer := w.browser().authorize(authorizeQuery()); answer.Has("code") || answer.Get("iss") != w.issuer {
			t.Errorf("subject %q: %v, want no code", id, answer)
		}
	}
}

func TestLoginDataIsTakenOnce(t *testing.T) {
	w := newEnv(t, func(o *authserver.Options) {
		o.Login = authserver.LoginFunc(func(rw http.ResponseWriter, r *http.Request, l *authserver.LoginRequest) {
			if l.Path == "" {
				if err := l.Keep(r.Context(), []byte("kept")); err != nil {
					t.Error(err)
				}
				http.Redirect(rw, r, l.URL("callback")+"?state="+l.ID()+".x", http.StatusSeeOther)
				return
			}
			first, err1 := l.GetAndDelete(r.Context())
			second, err2 := l.GetAndDelete(r.Context())
			if string(first) != "kept" || second != nil || err1 != nil || err2 != nil || l.Path != "callback" {
				t.Errorf("GetAndDelete returned %q, %v and then %q, %v at path %q; want %q and then nothing",
					first, err1, second, err2, l.Path, "kept")
			}
			l.Fail(rw, r, "access_denied", "no \"such\" user\n")
		})
	})
	b := w.browser()
	_, form := b.consentPage(authorizeQuery())
	b.decide(form, "allow")
	res := b.get("/login?interaction=" + form.Get("interaction"))
	answer := b.redirectQuery(b.get(res.Header.Get("Location")))
	if answer.Get("error") != "access_denied" || answer.Get("error_description") != "no such user" ||
		answer.Get("iss") != w.issuer {
		t.Errorf("authorization response is %v, want access_denied with a plain description", answer)
	}
}

// Scripts of other origins may call the endpoints for clients, and may not read the pages.
func TestCORSIsOnlyForClientEndpoints(t *testing.T) {
	w := newEnv(t, nil)
	for path, open := range map[string]bool{
		"/.well-known/oauth-authorization-server": true, "/jwks": true, "/token": true, "/register": true,
		"/revoke": true, "/authorize": false, "/consent": false, "/login": false, "/introspect": false,
	} {
		res := w.send(http.DefaultClient, w.request(http.MethodOptions, path, "", "Origin", "https://page.example",
			"Access-Control-Request-Method", "POST"))
		got := res.Header.Get("Access-Control-Allow-Origin")
		if open && (got != "*" || res.Header.Get("Access-Control-Allow-Methods") == "") || !open && got != "" {
			t.Errorf("%s: Access-Control-Allow-Origin is %q, want all origins %v", path, got, open)
		}
		if res.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s has Access-Control-Allow-Credentials", path)
		}
	}
	for path, method := range map[string]string{"/token": "GET", "/register": "GET", "/jwks": "POST",
		"/authorize": "DELETE", "/introspect": "PUT"} {
		res := w.send(http.DefaultClient, w.request(method, path, ""))
		if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") == "" {
			t.Errorf("%s %s: %s, want 405 with Allow", method, path, res.Status)
		}
	}
}

// The browser still sends the cookie of the interaction after it was deleted.
func TestOneConsentGivesOneCode(t *testing.T) {
	w := newEnv(t, nil)
	b := w.browser()
	_, form := b.consentPage(authorizeQuery())
	b.decide(form, "allow")
	b.client.Jar = fixedJar{b.client.Jar.Cookies(mustURL(w.issuer))}
	login := w.issuer + "/login?interaction=" + form.Get("interaction")
	if code := b.redirectQuery(b.get(login)).Get("code"); code == "" {
		t.Fatal("first login: got no code, want one")
	}
	if res := b.get(login); res.StatusCode != http.StatusBadRequest || res.Header.Get("Location") != "" {
		t.Errorf("second login: %s, Location %q, want 400 without a redirect", res.Status, res.Header.Get("Location"))
	}
	if res := b.decide(form, "allow"); res.StatusCode != http.StatusBadRequest {
		t.Errorf("second consent: %s, want 400", res.Status)
	}
}
