package authserver_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// All clients share the server's client ID at the provider, so the provider may not ask the user
// again for another client.
//
// Requirement: AUTHR-27, SEC-01
func TestEachRegisteredClientNeedsConsent(t *testing.T) {
	p := newIDP(t)
	w := newEnv(t, withProviders(t, p.provider("idp")))
	b := w.browser()
	for _, uri := range []string{"https://one.example/cb", "https://two.example/cb"} {
		request := []string{"client_id", w.registerPublic(uri), "redirect_uri", uri}
		for range 2 { // consent is not remembered
			calls := p.count("/authorize")
			page, form := b.consentPage(authorizeQuery(request...))
			if host := mustURL(uri).Host; !strings.Contains(page.body, host) {
				t.Errorf("%s: the consent page lacks %s: %s", uri, host, page.body)
			}
			res := b.get("/login?interaction=" + form.Get("interaction"))
			if res.StatusCode != http.StatusBadRequest || res.Header.Get("Location") != "" {
				t.Errorf("%s: login before consent: %s, Location %q, want 400 without a redirect", uri, res.Status,
					res.Header.Get("Location"))
			}
			if n := p.count("/authorize") - calls; n != 0 {
				t.Errorf("%s: the provider got %d authorization requests before consent, want 0", uri, n)
			}
			answer := b.redirectQuery(b.get(p.visit(b, b.toProvider(request...))))
			if answer.Get("code") == "" {
				t.Errorf("%s: authorization response after consent is %v, want a code", uri, answer)
			}
		}
	}
}

// An attacker consents in one browser and makes the victim's browser load the callback. The
// provider knows the victim, and does not ask.
func TestCallbackInAnotherBrowserIsRefused(t *testing.T) {
	p := newIDP(t)
	w := newEnv(t, withProviders(t, p.provider("idp")))
	attacker, victim := w.browser(), w.browser()
	address := attacker.toProvider()
	callback := p.visit(victim, address)
	res := victim.get(callback)
	if res.StatusCode != http.StatusBadRequest || res.Header.Get("Location") != "" {
		t.Errorf("callback: %s, Location %q, want 400 without a redirect", res.Status, res.Header.Get("Location"))
	}
	if !strings.Contains(res.body, "belongs to another browser") {
		t.Errorf("the page does not name the reason: %s", res.body)
	}
	issuer := mustURL(w.issuer)
	for _, c := range attacker.client.Jar.Cookies(issuer) {
		victim.client.Jar.SetCookies(issuer, []*http.Cookie{{Name: c.Name, Value: "planted"}})
	}
	if res := victim.get(callback); res.StatusCode != http.StatusBadRequest {
		t.Errorf("callback with a planted cookie: %s, want 400", res.Status)
	}
	victim.toProvider()
	if res := victim.get(callback); res.StatusCode != http.StatusBadRequest {
		t.Errorf("callback with the cookie of another interaction: %s, want 400", res.Status)
	}
	if n := p.count("/token"); n != 0 {
		t.Errorf("%d codes were redeemed, want 0", n)
	}
}

// Requirement: SEC-05
func TestNoStateIsAcceptedBeforeConsent(t *testing.T) {
	p := newIDP(t)
	w := newEnv(t, withProviders(t, p.provider("idp")))
	b := w.browser()
	_, form := b.consentPage(authorizeQuery())
	id := form.Get("interaction")
	for _, path := range []string{
		"/login?interaction=" + id, "/login/callback/idp?interaction=" + id + "&code=x",
		"/login/callback/idp?code=x&state=" + id + ".", "/login/callback/idp?code=x&state=" + id + ".planted",
	} {
		if res := b.get(path); res.StatusCode != http.StatusBadRequest || res.Header.Get("Location") != "" {
			t.Errorf("%s before consent: %s, Location %q, want 400 without a redirect", path, res.Status,
				res.Header.Get("Location"))
		}
	}
	form.Set("provider", "idp")
	if res := b.submit("/login", form); res.StatusCode != http.StatusBadRequest {
		t.Errorf("login form before consent: %s, want 400", res.Status)
	}
	if len(p.calls) != 0 {
		t.Errorf("the provider got requests before consent: %v", p.calls)
	}
	// A state from before consent is not accepted afterwards either.
	res := b.decide(form, "allow")
	if res.StatusCode != http.StatusSeeOther {
		t.Fatal(res.Status)
	}
	if res := b.get("/login/callback/idp?code=x&state=" + id + ".planted"); res.StatusCode != http.StatusBadRequest {
		t.Errorf("planted state after consent: %s, want 400", res.Status)
	}
	if n := p.count("/token"); n != 0 {
		t.Errorf("%d codes were redeemed, want 0", n)
	}
}

// Requirement: SEC-05
func TestCallbackCanBeUsedOnce(t *testing.T) {
	p := newIDP(t)
	w := newEnv(t, withProviders(t, p.provider("idp")))
	b := w.browser()
	callback := p.visit(b, b.toProvider())
	if got := b.redirectQuery(b.get(callback)); got.Get("code") == "" {
		t.Fatalf("authorization response is %v, want a code", got)
	}
	if res := b.get(callback); res.StatusCode != http.StatusBadRequest || res.Header.Get("Location") != "" {
		t.Errorf("second use: %s, Location %q, want 400 without a redirect", res.Status, res.Header.Get("Location"))
	}
	// A callback with a wrong state invalidates the right one.
	b = w.browser()
	callback = p.visit(b, b.toProvider())
	u, _ := url.Parse(callback)
	q := u.Query()
	q.Set("state", q.Get("state")+"x")
	for _, address := range []string{u.Scheme + "://" + u.Host + u.Path + "?" + q.Encode(), callback} {
		if res := b.get(address); res.StatusCode != http.StatusBadRequest || res.Header.Get("Location") != "" {
			t.Errorf("with or after a wrong state: %s, Location %q, want 400 without a redirect", res.Status,
				res.Header.Get("Location"))
		}
	}
	if n := p.count("/token"); n != 1 {
		t.Errorf("%d codes were redeemed, want 1", n)
	}
}

// Requirement: REG-24, REG-25
func TestResponsesOfAnotherProviderAreRefused(t *testing.T) {
	honest, evil := newIDP(t), newIDP(t)
	w := newEnv(t, withProviders(t, honest.provider("honest"), evil.provider("evil")))
	pick := func(b *browser, id string) string {
		_, form := b.consentPage(authorizeQuery())
		res := b.get(b.decide(form, "allow").Header.Get("Location"))
		if !strings.Contains(res.body, "Provider honest") || !strings.Contains(res.body, "Provider evil") {
			t.Fatalf("the page lacks a provider: %s", res.body)
		}
		form.Set("provider", id)
		return b.submit("/login", form).Header.Get("Location")
	}
	b := w.browser()
	callback := honest.visit(b, pick(b, "honest"))
	res := b.get(strings.Replace(callback, "/callback/honest", "/callback/evil", 1))
	if res.StatusCode != http.StatusBadRequest {
		t.Errorf("response at the callback of the other provider: %s, want 400", res.Status)
	}
	for name, iss := range map[string]url.Values{
		"another issuer": {"iss": {evil.URL}}, "no issuer": {}, "two issuers": {"iss": {honest.URL, evil.URL}},
		"issuer with a slash": {"iss": {honest.URL + "/"}},
	} {
		b := w.browser()
		address := pick(b, "honest")
		honest.set(func() { honest.answer = iss; honest.answer["code"] = []string{"stolen"} })
		answer := b.redirectQuery(b.get(honest.visit(b, address)))
		if answer.Get("error") != "server_error" || answer.Get("iss") != w.issuer || answer.Get("code") != "" {
			t.Errorf("%s: authorization response is %v, want server_error", name, answer)
		}
	}
	b = w.browser()
	address := pick(b, "honest")
	honest.set(func() { honest.answer = url.Values{"error": {"access_denied"}, "iss": {evil.URL}} })
	if answer := b.redirectQuery(b.get(honest.visit(b, address))); answer.Get("error") != "server_error" {
		t.Errorf("error of another issuer: authorization response is %v, want server_error", answer)
	}
	if n := honest.count("/token") + evil.count("/token"); n != 0 {
		t.Errorf("%d codes were sent to a token endpoint, want 0", n)
	}
}
