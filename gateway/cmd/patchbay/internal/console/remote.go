package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/access"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

const (
	identityPath = "/login/identity"
	// attemptSeconds is how long the cookie of a login at the identity provider lasts.
	attemptSeconds = 600
)

// A remote contains the logins of other people than the local user.
type remote struct{ *Console }

// identityRoutes are the routes of logins at the identity provider, if there is one.
func (c remote) identityRoutes() []*page.Route {
	if c.opts.Access == nil || c.opts.Access.Identity == nil {
		return nil
	}
	return []*page.Route{
		{Path: identityPath, Role: page.RoleAnyone, Serve: c.startIdentity},
		{Path: access.CallbackPath, Role: page.RoleAnyone, Serve: c.finishIdentity},
	}
}

// startIdentity sends a browser to the identity provider. The cookie binds the response to this
// browser: it must reach the callback although another site links to it, so it is not the cookie of
// the session.
func (c remote) startIdentity(w http.ResponseWriter, r *page.Request) error {
	browser, _ := newSecret()
	to, err := c.opts.Access.Identity.Start(r.Context(), browser, localPath(r.URL.Query().Get("next")))
	if err != nil {
		c.opts.Logger.Warn("console: the identity provider cannot be used", "error", err)
		return &gateway.Problem{Status: http.StatusBadGateway, Code: "identity_provider",
			Detail: "the identity provider does not respond: try again later, or log in with a key"}
	}
	cookie := c.logins.newCookie(r.Request, browser, attemptSeconds)
	cookie.Name += attemptSuffix
	cookie.SameSite = http.SameSiteLaxMode
	http.SetCookie(w, cookie)
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// attemptSuffix ends the name of the cookie of a login at the identity provider.
const attemptSuffix = "-login"

// finishIdentity receives the response of the identity provider. It responds with a page that opens
// the console, because a redirect would still be a request of the other site, without the new
// cookie.
func (c remote) finishIdentity(w http.ResponseWriter, r *page.Request) error {
	browser := ""
	if cookie, err := r.Cookie(c.logins.cookieName(r.Request) + attemptSuffix); err == nil {
		browser = cookie.Value
	}
	person, next, err := c.opts.Access.Identity.Finish(r.Context(), browser, r.URL.Query())
	if err != nil {
		c.opts.Logger.Warn("console: login at the identity provider refused", "error", err, "address", r.RemoteAddr)
		text := "the login at the identity provider failed: log in again"
		if errors.Is(err, access.ErrRefused) {
			text = err.Error()
		}
		return &gateway.Problem{Status: http.StatusForbidden, Code: "login_failed", Detail: text}
	}
	gone := c.logins.newCookie(r.Request, "", -1)
	gone.Name += attemptSuffix
	http.SetCookie(w, gone)
	http.SetCookie(w, c.logins.add(r.Request, person))
	next = cmp.Or(next, c.opts.Home)
	w.Header().Set("Refresh", "0; url="+next)
	c.showView(w, r, nil, http.StatusOK, &page.View{Title: "Logged in", Body: loggedInBody(next)})
	return nil
}

// logInKey returns the cookie of a browser whose user has a key with a role, or nil.
func (c remote) logInKey(r *http.Request, key string) *http.Cookie {
	if c.opts.Access == nil || c.opts.Access.LogIn == nil || !strings.HasPrefix(key, gateway.KeyPrefix) {
		return nil
	}
	person, err := c.opts.Access.LogIn(r, key)
	if err != nil {
		return nil
	}
	return c.logins.add(r, person)
}

// A personKey is the key of the person in the context of a request of a proxy.
type personKey struct{}

// errNoProxy refuses a request at the URL of the proxy that names nobody.
var errNoProxy = errors.New("the proxy of this console must name the person who sends a request")

// fromProxy returns a request with the person whom the proxy names, if there is a proxy. Each request at
// the public host must name a person. The cookies of such a request identify nobody.
func (c remote) fromProxy(r *http.Request) (*http.Request, error) {
	if c.opts.Access == nil || c.opts.Access.Proxy == nil {
		return r, nil
	}
	person, err := c.opts.Access.Proxy.Person(r)
	switch {
	case err != nil:
		return r, err
	case person != nil:
		return r.WithContext(context.WithValue(r.Context(), personKey{}, person)), nil
	case r.Host == c.logins.public:
		return r, errNoProxy
	}
	return r, nil
}

// bind makes a request end with the login of its person. The caller must call the result at the
// end.
func (c remote) bind(r *page.Request) (done func()) {
	s := c.logins.login(r.Request)
	if c.opts.Authenticate != nil || s == nil || s.person == nil {
		return func() {}
	}
	var ctx context.Context
	ctx, done = s.person.Bind(r.Context())
	r.Request = r.WithContext(ctx)
	return done
}

// publicURL returns the URL for other machines, or "".
func publicURL(a *access.Access) string {
	if a == nil {
		return ""
	}
	return a.URL
}

// isRemote reports whether other machines use the console.
func isRemote(o *Options) bool { return o.Authenticate != nil || publicURL(o.Access) != "" }

// endedText tells a person how to log in again.
func endedText(a *access.Access) string {
	if a != nil {
		return "The session has ended: log in again."
	}
	return "The session has ended: open the URL that the command prints."
}

// publicHost returns the host of a URL, or "".
func publicHost(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}
