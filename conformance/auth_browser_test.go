package conformance_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// TestLoginInBrowser logs in with Chromium: at our own form, and at an OpenID provider to which our
// authorization server delegates. The client is ours, with its default page and callback.
func TestLoginInBrowser(t *testing.T) {
	needNode(t)
	browser := startBrowser(t)
	for _, k := range []struct {
		name string
		test func(t *testing.T, browser context.Context)
	}{
		{"login and consent", loginAndConsent},
		{"denial", denyConsent},
		{"login given up", giveUpLogin},
		{"form sent twice", sendTwice},
		{"page that has expired", expiredPage},
		{"callback without a login", strayAnswer},
		{"third party", thirdParty},
		{"third party that refuses", thirdPartyRefuses},
		{"captured page of the third party", capturedUpstream},
	} {
		t.Run(k.name, func(t *testing.T) { k.test(t, browser) })
	}
}

// A desk is our client. The test opens its pages.
type desk struct {
	endpoint string
	store    oauthclient.Store
	pages    chan string
}

func newDesk(h *house) *desk {
	return &desk{endpoint: h.endpoint, store: oauthclient.NewMemoryStore(), pages: make(chan string, 10)}
}

// A connected is the result of a connection attempt.
type connected struct {
	client *mcp.Client
	err    error
}

// connect starts a connection and returns the URL of its login page.
func (d *desk) connect(ctx context.Context, t *testing.T) (page string, done <-chan connected) {
	t.Helper()
	transport := oauthclient.NewTransport(d.endpoint, &oauthclient.TransportOptions{
		Store: d.store, Logger: logger(t),
		Client: oauthclient.Identity{Metadata: oauth.ClientMetadata{Name: "Desk <b>client</b>"}},
		Authorizer: oauthclient.NewBrowser(&oauthclient.BrowserOptions{
			Logger: logger(t),
			Show:   func(*oauthclient.LoginRequest) {},
			Open: func(_ context.Context, page string) error {
				d.pages <- page
				return nil
			},
		}),
	})
	result := make(chan connected, 1)
	go func() {
		over := &mcphttp.TransportOptions{Client: &http.Client{Transport: transport}, Logger: logger(t)}
		c, err := mcp.Connect(ctx, mcphttp.NewTransport(d.endpoint, over), nil)
		result <- connected{c, err}
	}()
	select {
	case page = <-d.pages:
	case r := <-result:
		t.Fatalf("no login was requested: %v", r.err)
	case <-ctx.Done():
		t.Fatal("no login was requested")
	}
	return page, result
}

// client returns the client of a successful connection.
func (r connected) clientOf(t *testing.T) *mcp.Client {
	t.Helper()
	if r.err != nil {
		t.Fatalf("Connect: %v", r.err)
	}
	t.Cleanup(func() { _ = r.client.Close() })
	return r.client
}

func loginAndConsent(t *testing.T, browser context.Context) {
	ctx := within(t, time.Minute)
	h := openHouse(t, nil)
	d := newDesk(h)
	page, done := d.connect(ctx, t)
	p := newTab(t, browser)
	p.open(page)
	p.see("Desk <b>client</b>") // verbatim: a name is not markup
	p.see("127.0.0.1")
	p.see("Read your notes")
	p.shoot("consent")
	p.click("#allow")
	p.see("Log in to")
	p.shoot("login")
	p.enter("#username", demoUser)
	p.enter("#password", "a wrong one\n") // the Enter key sends the form
	p.see("User name or password is wrong.")
	p.shoot("login-wrong")
	p.enter("#password", demoPassword+"\n")
	p.see("You are logged in")
	p.shoot("client-done")
	c := (<-done).clientOf(t)
	checkCaller(t, "caller", asCaller(t, must(mcp.CallTool[string](ctx, c, "who_am_i", nil))(t)), h, "mcp:read")
	stepUp(ctx, t, d, p, c)
}

// stepUp calls a tool that requires a further scope, which causes a second consent.
func stepUp(ctx context.Context, t *testing.T, d *desk, p *tab, c *mcp.Client) {
	t.Helper()
	written := make(chan error, 1)
	go func() {
		_, err := mcp.CallTool[string](ctx, c, "write", nil)
		written <- err
	}()
	p.open(<-d.pages)
	p.see("Change and delete your notes")
	p.shoot("consent-more")
	p.click("#allow")
	p.see("Log in to")
	p.enter("#username", demoUser)
	p.enter("#password", demoPassword)
	p.click("#login")
	p.see("You are logged in")
	if err := <-written; err != nil {
		t.Errorf("write: %v", err)
	}
}

func denyConsent(t *testing.T, browser context.Context) {
	h := openHouse(t, nil)
	page, done := newDesk(h).connect(within(t, time.Minute), t)
	p := newTab(t, browser)
	p.open(page)
	p.click("#deny")
	p.see("You are not logged in")
	p.shoot("client-denied")
	wantDenied(t, (<-done).err)
}

func wantDenied(t *testing.T, err error) {
	t.Helper()
	var refused *oauthclient.LoginError
	if !errors.As(err, &refused) || refused.Code != "access_denied" {
		t.Errorf("the error is %v, want access_denied", err)
	}
}

func giveUpLogin(t *testing.T, browser context.Context) {
	h := openHouse(t, nil)
	page, done := newDesk(h).connect(within(t, time.Minute), t)
	p := newTab(t, browser)
	p.open(page)
	p.click("#allow")
	p.see("Log in to")
	p.click("#cancel")
	p.see("You are not logged in")
	wantDenied(t, (<-done).err)
}

// sendTwice returns to the consent page after the login and submits it again.
func sendTwice(t *testing.T, browser context.Context) {
	h := openHouse(t, nil)
	page, done := newDesk(h).connect(within(t, time.Minute), t)
	p := newTab(t, browser)
	p.open(page)
	p.see("Allow")
	form := p.read(theForm)
	p.click("#allow")
	p.see("Log in to")
	p.enter("#username", demoUser)
	p.enter("#password", demoPassword+"\n")
	p.see("You are logged in")
	(<-done).clientOf(t)
	// Going back requests a new page. The form of the old page is rejected.
	p.open(page)
	p.see("Allow")
	if again := p.read(theForm); again == form {
		t.Error("two pages have the same form")
	}
	p.submit(form, "decision=allow")
	p.see("no longer valid")
	p.shoot("used")
}

func expiredPage(t *testing.T, browser context.Context) {
	store := &forgetful{Store: authserver.NewMemoryStore()}
	h := openHouse(t, func(o *authserver.Options) { o.Store = store })
	ctx, cancel := context.WithCancel(within(t, time.Minute))
	page, done := newDesk(h).connect(ctx, t)
	p := newTab(t, browser)
	p.open(page)
	p.see("Allow")
	store.forgets.Store(true)
	p.click("#allow")
	p.see("no longer valid")
	p.shoot("expired")
	cancel() // no response will arrive
	if r := <-done; r.err == nil {
		t.Error("Connect succeeded without a login")
	}
}

// forgetful is a store whose interactions expire when the test sets it.
type forgetful struct {
	authserver.Store
	forgets atomic.Bool
}

func (s *forgetful) gone(kind string) bool { return kind == "interaction" && s.forgets.Load() }

func (s *forgetful) Get(ctx context.Context, kind, key string) ([]byte, error) {
	if s.gone(kind) {
		return nil, nil
	}
	return s.Store.Get(ctx, kind, key)
}

func (s *forgetful) GetAndDelete(ctx context.Context, kind, key string) ([]byte, error) {
	if s.gone(kind) {
		return nil, nil
	}
	return s.Store.GetAndDelete(ctx, kind, key)
}

func (s *forgetful) Update(ctx context.Context, kind, key string, change func(old []byte) ([]byte, time.Time, error)) error {
	if s.gone(kind) {
		_, _, err := change(nil)
		return err
	}
	return s.Store.Update(ctx, kind, key, change)
}

// strayAnswer sends authorization responses to the client that do not belong to its login.
func strayAnswer(t *testing.T, browser context.Context) {
	h := openHouse(t, nil)
	page, done := newDesk(h).connect(within(t, time.Minute), t)
	callback := must(url.Parse(page))(t).Query().Get("redirect_uri")
	stranger := newTab(t, browser)
	stranger.open(callback + "?code=stolen&state=guessed&iss=" + url.QueryEscape(h.issuer))
	stranger.see("does not belong to a login in progress")
	stranger.shoot("client-stray")
	p := newTab(t, browser)
	p.open(page)
	p.click("#deny") // the login continues: the foreign response did not end it
	p.see("You are not logged in")
	wantDenied(t, (<-done).err)
}

// delegating opens a house whose users log in at an OpenID provider.
func delegating(t *testing.T, secret string) (*house, *provider) {
	t.Helper()
	var idp *provider
	h := openHouse(t, func(o *authserver.Options) {
		idp = startProvider(t, providerConfig{Clients: []providerClient{{
			ID: "house", Secret: secret, RedirectURIs: []string{o.Issuer + "/login/callback/idp"},
			GrantTypes: []string{"authorization_code", "refresh_token"}, Type: "web", AuthMethod: "client_secret_basic",
		}}})
		o.Login = must(authserver.NewProviderLogin(&authserver.ProviderOptions{Providers: []authserver.Provider{{
			ID: "idp", Name: "Example accounts", Issuer: idp.issuer, ClientID: "house", ClientSecret: secret,
			Scopes:     []string{"openid", "profile", "email", "offline_access"},
			Parameters: map[string]string{"prompt": "consent"}, // without it OpenID providers grant no offline_access
			CheckEvery: time.Nanosecond,                        // a revocation at the provider takes effect immediately
		}}}))(t)
	})
	return h, idp
}

const upstreamSecret = "a secret of the house and the provider"

func thirdParty(t *testing.T, browser context.Context) {
	ctx := within(t, time.Minute)
	h, idp := delegating(t, upstreamSecret)
	d := newDesk(h)
	page, done := d.connect(ctx, t)
	p := newTab(t, browser)
	p.open(page)
	p.see("Read your notes")
	p.see("Next you log in with Example accounts.")
	p.shoot("third-party-consent")
	if events := idp.events(t); len(events) > 0 {
		t.Errorf("the provider got requests before the consent: %q", events)
	}
	p.click("#allow")
	p.loginAtProvider(idp, "grace")
	p.see("You are logged in")
	c := (<-done).clientOf(t)
	who := asCaller(t, must(mcp.CallTool[string](ctx, c, "who_am_i", nil))(t))
	equal(t, "subject", who.Subject, "idp|grace")
	equal(t, "issuer", who.Issuer, h.issuer)
	equal(t, "name", who.Claims["name"], "grace Example") // which only the userinfo endpoint of the provider returns
	equal(t, "email", who.Claims["email"], "grace@example.com")
	// A revocation at the provider invalidates our tokens, and the client logs in again.
	idp.revoke(t)
	again := make(chan error, 1)
	go func() {
		_, err := mcp.CallTool[string](ctx, c, "who_am_i", nil)
		again <- err
	}()
	p.open(<-d.pages)
	p.click("#allow")
	p.await("the provider asks for consent again", onProvider(idp))
	p.click("button[type=submit]")
	p.see("You are logged in")
	if err := <-again; err != nil {
		t.Errorf("after the second login: %v", err)
	}
	// A logout of the client revokes the tokens of the provider.
	before := len(idp.events(t))
	if err := oauthclient.NewTransport(h.endpoint, &oauthclient.TransportOptions{Store: d.store, Logger: logger(t)}).Logout(ctx); err != nil {
		t.Errorf("Logout: %v", err)
	}
	if events := idp.events(t)[before:]; !slices.Contains(events, "refresh_token.destroyed") {
		t.Errorf("the provider's tokens outlive ours: %q", events)
	}
}

// onProvider is a script that is true while the tab shows a page of the provider.
func onProvider(idp *provider) string {
	return `location.origin === "` + idp.issuer + `" && document.readyState === "complete" && document.querySelector("button[type=submit]") !== null`
}

// loginAtProvider completes the two pages of the provider.
func (p *tab) loginAtProvider(idp *provider, name string) {
	p.t.Helper()
	p.await("the provider's login", onProvider(idp)+` && document.querySelector("[name=login]") !== null`)
	p.enter("[name=login]", name)
	p.enter("[name=password]", "whatever")
	p.click("button[type=submit]")
	p.await("the provider's consent", onProvider(idp)+` && document.querySelector("[name=login]") === null`)
	p.click("button[type=submit]")
}

func thirdPartyRefuses(t *testing.T, browser context.Context) {
	h, idp := delegating(t, upstreamSecret)
	page, done := newDesk(h).connect(within(t, time.Minute), t)
	p := newTab(t, browser)
	p.open(page)
	p.click("#allow")
	p.await("the provider's login", onProvider(idp))
	p.click("a[href$=abort]")
	p.see("You are not logged in")
	wantDenied(t, (<-done).err)
}

// capturedUpstream is the confused deputy attack: an attacker consents for his own client, keeps
// the URL of the provider from the redirect, and has a victim open it who is logged in there.
func capturedUpstream(t *testing.T, browser context.Context) {
	ctx, cancel := context.WithCancel(within(t, time.Minute))
	h, idp := delegating(t, upstreamSecret)
	page, done := newDesk(h).connect(ctx, t)
	attacker := newPerson(t)
	captured := ""
	attacker.client = &http.Client{Jar: must(cookiejar.New(nil))(t), CheckRedirect: func(req *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(req.URL.String(), idp.issuer) {
			captured = req.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}}
	if _, err := attacker.visit(ctx, page); captured == "" {
		t.Fatalf("the attacker was not sent to the provider: %v", err)
	}
	victim := newTab(t, browser)
	victim.open(captured)
	victim.loginAtProvider(idp, "victim")
	victim.see("no longer valid")
	if at := victim.location(); !strings.HasPrefix(at, h.issuer) {
		t.Errorf("the victim is at %s", at)
	}
	victim.shoot("captured")
	cancel()
	if r := <-done; r.err == nil {
		t.Error("the attacker has a token of the victim")
	}
}
