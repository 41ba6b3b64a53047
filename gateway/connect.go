package gateway

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oidcclient"
)

const (
	// pathConnect is the path below which users log in. It is followed by "/" and a ticket,
	// callback or identity.
	pathConnect = "/connect"
	// connectCookie is the name of the cookie that identifies the browser of a login, without the
	// prefix that [connectPages.cookieName] adds.
	connectCookie = "patchbay_connect"
	// connectTime bounds a request of a browser: an authorization server may be slow.
	connectTime = 60 * time.Second
	// base32Digits are the characters of a key.
	base32Digits = "abcdefghijklmnopqrstuvwxyz234567"
	// maxForm bounds the form of a page, in bytes.
	maxForm = 8 << 10
	// maxTicket bounds the ticket in a path, in bytes, before it is hashed.
	maxTicket = 256
)

// connectPages are the pages on which callers log in to servers. They require no key: the ticket in
// the path is a secret of one caller.
type connectPages struct {
	gateway *Gateway
	secret  []byte             // of the tokens of forms
	issuer  *oidcclient.Client // identifies callers with access tokens; nil without OAuth.ClientID

	mu      sync.Mutex // guards the fields below
	url     *url.URL   // URL of the gateway; nil if browsers cannot reach it
	checks  map[string]*identityCheck
	started []string // ids of checks, the oldest first; some are done
}

func newConnectPages(g *Gateway) *connectPages {
	p := &connectPages{gateway: g, secret: make([]byte, sha256.Size), issuer: g.opts.OAuth.client(),
		checks: map[string]*identityCheck{}}
	_, _ = rand.Read(p.secret)  // never fails
	if g.opts.PublicURL != "" { // was checked
		p.set(strings.TrimSuffix(g.opts.PublicURL, "/"))
	}
	return p
}

func (p *connectPages) set(base string) {
	u, err := url.Parse(base)
	if err != nil {
		return // was checked
	}
	p.mu.Lock()
	p.url = u
	p.mu.Unlock()
	p.gateway.host.Operator().SetLoginURL(base+pathConnect, p.refuses)
}

// listensAt sets the default URL.
func (p *connectPages) listensAt(addr net.Addr) {
	if p.base() == nil && onLoopback(addr) {
		p.set("http://" + addr.String())
	}
}

func (p *connectPages) base() *url.URL {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.url
}

// ServeHTTP serves the pages.
func (p *connectPages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limitBodyTime(w)
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	ticket := strings.TrimPrefix(r.URL.Path, pathConnect+"/")
	switch {
	case p.base() == nil || len(ticket) > maxTicket || strings.Contains(ticket, "/"):
		http.NotFound(w, r)
	case r.Method != http.MethodGet && (r.Method != http.MethodPost || ticket == "callback" || ticket == pathIdentity):
		header.Set("Allow", "GET, POST")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case ticket == "callback":
		p.callback(w, r)
	case ticket == pathIdentity && p.issuer != nil:
		p.identified(w, r)
	default:
		p.page(w, r, ticket)
	}
}

// page serves the page of a login: GET shows it, and POST starts the login.
func (p *connectPages) page(w http.ResponseWriter, r *http.Request, ticket string) {
	l, err := p.gateway.host.Operator().Login(ticket)
	if err != nil {
		p.fail(w, err)
		return
	}
	if r.Method == http.MethodGet {
		browser := p.browser(r)
		if browser == "" {
			browser = NewKey() // a secret
		}
		http.SetCookie(w, p.cookie(browser))
		p.show(w, http.StatusOK, l, ticket, p.formToken(browser, ticket), "")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	browser := p.browser(r)
	site := cmp.Or(r.Header.Get("Sec-Fetch-Site"), "same-origin")
	token := r.PostFormValue("csrf")
	if browser == "" || site != "same-origin" || !hmac.Equal([]byte(token), []byte(p.formToken(browser, ticket))) {
		p.message(w, http.StatusForbidden, "The login was not started",
			"Your browser did not send the cookie of this page. Allow cookies, open the page again, and press the "+
				"button.")
		return
	}
	if p.asksIssuer(l.Principal()) {
		p.identify(w, r, ticket, browser)
		return
	}
	if !p.isCaller(r, l.Principal(), r.PostFormValue("key")) {
		problem := "This is not a key of the caller that the login is for."
		if !p.asksKey(l.Principal()) {
			problem = "You are not the caller that the login is for."
		}
		p.show(w, http.StatusForbidden, l, ticket, p.formToken(browser, ticket), problem)
		return
	}
	p.start(w, r, l, browser)
}

// start redirects the browser of a caller to the authorization server of an MCP server.
func (p *connectPages) start(w http.ResponseWriter, r *http.Request, l operator.Login, browser string) {
	ctx, cancel := context.WithTimeout(r.Context(), connectTime)
	defer cancel()
	to, err := l.Start(ctx, browser)
	if err != nil {
		p.fail(w, err)
		return
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// callback receives the response of an authorization server.
func (p *connectPages) callback(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), connectTime)
	defer cancel()
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		p.fail(w, operator.ErrNoLogin)
		return
	}
	l, err := p.gateway.host.Operator().FinishLogin(ctx, p.browser(r), query)
	if err != nil {
		p.fail(w, err)
		return
	}
	p.message(w, http.StatusOK, "You are logged in", "The requests of "+loginText(l)+" to the server "+
		shown(l.Server())+" now have your access. You can close this page and return to your client, which "+
		"continues.")
}

// isCaller reports whether the user of a browser is the caller that started the login. key is the
// text that the user entered.
func (p *connectPages) isCaller(r *http.Request, want *mcp.Principal, key string) bool {
	if check := p.gateway.opts.ConnectPrincipal; check != nil {
		got, err := check(r)
		return err == nil && (got == nil) == (want == nil) && got.Key() == want.Key()
	}
	return want == nil || p.asksKey(want) && p.gateway.hasKeyOf(r, want, key)
}

// refuses returns why the page cannot verify that its visitor is the caller, or nil if it can.
func (p *connectPages) refuses(caller *mcp.Principal) error {
	switch tokens := p.gateway.opts.OAuth; {
	case caller == nil || p.gateway.opts.ConnectPrincipal != nil || p.asksKey(caller) || p.asksIssuer(caller):
		return nil
	case tokens != nil && slices.Contains(tokens.AuthorizationServers, caller.Issuer):
		return errors.New("the gateway cannot verify who opens the page of the login: the operator must set " +
			"auth.oidc.clientId in its settings")
	}
	return fmt.Errorf("the gateway cannot verify who opens the page of the login: it does not know how to identify "+
		"users of %.200q", caller.Issuer)
}

// asksKey reports whether the page of a login asks for a key of its caller.
func (p *connectPages) asksKey(caller *mcp.Principal) bool {
	return p.gateway.opts.ConnectPrincipal == nil && p.gateway.live != nil && caller != nil &&
		caller.Issuer == KeyIssuer
}

// hasKeyOf reports whether a key belongs to a principal. Wrong keys are counted and recorded like
// wrong keys in requests of the same address.
func (g *Gateway) hasKeyOf(r *http.Request, want *mcp.Principal, key string) (ok bool) {
	check := g.protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got := mcp.PrincipalFrom(r.Context())
		ok = got != nil && got.Key() == want.Key()
	}))
	with := r.Clone(r.Context())
	with.Header = http.Header{"Authorization": {"Bearer " + key}}
	check.ServeHTTP(discarded{}, with)
	return ok
}

// A discarded response belongs to a request whose outcome is shown on a page.
type discarded struct{}

func (discarded) Header() http.Header         { return http.Header{} }
func (discarded) Write(b []byte) (int, error) { return len(b), nil }
func (discarded) WriteHeader(int)             {}

// browser returns the secret in the cookie of a request, or "" without a cookie.
func (p *connectPages) browser(r *http.Request) string {
	all := r.CookiesNamed(p.cookieName())
	if len(all) != 1 || len(all[0].Value) != minKey || strings.Trim(all[0].Value, base32Digits) != "" {
		return "" // another site of the domain may have set the second cookie
	}
	return all[0].Value
}

// cookie returns the cookie that identifies a browser. It must reach the callback, although another
// site links to it.
func (p *connectPages) cookie(browser string) *http.Cookie {
	c := &http.Cookie{Name: p.cookieName(), Value: browser, Path: pathConnect + "/", HttpOnly: true,
		SameSite: http.SameSiteLaxMode}
	if c.Name != connectCookie { // the prefix __Host- requires this path and Secure
		c.Path, c.Secure = "/", true
	}
	return c
}

// cookieName returns the name of the cookie. With TLS, it begins with __Host-, so that other hosts
// of the domain cannot set the cookie; browsers accept this prefix over TLS only.
func (p *connectPages) cookieName() string {
	if p.base().Scheme == "https" {
		return "__Host-" + connectCookie
	}
	return connectCookie
}

// formToken returns the token of the form of a page in a browser: other sites cannot send the form.
func (p *connectPages) formToken(browser, ticket string) string {
	mac := hmac.New(sha256.New, p.secret)
	mac.Write([]byte(browser + " " + ticket))
	return hex.EncodeToString(mac.Sum(nil))
}

// fail shows why a login failed.
func (p *connectPages) fail(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, operator.ErrNoLogin):
		p.message(w, http.StatusNotFound, "No such login",
			"It has expired, or the address is incomplete. Repeat the request in your client to get another one.")
	case errors.Is(err, operator.ErrLoginUsed):
		p.message(w, http.StatusGone, "The login was started before",
			"Its address is for one visit. Repeat the request in your client to get another one.")
	case errors.Is(err, operator.ErrOtherBrowser):
		p.message(w, http.StatusForbidden, "The login was started in another browser",
			"Open its address in this browser, or continue in the other one. If you have not started a login, close "+
				"this page.")
	default:
		p.gateway.opts.Logger.Info("gateway: login failed", "error", err)
		p.message(w, http.StatusBadGateway, "The login has failed",
			"Reason: "+operator.LoginFailure(err)+". Repeat the request in your client to try again.")
	}
}
