package authserver_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

func providerLogin(t *testing.T, providers ...authserver.Provider) authserver.ProviderLogin {
	t.Helper()
	login, err := authserver.NewProviderLogin(&authserver.ProviderOptions{Providers: providers})
	if err != nil {
		t.Fatal(err)
	}
	return login
}

func withProviders(t *testing.T, providers ...authserver.Provider) func(*authserver.Options) {
	return func(o *authserver.Options) { o.Login = providerLogin(t, providers...) }
}

// toProvider continues up to the redirect to the provider.
func (b *browser) toProvider() (address string) {
	b.w.t.Helper()
	_, form := b.consentPage(authorizeQuery())
	res := b.decide(form, "allow")
	res = b.get(res.Header.Get("Location"))
	if res.StatusCode != http.StatusSeeOther {
		b.w.t.Fatalf("login: %s %s", res.Status, res.body)
	}
	return res.Header.Get("Location")
}

// viaProvider logs in at a provider and returns the authorization response.
func (b *browser) viaProvider(p *idp) url.Values {
	b.w.t.Helper()
	return b.redirectQuery(b.get(p.visit(b, b.toProvider())))
}

func (w *env) loginVia(p *idp) tokens {
	w.t.Helper()
	answer := w.browser().viaProvider(p)
	if answer.Get("code") == "" {
		w.t.Fatalf("no code: %v", answer)
	}
	return w.tokensOf(w.post("/token", exchangeForm(answer.Get("code"))))
}

func TestAUTHB11_ProviderLogin(t *testing.T) {
	p := newIDP(t)
	w := newEnv(t, withProviders(t, p.provider("idp")))
	b := w.browser()
	address := b.toProvider()
	u, _ := url.Parse(address)
	q := u.Query()
	for name, wanted := range map[string]string{
		"client_id": idpClient, "response_type": "code", "scope": "openid profile email", "code_challenge_method": "S256",
		"redirect_uri": w.issuer + "/login/callback/idp",
	} {
		if q.Get(name) != wanted {
			t.Errorf("%s is %q, want %q", name, q.Get(name), wanted)
		}
	}
	if len(q.Get("nonce")) < 40 || len(q.Get("code_challenge")) != 43 || len(q.Get("state")) < 60 {
		t.Errorf("nonce, challenge or state is missing or short: %v", q)
	}
	answer := b.redirectQuery(b.get(p.visit(b, address)))
	if answer.Get("state") != "the state" || answer.Get("iss") != w.issuer {
		t.Errorf("answer is %v", answer)
	}
	res := w.post("/token", exchangeForm(answer.Get("code")))
	if strings.Contains(res.body, "upstream-") {
		t.Errorf("the client got a token of the third party: %s", res.body)
	}
	got := w.tokensOf(res)
	token, err := w.verify(got.Access)
	if err != nil {
		t.Fatal(err)
	}
	if token.Subject != "idp|user-1" || token.Claims["email"] != "one@example.com" ||
		token.Claims["email_verified"] != true ||
		token.Claims["name"] != "User One" || token.Claims["groups"] != nil {
		t.Errorf("token is %+v", token)
	}
	if text := fmt.Sprintf("%+v", token); strings.Contains(text, "upstream-") {
		t.Errorf("the resource server sees a token of the third party: %s", text)
	}
	w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
}

// R-7.5-6: what an attacker has consented to in his own browser is of no use in another one.
func TestConfusedDeputy_CapturedCallbackURL(t *testing.T) {
	p := newIDP(t)
	w := newEnv(t, withProviders(t, p.provider("idp")))
	attacker, victim := w.browser(), w.browser()
	address := attacker.toProvider()
	callback := p.visit(victim, address) // the victim is logged in there
	res := victim.get(callback)
	if res.StatusCode != http.StatusBadRequest || res.Header.Get("Location") != "" {
		t.Errorf("another browser's callback: %s %s", res.Status, res.Header.Get("Location"))
	}
	if !strings.Contains(res.body, "belongs to another browser") {
		t.Errorf("the page does not say what is wrong: %s", res.body)
	}
	// Neither does a cookie of that name that was planted, nor one of the victim's own interaction.
	at, _ := url.Parse(w.issuer)
	for _, c := range attacker.client.Jar.Cookies(at) {
		victim.client.Jar.SetCookies(at, []*http.Cookie{{Name: c.Name, Value: "planted"}})
	}
	if res := victim.get(callback); res.StatusCode != http.StatusBadRequest {
		t.Errorf("another browser's callback, with a planted cookie: %s", res.Status)
	}
	victim.toProvider()
	if res := victim.get(callback); res.StatusCode != http.StatusBadRequest {
		t.Errorf("another browser's callback, with an interaction of its own: %s", res.Status)
	}
	if n := p.count("/token"); n != 0 {
		t.Errorf("%d codes were redeemed, want none", n)
	}
}

// SEC-05, R-7.5-5: before consent there is no redirect to the provider, and no state is accepted.
func TestSEC05_NoStateBeforeConsent(t *testing.T) {
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
			t.Errorf("%s before consent: %s %s", path, res.Status, res.Header.Get("Location"))
		}
	}
	form.Set("provider", "idp")
	if res := b.submit("/login", form); res.StatusCode != http.StatusBadRequest {
		t.Errorf("the form of the login before consent: %s", res.Status)
	}
	if len(p.calls) != 0 {
		t.Errorf("the third party was called: %v", p.calls)
	}
	// After consent a state that was planted before it is still none.
	res := b.decide(form, "allow")
	if res.StatusCode != http.StatusSeeOther {
		t.Fatal(res.Status)
	}
	if res := b.get("/login/callback/idp?code=x&state=" + id + ".planted"); res.StatusCode != http.StatusBadRequest {
		t.Errorf("a planted state after consent: %s", res.Status)
	}
	if n := p.count("/token"); n != 0 {
		t.Errorf("%d codes were redeemed, want none", n)
	}
}

func TestCallbackCanBeUsedOnce(t *testing.T) {
	p := newIDP(t)
	w := newEnv(t, withProviders(t, p.provider("idp")))
	b := w.browser()
	callback := p.visit(b, b.toProvider())
	if got := b.redirectQuery(b.get(callback)); got.Get("code") == "" {
		t.Fatalf("no code: %v", got)
	}
	if res := b.get(callback); res.StatusCode != http.StatusBadRequest || res.Header.Get("Location") != "" {
		t.Errorf("replayed: %s %s", res.Status, res.Header.Get("Location"))
	}
	// A wrong state uses up the right one.
	b = w.browser()
	callback = p.visit(b, b.toProvider())
	u, _ := url.Parse(callback)
	q := u.Query()
	q.Set("state", q.Get("state")+"x")
	for _, address := range []string{u.Scheme + "://" + u.Host + u.Path + "?" + q.Encode(), callback} {
		if res := b.get(address); res.StatusCode != http.StatusBadRequest || res.Header.Get("Location") != "" {
			t.Errorf("with a changed state, or after it: %s %s", res.Status, res.Header.Get("Location"))
		}
	}
	if n := p.count("/token"); n != 1 {
		t.Errorf("%d codes were redeemed, want 1", n)
	}
}

func TestMixUpOfTwoProviders(t *testing.T) {
	honest, evil := newIDP(t), newIDP(t)
	w := newEnv(t, withProviders(t, honest.provider("honest"), evil.provider("evil")))
	pick := func(b *browser, id string) string {
		_, form := b.consentPage(authorizeQuery())
		res := b.get(b.decide(form, "allow").Header.Get("Location"))
		if !strings.Contains(res.body, "Provider honest") || !strings.Contains(res.body, "Provider evil") {
			t.Fatalf("the user cannot pick: %s", res.body)
		}
		form.Set("provider", id)
		return b.submit("/login", form).Header.Get("Location")
	}
	b := w.browser()
	callback := honest.visit(b, pick(b, "honest"))
	if res := b.get(strings.Replace(callback, "/callback/honest", "/callback/evil",
		1)); res.StatusCode != http.StatusBadRequest {
		t.Errorf("the honest provider's answer at the other one's address: %s", res.Status)
	}
	for name, iss := range map[string]url.Values{
		"another issuer": {"iss": {evil.URL}}, "no issuer": {}, "two issuers": {"iss": {honest.URL, evil.URL}},
		"nearly": {"iss": {honest.URL + "/"}},
	} {
		b := w.browser()
		address := pick(b, "honest")
		honest.set(func() { honest.answer = iss; honest.answer["code"] = []string{"stolen"} })
		answer := b.redirectQuery(b.get(honest.visit(b, address)))
		if answer.Get("error") != "server_error" || answer.Get("iss") != w.issuer || answer.Get("code") != "" {
			t.Errorf("%s: %v", name, answer)
		}
	}
	// REG-25: what a foreign answer says is not acted on.
	b = w.browser()
	address := pick(b, "honest")
	honest.set(func() { honest.answer = url.Values{"error": {"access_denied"}, "iss": {evil.URL}} })
	if answer := b.redirectQuery(b.get(honest.visit(b, address))); answer.Get("error") != "server_error" {
		t.Errorf("a foreign error was taken: %v", answer)
	}
	if n := honest.count("/token") + evil.count("/token"); n != 0 {
		t.Errorf("%d codes went to a token endpoint, want none", n)
	}
}

func TestIDTokenMustBeForThisLogin(t *testing.T) {
	p := newIDP(t)
	w := newEnv(t, withProviders(t, p.provider("idp")))
	other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	claim := func(name string, value any) func() {
		return func() {
			p.claims = func(c map[string]any) {
				if c[name] = value; value == nil {
					delete(c, name)
				}
			}
		}
	}
	for name, lie := range map[string]func(){
		"the nonce of another login":  claim("nonce", "other"),
		"no nonce":                    claim("nonce", nil),
		"another audience":            claim("aud", "another client"),
		"two audiences, no azp":       claim("aud", []string{idpClient, "another client"}),
		"the azp of another":          claim("azp", "another client"),
		"another issuer":              claim("iss", "https://evil.example"),
		"expired":                     claim("exp", time.Now().Add(-time.Minute).Unix()),
		"no sub":                      claim("sub", nil),
		"made for another token":      claim("at_hash", base64.RawURLEncoding.EncodeToString(make([]byte, 16))),
		"a key that it does not have": func() { p.sign = p.signer(other, jose.ES256) },
		"HMAC with the public key": func() {
			key := elliptic.Marshal(elliptic.P256(), p.key.X, p.key.Y) //nolint:staticcheck // as an attacker would
			p.sign = p.signer(key, jose.HS256)
		},
		"HMAC with the secret": func() { p.sign = p.signer([]byte(strings.Repeat(idpSecret, 3)), jose.HS256) },
		"no signature": func() {
			p.sign = func(payload []byte) string {
				return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(payload) + "."
			}
		},
		"no ID token": func() { p.sign = func([]byte) string { return "" } },
	} {
		p.set(func() { p.claims, p.sign = nil, nil; lie() })
		revoked := p.count("/revoke")
		answer := w.browser().viaProvider(p)
		if answer.Get("error") != "server_error" || answer.Get("code") != "" || answer.Get("iss") != w.issuer {
			t.Errorf("%s: %v", name, answer)
		}
		if p.count("/revoke") != revoked+1 {
			t.Errorf("%s: what the third party gave was left there", name)
		}
	}
	p.set(func() { p.claims, p.sign = nil, nil })
	w.loginVia(p)
	p.set(claim("azp", idpClient))
	w.loginVia(p)
}

func TestProviderErrorsAreReportedToTheClient(t *testing.T) {
	p := newIDP(t)
	up := p.provider("idp")
	up.Subject = func(_ context.Context, u *authserver.ProviderUser) (authserver.Subject, error) {
		if u.Claims["email"] != "one@example.com" || u.ID != "user-1" || u.AccessToken == "" || u.Client == nil {
			t.Errorf("user is %+v", u)
		}
		return authserver.Subject{}, fmt.Errorf("not on the list: %w", authserver.ErrUserRefused)
	}
	w := newEnv(t, withProviders(t, up))
	if answer := w.browser().viaProvider(p); answer.Get("error") != "access_denied" {
		t.Errorf("a user that we refuse: %v", answer)
	}
	if p.count("/revoke") != 1 {
		t.Error("what the third party gave a user that we refuse was left there")
	}
	for said, wanted := range map[string]string{
		"access_denied": "access_denied", "login_required": "access_denied",
		"temporarily_unavailable": "temporarily_unavailable",
		"server_error":            "temporarily_unavailable", "\"><script>": "access_denied",
	} {
		p.set(func() { p.answer = url.Values{"error": {said}, "error_description": {"their words"}, "iss": {p.URL}} })
		answer := w.browser().viaProvider(p)
		if answer.Get("error") != wanted || answer.Get("iss") != w.issuer || answer.Get("state") != "the state" {
			t.Errorf("%s: %v", said, answer)
		}
		if strings.Contains(answer.Encode(), "their") {
			t.Errorf("%s: the third party speaks in our name: %v", said, answer)
		}
	}
	p.set(func() { p.down = true })
	fresh := newEnv(t, withProviders(t, p.provider("idp")))
	b := fresh.browser()
	_, form := b.consentPage(authorizeQuery())
	res := b.get(b.decide(form, "allow").Header.Get("Location"))
	if answer := b.redirectQuery(res); answer.Get("error") != "temporarily_unavailable" {
		t.Errorf("the third party is down: %v", answer)
	}
}

// AUTHB-13: with each method that providers have to report it.
func TestAUTHB13_RevocationAtTheProviderEndsTheGrant(t *testing.T) {
	for name, way := range map[string]func(p *idp){
		"userinfo":      func(*idp) {},
		"introspection": func(p *idp) { p.metadata = map[string]any{"introspection_endpoint": p.URL + "/introspect"} },
		"another user":  func(p *idp) { p.metadata = map[string]any{"introspection_endpoint": p.URL + "/nowhere"} },
	} {
		t.Run(name, func(t *testing.T) {
			p := newIDP(t)
			way(p)
			synctest.Test(t, func(t *testing.T) {
				w := newInProcessEnv(t, withProviders(t, p.provider("idp")))
				got := w.loginVia(p)
				w.wantValid(got.Access, "after the login")
				checks := p.count("/userinfo") + p.count("/introspect")
				p.set(func() {
					if name == "another user" {
						p.user = "user-2"
						return
					}
					clear(p.access)
					clear(p.refresh)
				})
				time.Sleep(time.Minute - 1)
				w.wantValid(got.Access, "within the minute")
				if n := p.count("/userinfo") + p.count("/introspect"); n != checks {
					t.Errorf("the third party was asked %d times within the minute", n-checks)
				}
				time.Sleep(1)
				w.wantInvalid(got.Access, "a minute after the third party revoked")
				p.set(func() { p.down = true })
				w.wantInvalid(got.Access, "for ever")
				w.post("/token", refreshForm(got.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
			})
		})
	}
}

// AUTHB-14: renewed by one of many, and kept.
func TestAUTHB14_DueTokensAreRenewedOnce(t *testing.T) {
	p := newIDP(t)
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, withProviders(t, p.provider("idp")))
		got := w.loginVia(p)
		for round := range 3 {
			time.Sleep(time.Hour)
			got = w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() { w.wantValid(got.Access, "while it is renewed") })
			}
			all.Wait()
			if n := p.count("/token"); n != round+2 {
				t.Errorf("after %d hours the token endpoint was called %d times, want %d", round+1, n, round+2)
			}
		}
		// Revoked early by a provider that issues another one.
		p.set(func() { clear(p.access) })
		time.Sleep(time.Minute)
		w.wantValid(got.Access, "an access token that ended early")
	})
}

func TestFailedProviderRefreshEndsTheGrant(t *testing.T) {
	for name, end := range map[string]func(p *idp){
		"invalid_grant": func(p *idp) { clear(p.refresh) },
		"another user":  func(p *idp) { p.user = "user-2" },
	} {
		t.Run(name, func(t *testing.T) {
			p := newIDP(t)
			synctest.Test(t, func(t *testing.T) {
				w := newInProcessEnv(t, withProviders(t, p.provider("idp")))
				got := w.loginVia(p)
				p.set(func() { end(p) })
				time.Sleep(time.Hour)
				w.post("/token", refreshForm(got.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
			})
		})
	}
	t.Run("no refresh token", func(t *testing.T) {
		p := newIDP(t)
		p.noRefresh, p.expires = true, 600
		synctest.Test(t, func(t *testing.T) {
			w := newInProcessEnv(t, withProviders(t, p.provider("idp")))
			got := w.loginVia(p)
			time.Sleep(10*time.Minute - time.Second)
			w.wantValid(got.Access, "in its last second")
			time.Sleep(time.Minute)
			w.wantInvalid(got.Access, "after the third party's token ended")
		})
	})
}

// An outage is no revocation: it ends nothing, and after some minutes nothing works until it is
// over.
func TestProviderOutage(t *testing.T) {
	p := newIDP(t)
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, withProviders(t, p.provider("idp")))
		got := w.loginVia(p)
		w.wantValid(got.Access, "at first")
		p.set(func() { p.down = true })
		time.Sleep(2 * time.Minute)
		w.wantValid(got.Access, "two minutes into the outage")
		calls := p.count("/userinfo")
		w.wantValid(got.Access, "two minutes into the outage")
		if p.count("/userinfo") != calls {
			t.Error("a third party that is down is asked at every call")
		}
		time.Sleep(3 * time.Minute)
		if _, err := w.verify(got.Access); err == nil || isInvalid(err) {
			t.Errorf("five minutes into the outage: %v, want an error that is not the token's fault", err)
		}
		if res := w.post("/token", refreshForm(got.Refresh)); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("refresh during an outage: %s %s", res.Status, res.body)
		}
		time.Sleep(2 * time.Hour)
		p.set(func() { p.down = false })
		got = w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
		w.wantValid(got.Access, "when it is over")
	})
}

// R-7.5-7: together, in both directions.
func TestRevocationRevokesTheProviderGrant(t *testing.T) {
	p := newIDP(t)
	w := newEnv(t, withProviders(t, p.provider("idp")))
	one, two := w.loginVia(p), w.loginVia(p)
	if res := w.post("/revoke", url.Values{"token": {one.Refresh},
		"client_id": {publicID}}); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	w.wantInvalid(one.Access, "after its revocation")
	w.wantValid(two.Access, "of another device of the same user")
	if p.count("/revoke") != 1 || len(p.refresh) != 1 || p.forms["/revoke"].Get("token_type_hint") != "refresh_token" {
		t.Errorf("%d refresh tokens are left at the third party, want 1", len(p.refresh))
	}
	// It can be revoked here while it cannot there.
	p.set(func() { p.down = true })
	w.post("/revoke", url.Values{"token": {two.Refresh}, "client_id": {publicID}})
	w.wantInvalid(two.Access, "after its revocation during an outage")
}

func TestProviderTokenIsForItsPrincipalAndResource(t *testing.T) {
	p := newIDP(t)
	const other = "https://other.example/mcp"
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, func(o *authserver.Options) {
			o.Resources = append(o.Resources, authserver.Resource{URL: other})
			withProviders(t, p.provider("idp"))(o)
		})
		got := w.loginVia(p)
		token, err := w.verify(got.Access)
		if err != nil {
			t.Fatal(err)
		}
		principal := func(change func(*mcp.Principal)) *mcp.Principal {
			pr := &mcp.Principal{Issuer: token.Issuer, Subject: token.Subject, ClientID: token.ClientID,
				Scopes: token.Scopes,
				Claims: token.Claims}
			if change != nil {
				change(pr)
			}
			return pr
		}
		ut, err := w.server.ProviderToken(t.Context(), resource, principal(nil))
		if err != nil || !p.access[ut.Token] || ut.Provider != "idp" || ut.Type != "Bearer" {
			t.Fatalf("ProviderToken returned %v, %v", ut, err)
		}
		if text := fmt.Sprintf("%v %+v %#v", ut, *ut, *ut); strings.Contains(text, ut.Token) {
			t.Errorf("printing it shows it: %s", text)
		}
		for name, bad := range map[string]struct {
			resource string
			p        *mcp.Principal
		}{
			"another resource": {other, principal(nil)},
			"no resource":      {"https://unknown.example", principal(nil)},
			"nobody":           {resource, nil},
			"another subject":  {resource, principal(func(p *mcp.Principal) { p.Subject = "idp|user-2" })},
			"another client":   {resource, principal(func(p *mcp.Principal) { p.ClientID = secretID })},
			"another issuer":   {resource, principal(func(p *mcp.Principal) { p.Issuer = "https://evil.example" })},
			"no grant":         {resource, principal(func(p *mcp.Principal) { p.Claims = nil })},
		} {
			if ut, err := w.server.ProviderToken(t.Context(), bad.resource, bad.p); !errors.Is(err,
				authserver.ErrNoProviderToken) || ut != nil {
				t.Errorf("%s: %v, %v", name, ut, err)
			}
		}
		time.Sleep(59*time.Minute + 30*time.Second)
		second, err := w.server.ProviderToken(t.Context(), resource, principal(nil))
		if err != nil || second.Token == ut.Token || time.Until(second.Expires) < time.Minute {
			t.Errorf("in the last minute: %v, %v; want a new one", second, err)
		}
		p.set(func() { clear(p.access); clear(p.refresh) })
		time.Sleep(time.Minute)
		if ut, err := w.server.ProviderToken(t.Context(), resource, principal(nil)); !errors.Is(err,
			authserver.ErrProviderGrantEnded) {
			t.Errorf("revoked there: %v, %v", ut, err)
		}
	})
}

// A recordingStore sees all that comes to a store.
type recordingStore struct {
	authserver.Store
	mu     sync.Mutex
	values []string
}

func (s *recordingStore) record(value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = append(s.values, string(value))
}

func (s *recordingStore) Put(ctx context.Context, kind, key string, value []byte, expires time.Time) error {
	s.record(value)
	return s.Store.Put(ctx, kind, key, value, expires)
}

func (s *recordingStore) Update(ctx context.Context, kind, key string, change func([]byte) ([]byte, time.Time, error)) error {
	return s.Store.Update(ctx, kind, key, func(old []byte) ([]byte, time.Time, error) {
		value, expires, err := change(old)
		s.record(value)
		return value, expires, err
	})
}

func TestProviderTokensAreSealed(t *testing.T) {
	p := newIDP(t)
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	recorder := &recordingStore{Store: authserver.NewMemoryStore()}
	first, second := authserver.NewSealKey(), authserver.NewSealKey()
	second.ID = "second"
	synctest.Test(t, func(t *testing.T) {
		start := func(keys ...authserver.SealKey) *env {
			return newInProcessEnv(t, func(o *authserver.Options) {
				withProviders(t, p.provider("idp"))(o)
				o.Store, o.SealKeys = recorder, keys
				o.SigningKeys = append(o.SigningKeys, signer)
			})
		}
		w := start(first)
		b := w.browser()
		address := b.toProvider()
		nonce := func() string { u, _ := url.Parse(address); return u.Query().Get("nonce") }()
		answer := b.redirectQuery(b.get(p.visit(b, address)))
		got := w.tokensOf(w.post("/token", exchangeForm(answer.Get("code"))))
		for _, value := range recorder.values {
			for _, secret := range []string{"upstream-", nonce, answer.Get("code"), got.Refresh} {
				if strings.Contains(value, secret) {
					t.Errorf("the store was given %q with %q in it", value, secret)
				}
			}
		}
		if !slices.ContainsFunc(recorder.values, func(v string) bool { return strings.Contains(v, first.ID) }) {
			t.Error("the recorder saw nothing that the first key sealed")
		}
		// The old key still opens, and used grants are sealed with the new key.
		w = start(second, first)
		w.wantValid(got.Access, "with a new key in front")
		w = start(second)
		w.wantValid(got.Access, "when the old key is gone")
		w = start(authserver.NewSealKey())
		w.wantUnavailable(got.Access, "when its key is gone")
	})
}

func TestProviderWithoutOpenIDConnect(t *testing.T) {
	p := newIDP(t)
	up := authserver.Provider{
		ID: "hub", ClientID: idpClient, ClientSecret: idpSecret, Scopes: []string{"read:user"},
		Endpoints: authserver.ProviderEndpoints{Authorization: p.URL + "/authorize", Token: p.URL + "/token",
			Revocation: p.URL + "/revoke"},
		Subject: func(ctx context.Context, u *authserver.ProviderUser) (authserver.Subject, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/userinfo", nil)
			if err != nil {
				return authserver.Subject{}, err
			}
			req.Header.Set("Authorization", "Bearer "+u.AccessToken)
			res, err := u.Client.Do(req)
			if err != nil {
				return authserver.Subject{}, err
			}
			defer res.Body.Close()
			if res.StatusCode == http.StatusUnauthorized {
				return authserver.Subject{}, authserver.ErrProviderGrantEnded
			}
			return authserver.Subject{ID: "hub|1"}, nil
		},
	}
	p.expires, p.noRefresh = 0, true
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, withProviders(t, up))
		got := w.loginVia(p)
		token, err := w.verify(got.Access)
		if err != nil || token.Subject != "hub|1" {
			t.Fatalf("token %+v, %v", token, err)
		}
		time.Sleep(5 * time.Minute)
		w.wantValid(got.Access, "while the third party takes its token")
		p.set(func() { clear(p.access) })
		time.Sleep(time.Minute)
		w.wantInvalid(got.Access, "when it does not any more")
	})
}

func TestConsentPageNamesTheProvider(t *testing.T) {
	one, two := newIDP(t), newIDP(t)
	odd := one.provider("one")
	odd.Name = "A & B"
	for want, change := range map[string]func(*authserver.Options){
		"Next you log in. You can":                           withPasswords(t),
		"Next you log in with <bdi>A &amp; B</bdi>. You can": withProviders(t, odd),
		"Next you log in. You can still cancel there.</p>\n<div": withProviders(t, one.provider("one"),
			two.provider("two")),
	} {
		if page, _ := newEnv(t, change).browser().consentPage(authorizeQuery()); !strings.Contains(page.body, want) {
			t.Errorf("the page lacks %q: %s", want, page.body)
		}
	}
}

func TestProviderChoiceCanBeCanceled(t *testing.T) {
	one, two := newIDP(t), newIDP(t)
	w := newEnv(t, withProviders(t, one.provider("one"), two.provider("two")))
	b := w.browser()
	_, form := b.consentPage(authorizeQuery())
	b.get(b.decide(form, "allow").Header.Get("Location"))
	form.Set("provider", "three")
	if res := b.submit("/login", form); res.StatusCode != http.StatusOK || !strings.Contains(res.body, "Provider one") {
		t.Errorf("a third party that is none: %s %s", res.Status, res.body)
	}
	form.Set("decision", "deny")
	if answer := b.redirectQuery(b.submit("/login", form)); answer.Get("error") != "access_denied" {
		t.Errorf("cancelled: %v", answer)
	}
}

func TestInvalidProviders(t *testing.T) {
	good := authserver.Provider{ID: "idp", Issuer: "https://idp.example", ClientID: "us"}
	for wanted, change := range map[string]func(*authserver.Provider){
		"invalid ID":             func(u *authserver.Provider) { u.ID = "Id/p" },
		"ClientID is required":   func(u *authserver.Provider) { u.ClientID = "" },
		"either Issuer":          func(u *authserver.Provider) { u.Issuer = "" },
		"Subject is required":    func(u *authserver.Provider) { u.Issuer, u.Endpoints = "", endpoints },
		"must contain openid":    func(u *authserver.Provider) { u.Scopes = []string{"email"} },
		"must not contain state": func(u *authserver.Provider) { u.Parameters = map[string]string{"state": "x"} },
		"must not be negative":   func(u *authserver.Provider) { u.CheckEvery = -1 },
		"must be https": func(u *authserver.Provider) {
			u.Issuer, u.Endpoints, u.Subject = "", plainEndpoints,
				refuseUser
		},
	} {
		u := good
		change(&u)
		_, err := authserver.NewProviderLogin(&authserver.ProviderOptions{Providers: []authserver.Provider{u}})
		if err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("error is %v, want one with %q", err, wanted)
		}
	}
	if _, err := authserver.NewProviderLogin(&authserver.ProviderOptions{Providers: []authserver.Provider{good,
		good}}); err == nil {
		t.Error("two of one ID are taken")
	}
	if _, err := authserver.NewProviderLogin(&authserver.ProviderOptions{}); err == nil {
		t.Error("none is taken")
	}
	login := providerLogin(t, good)
	o := options("https://as.example")
	o.Login = login
	newServer(t, o)
	if _, err := authserver.New(&o); err == nil {
		t.Error("one Login serves two servers")
	}
}

var (
	endpoints = authserver.ProviderEndpoints{Authorization: "https://hub.example/a",
		Token: "https://hub.example/t"}
	plainEndpoints = authserver.ProviderEndpoints{Authorization: "http://hub.example/a", Token: "https://hub.example/t"}
)

func refuseUser(context.Context, *authserver.ProviderUser) (authserver.Subject, error) {
	return authserver.Subject{}, authserver.ErrUserRefused
}

// The operator chooses the issuer, and the provider its endpoints, which may not be less public
// than the issuer.
func TestProviderEndpointsUseTheFetcher(t *testing.T) {
	p := newIDP(t)
	for _, bad := range []string{"http://169.254.169.254/token", "http://10.0.0.1/token", "file:///etc/passwd",
		"https://[fe80::1]/token"} {
		p.set(func() { p.metadata = map[string]any{"token_endpoint": bad} })
		w := newEnv(t, func(o *authserver.Options) {
			login, err := authserver.NewProviderLogin(&authserver.ProviderOptions{
				Providers: []authserver.Provider{p.provider("idp")},
				Fetcher:   oauth.NewFetcher(&oauth.FetcherOptions{Timeout: 5 * time.Second}),
			})
			if err != nil {
				t.Fatal(err)
			}
			o.Login = login
		})
		begun := time.Now()
		answer := w.browser().viaProvider(p)
		if answer.Get("code") != "" || answer.Get("error") == "" || time.Since(begun) > 4*time.Second {
			t.Errorf("%s: %v after %v", bad, answer, time.Since(begun))
		}
	}
}
