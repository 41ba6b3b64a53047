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

// toProvider consents and returns the URL of the provider that the browser is redirected to.
func (b *browser) toProvider(change ...string) (address string) {
	b.w.t.Helper()
	_, form := b.consentPage(authorizeQuery(change...))
	res := b.decide(form, "allow")
	res = b.get(res.Header.Get("Location"))
	if res.StatusCode != http.StatusSeeOther {
		b.w.t.Fatalf("login: %s %s, want a redirect to the provider", res.Status, res.body)
	}
	return res.Header.Get("Location")
}

// viaProvider logs in at a provider and returns the parameters of the authorization response.
func (b *browser) viaProvider(p *idp) url.Values {
	b.w.t.Helper()
	return b.redirectQuery(b.get(p.visit(b, b.toProvider())))
}

// loginVia logs in at a provider and returns the tokens of the client.
func (w *env) loginVia(p *idp) tokens {
	w.t.Helper()
	answer := w.browser().viaProvider(p)
	if answer.Get("code") == "" {
		w.t.Fatalf("authorization response is %v, want a code", answer)
	}
	return w.tokensOf(w.post("/token", exchangeForm(answer.Get("code"))))
}

// Requirement: AUTHB-11
func TestUserLogsInAtAProvider(t *testing.T) {
	p := newIDP(t)
	w := newEnv(t, withProviders(t, p.provider("idp")))
	b := w.browser()
	address := b.toProvider()
	u, _ := url.Parse(address)
	q := u.Query()
	for name, wanted := range map[string]string{
		"client_id": idpClient, "response_type": "code", "scope": "openid profile email",
		"code_challenge_method": "S256", "redirect_uri": w.issuer + "/login/callback/idp",
	} {
		if q.Get(name) != wanted {
			t.Errorf("%s is %q, want %q", name, q.Get(name), wanted)
		}
	}
	const random = 26 // characters of base32: 130 bits
	if len(q.Get("nonce")) < random || len(q.Get("code_challenge")) != 43 || len(q.Get("state")) < random {
		t.Errorf("nonce, code_challenge or state is missing or too short: %v", q)
	}
	answer := b.redirectQuery(b.get(p.visit(b, address)))
	if answer.Get("state") != "the state" || answer.Get("iss") != w.issuer {
		t.Errorf("authorization response is %v, want the state and the issuer", answer)
	}
	res := w.post("/token", exchangeForm(answer.Get("code")))
	if strings.Contains(res.body, "upstream-") {
		t.Errorf("the token response contains a token of the provider: %s", res.body)
	}
	got := w.tokensOf(res)
	token, err := w.verify(got.Access)
	if err != nil {
		t.Fatal(err)
	}
	if token.Subject != "idp|user-1" || token.Claims["email"] != "one@example.com" ||
		token.Claims["email_verified"] != true ||
		token.Claims["name"] != "User One" || token.Claims["groups"] != nil {
		t.Errorf("token is %+v, want idp|user-1 with the name and the email address of the provider", token)
	}
	if text := fmt.Sprintf("%+v", token); strings.Contains(text, "upstream-") {
		t.Errorf("the claims contain a token of the provider: %s", text)
	}
	w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
}

func TestInvalidIDTokensAreRefused(t *testing.T) {
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
	for name, forge := range map[string]func(){
		"the nonce of another login": claim("nonce", "other"),
		"no nonce":                   claim("nonce", nil),
		"another audience":           claim("aud", "another client"),
		"two audiences, no azp":      claim("aud", []string{idpClient, "another client"}),
		"the azp of another client":  claim("azp", "another client"),
		"another issuer":             claim("iss", "https://evil.example"),
		"expired":                    claim("exp", time.Now().Add(-time.Minute).Unix()),
		"no sub":                     claim("sub", nil),
		"another at_hash":            claim("at_hash", base64.RawURLEncoding.EncodeToString(make([]byte, 16))),
		"another key":                func() { p.sign = p.signer(other, jose.ES256) },
		"HMAC with the public key": func() {
			key := elliptic.Marshal(elliptic.P256(), p.key.X, p.key.Y) //nolint:staticcheck // as an attacker does
			p.sign = p.signer(key, jose.HS256)
		},
		"HMAC with the secret": func() { p.sign = p.signer([]byte(strings.Repeat(idpSecret, 3)), jose.HS256) },
		"no signature": func() {
			p.sign = func(payload []byte) string {
				header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
				return header + "." + base64.RawURLEncoding.EncodeToString(payload) + "."
			}
		},
		"no ID token": func() { p.sign = func([]byte) string { return "" } },
	} {
		p.set(func() { p.claims, p.sign = nil, nil; forge() })
		revoked := p.count("/revoke")
		answer := w.browser().viaProvider(p)
		if answer.Get("error") != "server_error" || answer.Get("code") != "" || answer.Get("iss") != w.issuer {
			t.Errorf("%s: authorization response is %v, want server_error", name, answer)
		}
		if n := p.count("/revoke") - revoked; n != 1 {
			t.Errorf("%s: %d tokens of the provider were revoked, want 1", name, n)
		}
	}
	p.set(func() { p.claims, p.sign = nil, nil })
	w.loginVia(p)
	p.set(claim("azp", idpClient))
	w.loginVia(p)
}

// Requirement: AUTHB-15
func TestProviderErrorsAreReportedToTheClient(t *testing.T) {
	p := newIDP(t)
	up := p.provider("idp")
	up.Subject = func(_ context.Context, u *authserver.ProviderUser) (authserver.Subject, error) {
		if u.Claims["email"] != "one@example.com" || u.ID != "user-1" || u.AccessToken == "" || u.Client == nil {
			t.Errorf("Subject was called with %+v, want user-1 with all claims, a token and a client", u)
		}
		return authserver.Subject{}, fmt.Errorf("not on the list: %w", authserver.ErrUserRefused)
	}
	w := newEnv(t, withProviders(t, up))
	if answer := w.browser().viaProvider(p); answer.Get("error") != "access_denied" {
		t.Errorf("user refused by Subject: %v, want access_denied", answer)
	}
	if n := p.count("/revoke"); n != 1 {
		t.Errorf("user refused by Subject: %d tokens of the provider were revoked, want 1", n)
	}
	for code, want := range map[string]string{
		"access_denied": "access_denied", "login_required": "access_denied",
		"temporarily_unavailable": "temporarily_unavailable",
		"server_error":            "temporarily_unavailable", "\"><script>": "access_denied",
	} {
		p.set(func() { p.answer = url.Values{"error": {code}, "error_description": {"their words"}, "iss": {p.URL}} })
		answer := w.browser().viaProvider(p)
		if answer.Get("error") != want || answer.Get("iss") != w.issuer || answer.Get("state") != "the state" {
			t.Errorf("provider error %s: authorization response is %v, want %s", code, answer, want)
		}
		if strings.Contains(answer.Encode(), "their") {
			t.Errorf("provider error %s: the response has the provider's description: %v", code, answer)
		}
	}
	p.set(func() { p.down = true })
	b := newEnv(t, withProviders(t, p.provider("idp"))).browser()
	_, form := b.consentPage(authorizeQuery())
	res := b.get(b.decide(form, "allow").Header.Get("Location"))
	if answer := b.redirectQuery(res); answer.Get("error") != "temporarily_unavailable" {
		t.Errorf("provider unavailable: %v, want temporarily_unavailable", answer)
	}
}

// The status of a provider's token comes from its userinfo or its introspection endpoint.
//
// Requirement: AUTHB-13
func TestRevocationAtTheProviderEndsTheGrant(t *testing.T) {
	for name, configure := range map[string]func(p *idp){
		"userinfo":      func(*idp) {},
		"introspection": func(p *idp) { p.metadata = map[string]any{"introspection_endpoint": p.URL + "/introspect"} },
		"another user":  func(p *idp) { p.metadata = map[string]any{"introspection_endpoint": p.URL + "/nowhere"} },
	} {
		t.Run(name, func(t *testing.T) {
			p := newIDP(t)
			configure(p)
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
				w.wantValid(got.Access, "within a minute of the last check")
				if n := p.count("/userinfo") + p.count("/introspect"); n != checks {
					t.Errorf("the provider got %d checks within the minute, want 0", n-checks)
				}
				time.Sleep(1)
				w.wantInvalid(got.Access, "a minute after the revocation at the provider")
				p.set(func() { p.down = true })
				w.wantInvalid(got.Access, "later, while the provider is unavailable")
				w.post("/token", refreshForm(got.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
			})
		})
	}
}

// Requirement: AUTHB-14
func TestExpiredProviderTokenIsRenewedOnce(t *testing.T) {
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
		// The provider ended its access token early, and issues another one.
		p.set(func() { clear(p.access) })
		time.Sleep(time.Minute)
		w.wantValid(got.Access, "after the provider's access token was revoked")
	})
}

// Requirement: AUTHB-14
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
			w.wantValid(got.Access, "in the last second of the provider's token")
			time.Sleep(time.Minute)
			w.wantInvalid(got.Access, "after the provider's token has expired")
		})
	})
}

// An outage is not a revocation. After a few minutes tokens cannot be verified until it is over.
//
// Requirement: AUTHB-15
func TestProviderOutageDoesNotEndTheGrant(t *testing.T) {
	p := newIDP(t)
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, withProviders(t, p.provider("idp")))
		got := w.loginVia(p)
		w.wantValid(got.Access, "before the outage")
		p.set(func() { p.down = true })
		time.Sleep(2 * time.Minute)
		w.wantValid(got.Access, "two minutes into the outage")
		calls := p.count("/userinfo")
		w.wantValid(got.Access, "two minutes into the outage")
		if n := p.count("/userinfo") - calls; n != 0 {
			t.Errorf("the second verification sent %d requests to the unavailable provider, want 0", n)
		}
		time.Sleep(3 * time.Minute)
		w.wantUnavailable(got.Access, "five minutes into the outage")
		if res := w.post("/token", refreshForm(got.Refresh)); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("refresh during the outage: %s %s, want 503", res.Status, res.body)
		}
		time.Sleep(2 * time.Hour)
		p.set(func() { p.down = false })
		got = w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
		w.wantValid(got.Access, "after the outage")
	})
}

// Requirement: AUTHB-15
func TestRevocationRevokesTheProviderGrant(t *testing.T) {
	p := newIDP(t)
	w := newEnv(t, withProviders(t, p.provider("idp")))
	one, two := w.loginVia(p), w.loginVia(p)
	res := w.post("/revoke", url.Values{"token": {one.Refresh}, "client_id": {publicID}})
	if res.StatusCode != http.StatusOK {
		t.Fatalf("revocation: %s, want 200", res.Status)
	}
	w.wantInvalid(one.Access, "after its revocation")
	w.wantValid(two.Access, "of another login of the same user")
	if p.count("/revoke") != 1 || len(p.refresh) != 1 || p.forms["/revoke"].Get("token_type_hint") != "refresh_token" {
		t.Errorf("the provider has %d refresh tokens after %d revocations, the last with %v; want 1 after 1",
			len(p.refresh), p.count("/revoke"), p.forms["/revoke"])
	}
	// A revocation succeeds although the provider is unavailable.
	p.set(func() { p.down = true })
	w.post("/revoke", url.Values{"token": {two.Refresh}, "client_id": {publicID}})
	w.wantInvalid(two.Access, "after its revocation during an outage")
}

// Requirement: AUTHB-12
func TestProviderTokenIsOnlyForItsPrincipalAndResource(t *testing.T) {
	p := newIDP(t)
	const other = "https://other.example/mcp"
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, func(o *authserver.Options) {
			o.Resources = append(o.Resources, authserver.Resource{URL: other})
			withProviders(t, p.provider("idp"))(o)
		})
		got := w.loginVia(p)
		own := w.principalOf(got.Access)
		principal := func(change func(*mcp.Principal)) *mcp.Principal {
			p := *own
			if change != nil {
				change(&p)
			}
			return &p
		}
		ut, err := w.server.ProviderToken(t.Context(), resource, principal(nil))
		if err != nil || !p.access[ut.Token] || ut.Provider != "idp" || ut.Type != "Bearer" {
			t.Fatalf("ProviderToken returned %v, %v, want the Bearer token of idp", ut, err)
		}
		if text := fmt.Sprintf("%v %+v %#v", ut, *ut, *ut); strings.Contains(text, ut.Token) {
			t.Errorf("the printed ProviderToken contains the token: %s", text)
		}
		for name, bad := range map[string]struct {
			resource string
			p        *mcp.Principal
		}{
			"another resource": {other, principal(nil)},
			"unknown resource": {"https://unknown.example", principal(nil)},
			"no principal":     {resource, nil},
			"another subject":  {resource, principal(func(p *mcp.Principal) { p.Subject = "idp|user-2" })},
			"another client":   {resource, principal(func(p *mcp.Principal) { p.ClientID = secretID })},
			"another issuer":   {resource, principal(func(p *mcp.Principal) { p.Issuer = "https://evil.example" })},
			"no grant":         {resource, principal(func(p *mcp.Principal) { p.Claims = nil })},
		} {
			ut, err := w.server.ProviderToken(t.Context(), bad.resource, bad.p)
			if !errors.Is(err, authserver.ErrNoProviderToken) || ut != nil {
				t.Errorf("%s: got %v, %v, want ErrNoProviderToken", name, ut, err)
			}
		}
		time.Sleep(59*time.Minute + 30*time.Second)
		second, err := w.server.ProviderToken(t.Context(), resource, principal(nil))
		if err != nil || second.Token == ut.Token || time.Until(second.Expires) < time.Minute {
			t.Errorf("in the last minute of the token: %v, %v, want a new token", second, err)
		}
		p.set(func() { clear(p.access); clear(p.refresh) })
		time.Sleep(time.Minute)
		ut, err = w.server.ProviderToken(t.Context(), resource, principal(nil))
		if !errors.Is(err, authserver.ErrProviderGrantEnded) {
			t.Errorf("after a revocation at the provider: %v, %v, want ErrProviderGrantEnded", ut, err)
		}
	})
}

// A recordingStore records all values that are written.
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

func (s *recordingStore) Update(ctx context.Context, kind, key string,
	change func([]byte) ([]byte, time.Time, error),
) error {
	return s.Store.Update(ctx, kind, key, func(old []byte) ([]byte, time.Time, error) {
		value, expires, err := change(old)
		s.record(value)
		return value, expires, err
	})
}

// Requirement: AUTH-13, AUTHB-12, AUTHB-15
func TestStoredTokensAreSealed(t *testing.T) {
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
					t.Errorf("the stored value %q contains the secret %q", value, secret)
				}
			}
		}
		if !slices.ContainsFunc(recorder.values, func(v string) bool { return strings.Contains(v, first.ID) }) {
			t.Error("no stored value was sealed with the first key")
		}
		// The use of a grant seals it with the new key.
		w = start(second, first)
		w.wantValid(got.Access, "with a new seal key first")
		w = start(second)
		w.wantValid(got.Access, "without the old seal key")
		w = start(authserver.NewSealKey())
		w.wantUnavailable(got.Access, "without its seal key")
	})
}

// Requirement: AUTHB-13
func TestSubjectChecksTokensWithoutOpenIDConnect(t *testing.T) {
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
			t.Fatalf("token is %+v, %v, want subject hub|1", token, err)
		}
		time.Sleep(5 * time.Minute)
		w.wantValid(got.Access, "while Subject returns the user")
		p.set(func() { clear(p.access) })
		time.Sleep(time.Minute)
		w.wantInvalid(got.Access, "a minute after Subject returns ErrProviderGrantEnded")
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
	odd := one.provider("one")
	odd.Name = `<b>'&`
	w := newEnv(t, withProviders(t, odd, two.provider("two")))
	b := w.browser()
	_, form := b.consentPage(authorizeQuery())
	b.get(b.decide(form, "allow").Header.Get("Location"))
	form.Set("provider", "three")
	if res := b.submit("/login", form); res.StatusCode != http.StatusOK ||
		!strings.Contains(res.body, `name="provider" value="one">&lt;b&gt;&#39;&amp;</button>`) {
		t.Errorf("unknown provider: %s %s, want 200 and the choice again", res.Status, res.body)
	}
	form.Set("decision", "deny")
	if answer := b.redirectQuery(b.submit("/login", form)); answer.Get("error") != "access_denied" {
		t.Errorf("canceled: %v, want access_denied", answer)
	}
}

func TestInvalidProvidersAreErrors(t *testing.T) {
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
			u.Issuer, u.Endpoints, u.Subject = "", plainEndpoints, refuseUser
		},
	} {
		u := good
		change(&u)
		_, err := authserver.NewProviderLogin(&authserver.ProviderOptions{Providers: []authserver.Provider{u}})
		if err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("error is %v, want it to contain %q", err, wanted)
		}
	}
	for name, providers := range map[string][]authserver.Provider{"two with one ID": {good, good}, "none": nil} {
		if _, err := authserver.NewProviderLogin(&authserver.ProviderOptions{Providers: providers}); err == nil {
			t.Errorf("providers: %s: NewProviderLogin returned no error", name)
		}
	}
	login := providerLogin(t, good)
	o := options("https://as.example")
	o.Login = login
	newServer(t, o)
	if _, err := authserver.New(&o); err == nil {
		t.Error("a second New with the same Login returned no error")
	}
}

var (
	endpoints = authserver.ProviderEndpoints{
		Authorization: "https://hub.example/a", Token: "https://hub.example/t",
	}
	plainEndpoints = authserver.ProviderEndpoints{
		Authorization: "http://hub.example/a", Token: "https://hub.example/t",
	}
)

// refuseUser is a Subject function that refuses all users.
func refuseUser(context.Context, *authserver.ProviderUser) (authserver.Subject, error) {
	return authserver.Subject{}, authserver.ErrUserRefused
}

// The endpoints come from the metadata of the provider. They may not be at addresses that are less
// public than that of the issuer.
func TestProviderEndpointsAtPrivateAddressesAreRefused(t *testing.T) {
	const timeout = 2 * time.Minute // of a connection that is tried, far more than a refusal takes on a slow machine
	p := newIDP(t)
	for _, bad := range []string{"http://169.254.169.254/token", "http://10.0.0.1/token", "file:///etc/passwd",
		"https://[fe80::1]/token"} {
		p.set(func() { p.metadata = map[string]any{"token_endpoint": bad} })
		w := newEnv(t, func(o *authserver.Options) {
			login, err := authserver.NewProviderLogin(&authserver.ProviderOptions{
				Providers: []authserver.Provider{p.provider("idp")},
				Fetcher:   oauth.NewFetcher(&oauth.FetcherOptions{Timeout: timeout}),
			})
			if err != nil {
				t.Fatal(err)
			}
			o.Login = login
		})
		begun := time.Now()
		answer := w.browser().viaProvider(p)
		if answer.Get("code") != "" || answer.Get("error") == "" || time.Since(begun) > timeout/2 {
			t.Errorf("token endpoint %s: %v after %v, want an error without a connection", bad, answer, time.Since(begun))
		}
	}
}
