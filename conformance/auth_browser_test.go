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
		{"denied consent", denyConsent},
		{"cancelled login", cancelLogin},
		{"form submitted twice", submitTwice},
		{"expired page", openExpiredPage},
		{"foreign authorization response", sendForeignResponse},
		{"login at a provider", loginAtThirdParty},
		{"cancelled login at a provider", cancelLoginAtThirdParty},
		{"captured URL of a provider", openCapturedURL},
	} {
		t.Run(k.name, func(t *testing.T) { k.test(t, browser) })
	}
}

// A browserClient is our client. The test opens its pages.
type browserClient struct {
	endpoint string
	store    oauthclient.Store
	pages    chan string
}

func newBrowserClient(h *protectedServer) *browserClient {
	return &browserClient{endpoint: h.endpoint, store: oauthclient.NewMemoryStore(), pages: make(chan string, 10)}
}

// A connectResult is the result of a connection attempt.
type connectResult struct {
	client *mcp.Client
	err    error
}

// connect starts a connection and returns the URL of its login page.
func (d *browserClient) connect(ctx context.Context, t *testing.T) (page string, done <-chan connectResult) {
	t.Helper()
	transport := oauthclient.NewTransport(d.endpoint, &oauthclient.TransportOptions{
		Store: d.store, Logger: logger(t),
		Client: oauthclient.Identity{Metadata: oauth.ClientMetadata{Name: "Test <b>client</b>"}},
		Authorizer: oauthclient.NewBrowser(&oauthclient.BrowserOptions{
			Logger: logger(t),
			Show:   func(*oauthclient.LoginRequest) {},
			Open: func(_ context.Context, page string) error {
				d.pages <- page
				return nil
			},
		}),
	})
	result := make(chan connectResult, 1)
	go func() {
		opts := &mcphttp.TransportOptions{Client: &http.Client{Transport: transport}, Logger: logger(t)}
		c, err := mcp.Connect(ctx, mcphttp.NewTransport(d.endpoint, opts), nil)
		result <- connectResult{c, err}
	}()
	select {
	case page = <-d.pages:
	case r := <-result:
		t.Fatalf("Connect returned %v before a login was requested", r.err)
	case <-ctx.Done():
		t.Fatal("no login was requested")
	}
	return page, result
}

// mustClient returns the client of a successful connection.
func (r connectResult) mustClient(t *testing.T) *mcp.Client {
	t.Helper()
	if r.err != nil {
		t.Fatalf("Connect: %v", r.err)
	}
	t.Cleanup(func() { _ = r.client.Close() })
	return r.client
}

func loginAndConsent(t *testing.T, browser context.Context) {
	ctx := within(t, time.Minute)
	h := newProtectedServer(t, nil)
	d := newBrowserClient(h)
	page, done := d.connect(ctx, t)
	p := newTab(t, browser)
	p.open(page)
	p.waitForText("Test <b>client</b>") // verbatim: a name is not markup
	p.waitForText("127.0.0.1")
	p.waitForText("Read your notes")
	p.screenshot("consent")
	p.click("#allow")
	p.waitForText("Log in to")
	p.screenshot("login")
	p.enter("#username", demoUser)
	p.enter("#password", "a wrong one\n") // the Enter key submits the form
	p.waitForText("User name or password is wrong.")
	p.screenshot("login-wrong")
	p.enter("#password", demoPassword+"\n")
	p.waitForText("You are logged in")
	p.screenshot("client-done")
	c := (<-done).mustClient(t)
	checkCaller(t, "caller", asCaller(t, must(mcp.CallTool[string](ctx, c, "who_am_i", nil))(t)), h, "mcp:read")
	stepUp(ctx, t, d, p, c)
}

// stepUp calls a tool that requires a further scope, which causes a second consent.
func stepUp(ctx context.Context, t *testing.T, d *browserClient, p *tab, c *mcp.Client) {
	t.Helper()
	written := make(chan error, 1)
	go func() {
		_, err := mcp.CallTool[string](ctx, c, "write", nil)
		written <- err
	}()
	p.open(<-d.pages)
	p.waitForText("Change and delete your notes")
	p.screenshot("consent-more")
	p.click("#allow")
	p.waitForText("Log in to")
	p.enter("#username", demoUser)
	p.enter("#password", demoPassword)
	p.click("#login")
	p.waitForText("You are logged in")
	if err := <-written; err != nil {
		t.Errorf("write: %v", err)
	}
}

func denyConsent(t *testing.T, browser context.Context) {
	h := newProtectedServer(t, nil)
	page, done := newBrowserClient(h).connect(within(t, time.Minute), t)
	p := newTab(t, browser)
	p.open(page)
	p.click("#deny")
	p.waitForText("You are not logged in")
	p.screenshot("client-denied")
	checkDenied(t, (<-done).err)
}

func checkDenied(t *testing.T, err error) {
	t.Helper()
	var refused *oauthclient.LoginError
	if !errors.As(err, &refused) || refused.Code != "access_denied" {
		t.Errorf("error %v, want access_denied", err)
	}
}

func cancelLogin(t *testing.T, browser context.Context) {
	h := newProtectedServer(t, nil)
	page, done := newBrowserClient(h).connect(within(t, time.Minute), t)
	p := newTab(t, browser)
	p.open(page)
	p.click("#allow")
	p.waitForText("Log in to")
	p.click("#cancel")
	p.waitForText("You are not logged in")
	checkDenied(t, (<-done).err)
}

// submitTwice returns to the consent page after the login and submits it again.
func submitTwice(t *testing.T, browser context.Context) {
	h := newProtectedServer(t, nil)
	page, done := newBrowserClient(h).connect(within(t, time.Minute), t)
	p := newTab(t, browser)
	p.open(page)
	p.waitForText("Allow")
	form := p.read(readForm)
	p.click("#allow")
	p.waitForText("Log in to")
	p.enter("#username", demoUser)
	p.enter("#password", demoPassword+"\n")
	p.waitForText("You are logged in")
	(<-done).mustClient(t)
	// Opening the page again returns a new form. The old form is rejected.
	p.open(page)
	p.waitForText("Allow")
	if again := p.read(readForm); again == form {
		t.Error("two consent pages have the same form, want different ones")
	}
	p.submit(form, "decision=allow")
	p.waitForText("no longer valid")
	p.screenshot("used")
}

func openExpiredPage(t *testing.T, browser context.Context) {
	store := &expiringStore{Store: authserver.NewMemoryStore()}
	h := newProtectedServer(t, func(o *authserver.Options) { o.Store = store })
	ctx, cancel := context.WithCancel(within(t, time.Minute))
	page, done := newBrowserClient(h).connect(ctx, t)
	p := newTab(t, browser)
	p.open(page)
	p.waitForText("Allow")
	store.expired.Store(true)
	p.click("#allow")
	p.waitForText("no longer valid")
	p.screenshot("expired")
	cancel() // no response will arrive
	if r := <-done; r.err == nil {
		t.Error("Connect without a login: no error, want one")
	}
}

// An expiringStore is a store whose interactions expire when the test sets expired.
type expiringStore struct {
	authserver.Store
	expired atomic.Bool
}

func (s *expiringStore) isExpired(kind string) bool { return kind == "interaction" && s.expired.Load() }

func (s *expiringStore) Get(ctx context.Context, kind, key string) ([]byte, error) {
	if s.isExpired(kind) {
		return nil, nil
	}
	return s.Store.Get(ctx, kind, key)
}

func (s *expiringStore) GetAndDelete(ctx context.Context, kind, key string) ([]byte, error) {
	if s.isExpired(kind) {
		return nil, nil
	}
	return s.Store.GetAndDelete(ctx, kind, key)
}

func (s *expiringStore) Update(ctx context.Context, kind, key string,
	change func(old []byte) ([]byte, time.Time, error)) error {
	if s.isExpired(kind) {
		_, _, err := change(nil)
		return err
	}
	return s.Store.Update(ctx, kind, key, change)
}

// sendForeignResponse sends authorization responses to the client that do not belong to its login.
func sendForeignResponse(t *testing.T, browser context.Context) {
	h := newProtectedServer(t, nil)
	page, done := newBrowserClient(h).connect(within(t, time.Minute), t)
	callback := must(url.Parse(page))(t).Query().Get("redirect_uri")
	otherTab := newTab(t, browser)
	otherTab.open(callback + "?code=stolen&state=guessed&iss=" + url.QueryEscape(h.issuer))
	otherTab.waitForText("does not belong to a login in progress")
	otherTab.screenshot("client-stray")
	p := newTab(t, browser)
	p.open(page)
	p.click("#deny") // the foreign response did not end the login
	p.waitForText("You are not logged in")
	checkDenied(t, (<-done).err)
}

// newDelegatingServer returns a protected server whose users log in at an OpenID provider.
func newDelegatingServer(t *testing.T, secret string) (*protectedServer, *provider) {
	t.Helper()
	var idp *provider
	h := newProtectedServer(t, func(o *authserver.Options) {
		idp = startProvider(t, providerConfig{Clients: []providerClient{{
			ID: "server", Secret: secret, RedirectURIs: []string{o.Issuer + "/login/callback/idp"},
			GrantTypes: []string{"authorization_code", "refresh_token"}, Type: "web", AuthMethod: "client_secret_basic",
		}}})
		o.Login = must(authserver.NewProviderLogin(&authserver.ProviderOptions{Providers: []authserver.Provider{{
			ID: "idp", Name: "Example accounts", Issuer: idp.issuer, ClientID: "server", ClientSecret: secret,
			Scopes: []string{"openid", "profile", "email", "offline_access"},
			// Without this prompt, OpenID providers do not grant offline_access.
			Parameters: map[string]string{"prompt": "consent"},
			CheckEvery: time.Nanosecond, // a revocation at the provider takes effect immediately
		}}}))(t)
	})
	return h, idp
}

const upstreamSecret = "a secret of the server and the provider"

func loginAtThirdParty(t *testing.T, browser context.Context) {
	ctx := within(t, time.Minute)
	h, idp := newDelegatingServer(t, upstreamSecret)
	d := newBrowserClient(h)
	page, done := d.connect(ctx, t)
	p := newTab(t, browser)
	p.open(page)
	p.waitForText("Read your notes")
	p.waitForText("Next you log in with Example accounts.")
	p.screenshot("third-party-consent")
	if events := idp.events(t); len(events) > 0 {
		t.Errorf("requests to the provider before the consent: %q, want none", events)
	}
	p.click("#allow")
	p.loginAtProvider(idp, "grace")
	p.waitForText("You are logged in")
	c := (<-done).mustClient(t)
	who := asCaller(t, must(mcp.CallTool[string](ctx, c, "who_am_i", nil))(t))
	equal(t, "subject", who.Subject, "idp|grace")
	equal(t, "issuer", who.Issuer, h.issuer)
	equal(t, "name", who.Claims["name"], "grace Example") // from the userinfo endpoint of the provider
	equal(t, "email", who.Claims["email"], "grace@example.com")
	// A revocation at the provider invalidates our tokens, and the client logs in again.
	idp.revoke(t)
	repeated := make(chan error, 1)
	go func() {
		_, err := mcp.CallTool[string](ctx, c, "who_am_i", nil)
		repeated <- err
	}()
	p.open(<-d.pages)
	p.click("#allow")
	p.waitFor("the provider asks for consent again", onProvider(idp))
	p.click("button[type=submit]")
	p.waitForText("You are logged in")
	if err := <-repeated; err != nil {
		t.Errorf("call after the second login: %v", err)
	}
	// A logout of the client revokes the tokens of the provider.
	before := len(idp.events(t))
	if err := oauthclient.NewTransport(h.endpoint,
		&oauthclient.TransportOptions{Store: d.store, Logger: logger(t)}).Logout(ctx); err != nil {
		t.Errorf("Logout: %v", err)
	}
	if events := idp.events(t)[before:]; !slices.Contains(events, "refresh_token.destroyed") {
		t.Errorf("events of the provider after the logout: %q, want its refresh token destroyed", events)
	}
}

// onProvider is a script that is true while the tab shows a page of the provider.
func onProvider(idp *provider) string {
	return `location.origin === "` + idp.issuer +
		`" && document.readyState === "complete" && document.querySelector("button[type=submit]") !== null`
}

// loginAtProvider completes the two pages of the provider.
func (p *tab) loginAtProvider(idp *provider, name string) {
	p.t.Helper()
	p.waitFor("the provider's login", onProvider(idp)+` && document.querySelector("[name=login]") !== null`)
	p.enter("[name=login]", name)
	p.enter("[name=password]", "whatever")
	p.click("button[type=submit]")
	p.waitFor("the provider's consent", onProvider(idp)+` && document.querySelector("[name=login]") === null`)
	p.click("button[type=submit]")
}

func cancelLoginAtThirdParty(t *testing.T, browser context.Context) {
	h, idp := newDelegatingServer(t, upstreamSecret)
	page, done := newBrowserClient(h).connect(within(t, time.Minute), t)
	p := newTab(t, browser)
	p.open(page)
	p.click("#allow")
	p.waitFor("the provider's login", onProvider(idp))
	p.click("a[href$=abort]")
	p.waitForText("You are not logged in")
	checkDenied(t, (<-done).err)
}

// openCapturedURL is the confused deputy attack: an attacker consents for the attacker's own
// client, keeps the URL of the provider from the redirect, and makes a victim open it who is logged
// in there.
func openCapturedURL(t *testing.T, browser context.Context) {
	ctx, cancel := context.WithCancel(within(t, time.Minute))
	h, idp := newDelegatingServer(t, upstreamSecret)
	page, done := newBrowserClient(h).connect(ctx, t)
	attacker := newLoginUser(t)
	captured := ""
	attacker.client = &http.Client{Jar: must(cookiejar.New(nil))(t),
		CheckRedirect: func(req *http.Request, _ []*http.Request) error {
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
	victim.waitForText("no longer valid")
	if at := victim.location(); !strings.HasPrefix(at, h.issuer) {
		t.Errorf("the victim is at %s, want a page of %s", at, h.issuer)
	}
	victim.screenshot("captured")
	cancel()
	if r := <-done; r.err == nil {
		t.Error("Connect of the attacker: no error, want one")
	}
}
