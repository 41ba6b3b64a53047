package authserver_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// Requirement: SEC-02, REG-10
func TestConsentPageShowsClientScopesAndRedirectHost(t *testing.T) {
	w := newEnv(t, func(o *authserver.Options) {
		o.Name = "Example Inc."
		o.Clients[0].URI = "https://client.example/about"
	})
	page, form := w.browser().consentPage(authorizeQuery())
	for _, want := range []string{
		"<bdi>Public</bdi>", "<bdi>Calendar</bdi>", "https://mcp.example/mcp", "Read your calendar",
		"<strong>127.0.0.1</strong>", "client.example",
		"Known to Example Inc.", `name="decision" value="allow"`, `name="decision" value="deny"`, `id="local-warning"`,
		`action="/consent"`,
		`<html lang="en">`, "width=device-width",
	} {
		if !strings.Contains(page.body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if len(form.Get("csrf")) < 40 || strings.Contains(page.body, "<script") || strings.Contains(page.body, "admin") {
		t.Error("the page has no CSRF token, has a script, or has a scope that was not requested")
	}
	if q := page.Request.URL.RawQuery; strings.Contains(q, form.Get("csrf")) {
		t.Error("the CSRF token is in the URL")
	}
}

// Requirement: SEC-02
func TestPagesCannotBeFramedCachedOrScripted(t *testing.T) {
	w := newEnv(t, withPasswords(t))
	b := w.browser()
	consent, form := b.consentPage(authorizeQuery())
	login := b.get(b.decide(form, "allow").Header.Get("Location"))
	errorPage := b.get("/authorize?client_id=unknown")
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`)
	for name, page := range map[string]response{"consent": consent, "login": login, "error": errorPage} {
		csp := page.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'",
			"form-action "} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: the policy %q lacks %q", name, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") {
			t.Errorf("%s: the policy is %q, want it without wildcards and unsafe sources", name, csp)
		}
		m := style.FindStringSubmatch(page.body)
		if m == nil {
			t.Fatalf("%s: the page has no style: %s", name, page.body)
		}
		sum := sha256.Sum256([]byte(m[1]))
		if !strings.Contains(csp, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
			t.Errorf("%s: the policy lacks the hash of the page's style", name)
		}
		for header, want := range map[string]string{
			"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
			"X-Frame-Options": "DENY",
			"Content-Type":    "text/html; charset=utf-8", "Access-Control-Allow-Origin": "",
		} {
			if got := page.Header.Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", name, header, got, want)
			}
		}
		if strings.Contains(page.body, " style=") || strings.Contains(page.body, " on") &&
			regexp.MustCompile(`<[^>]* on[a-z]+=`).MatchString(page.body) {
			t.Errorf("%s: the page has a style attribute or an event handler, which its policy forbids", name)
		}
	}
}

// Browsers apply form-action to the redirects after a form too, and the last one is to the client.
func TestFormActionAllowsTheRedirect(t *testing.T) {
	for redirect, want := range map[string]string{
		"https://app.example/callback":  "form-action 'self' https:;",
		"http://127.0.0.1:4711/cb":      "form-action 'self' https: http://127.0.0.1:4711;",
		"http://[::1]:4711/cb":          "form-action 'self' https: http:;",
		"com.example.app:/oauth/answer": "form-action 'self' https: com.example.app:;",
	} {
		w := newInProcessEnv(t, func(o *authserver.Options) {
			o.Clients = append(o.Clients, authserver.Client{ID: "c", RedirectURIs: []string{redirect}})
		})
		page, _ := w.browser().consentPage(authorizeQuery("client_id", "c", "redirect_uri", redirect))
		if csp := page.Header.Get("Content-Security-Policy"); !strings.Contains(csp, want) {
			t.Errorf("%s: the policy is %q, want it to contain %q", redirect, csp, want)
		}
	}
}

func TestUnverifiedNamesAreEscapedAndMarked(t *testing.T) {
	w := newEnv(t, nil)
	c := w.register(`{"client_name":"</title><script>alert(1)</script>\" onload=x",
		"redirect_uris":["https://app.example/cb","http://localhost/cb"],
		"client_uri":"https://famous.example/","token_endpoint_auth_method":"none"}`)
	page, _ := w.browser().consentPage(authorizeQuery("client_id", c["client_id"].(string), "redirect_uri",
		"https://app.example/cb"))
	if strings.Contains(page.body, "<script") || !strings.Contains(page.body, "&lt;script&gt;") {
		t.Errorf("the name is not escaped: %s", page.body)
	}
	for _, want := range []string{"This name is not verified.", "<strong>app.example</strong>", "Not verified."} {
		if !strings.Contains(page.body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page.body, "local-warning") {
		t.Error("the page has the warning for loopback redirect URIs, but the redirect URI is not a loopback one")
	}
}

// hostileTexts maps texts to their HTML.
var hostileTexts = map[string]string{
	`"><script>alert(1)</script>`: "&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;",
	`' onfocus='x & y`:            "&#39; onfocus=&#39;x &amp; y",
	"&lt;b&gt;":                   "&amp;lt;b&amp;gt;",
	"bad \xff":                    "bad \uFFFD",
	"javascript:alert(2)":         "javascript:alert(2)",
}

// A name from a client or a user is text in elements and attributes of each page.
func TestHostileTextsDoNotChangeThePages(t *testing.T) {
	for text, want := range hostileTexts {
		w := newInProcessEnv(t, func(o *authserver.Options) {
			withPasswords(t)(o)
			o.Clients[0].Name, o.Clients[0].URI = text, "https://"+text+"/"
			o.Resources[0].Scopes[0].Description = text
			o.Name, o.Resources[0].Name = text, text
		})
		b := w.browser()
		consent, form := b.consentPage(authorizeQuery())
		login := b.get(b.decide(form, "allow").Header.Get("Location"))
		failed := b.submitPassword(form, text, "wrong")
		for name, page := range map[string]response{"consent": consent, "login": login, "failed": failed} {
			if n := strings.Count(page.body, "<bdi>"); n < 2 || strings.Count(page.body, "<bdi>"+want+"</bdi>") != n ||
				!strings.Contains(page.body, "<header>"+want+"</header>") ||
				!strings.Contains(page.body, " – "+want+"</title>") {
				t.Errorf("%s: %q is not escaped: %s", name, text, page.body)
			}
			if strings.Contains(page.body, "<script") || strings.Contains(page.body, "href=") ||
				!utf8.ValidString(page.body) || strings.Count(page.body, "<form") != 1 {
				t.Errorf("%s: %q changed the page: %s", name, text, page.body)
			}
		}
		if !strings.Contains(failed.body, `name="username" value="`+want+`" autocomplete`) {
			t.Errorf("the field does not contain %q: %s", text, failed.body)
		}
	}
}

func TestErrorPagesLinkOnlyToRegisteredURIs(t *testing.T) {
	w := newEnv(t, nil)
	for _, redirect := range []string{"javascript:alert(1)", "data:text/html,x", "https://evil.example/cb",
		"//evil.example"} {
		res := w.browser().get("/authorize?" + authorizeQuery("redirect_uri", redirect).Encode())
		if res.StatusCode != http.StatusBadRequest || strings.Contains(res.body, "href") || strings.Contains(res.body,
			"evil.example") {
			t.Errorf("%s: %s %s, want 400 without a link", redirect, res.Status, res.body)
		}
	}
	// An error of a registered redirect URI is a link that shows its host.
	c := w.register(`{"client_name":"App","redirect_uris":["https://app.example/cb"],
		"token_endpoint_auth_method":"none"}`)
	res := w.browser().get("/authorize?" + authorizeQuery("client_id", c["client_id"].(string), "redirect_uri",
		"https://app.example/cb", "code_challenge", "").Encode())
	if res.StatusCode != http.StatusBadRequest || !strings.Contains(res.body, `href="https://app.example/cb?`) ||
		!strings.Contains(res.body, "Go back to app.example") {
		t.Errorf("got %s %s, want 400 with a link to the client", res.Status, res.body)
	}
	// So is an error of a link of an app, whose scheme is private.
	c = w.register(`{"client_name":"App","redirect_uris":["com.example.app:/cb"],"token_endpoint_auth_method":"none"}`)
	res = w.browser().get("/authorize?" + authorizeQuery("client_id", c["client_id"].(string), "redirect_uri",
		"com.example.app:/cb", "code_challenge", "", "state", `"><script>`).Encode())
	if !strings.Contains(res.body, `href="com.example.app:/cb?`) || strings.Contains(res.body, "<script") ||
		!strings.Contains(res.body, "Go back to com.example.app:") {
		t.Errorf("got %s %s, want a link to the app", res.Status, res.body)
	}
}

func TestShownNameIsPrintable(t *testing.T) {
	for name, want := range map[string]string{
		"Plain":                            "Plain",
		"  two \n\t words  ":               "two words",
		"a\u202egnp.exe":                   "agnp.exe",
		"zero\u200bwidth\u2066x\u2069":     "zerowidthx",
		"\u3164\u115f\u2800":               "",
		"bad \xff utf":                     "bad \ufffd utf",
		"émigré 東京 🎉":                      "émigré 東京 🎉",
		"z" + strings.Repeat("\u0301", 50): "z\u0301\u0301\u0301",
		strings.Repeat("x", 200):           strings.Repeat("x", 80) + "…",
	} {
		if got := authserver.ShownName(name); got != want {
			t.Errorf("%q is shown as %q, want %q", name, got, want)
		}
	}
}

// The end of a host name says who controls it.
func TestShownHostKeepsItsEnd(t *testing.T) {
	long := "accounts.google.com." + strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".evil.example"
	for host, want := range map[string]string{
		"app.example":       "app.example",
		"a\u200bpp.example": "app.example",
		long:                long,
		"google.com." + strings.Repeat("x.", 200) + "com": "…" + strings.Repeat("x.", 125) + "com",
	} {
		if got := authserver.ShownHost(host); got != want {
			t.Errorf("%q is shown as %q, want %q", host, got, want)
		}
	}
	w := newEnv(t, nil)
	client := w.register(`{"redirect_uris":["http://127.0.0.1/cb"],"client_uri":"https://` + long + `"}`)
	id := client["client_id"].(string)
	page, _ := w.browser().consentPage(authorizeQuery("client_id", id, "redirect_uri", "http://127.0.0.1/cb"))
	if !strings.Contains(page.body, long) {
		t.Errorf("the page lacks %q: %s", long, page.body)
	}
}

func FuzzShownName(f *testing.F) {
	f.Add("a\u202eb")
	f.Add("\xff\x00\n")
	f.Fuzz(func(t *testing.T, name string) {
		got := authserver.ShownName(name)
		if utf8.RuneCountInString(got) > 81 || !utf8.ValidString(got) || strings.TrimSpace(got) != got ||
			strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is shown as %q, want at most 81 printable characters", name, got)
		}
	})
}
