package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/access"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

const (
	loginPath  = "/login"
	logoutPath = "/logout"
	// tokenTime is how long a token of [Console.URL] is valid: the browser uses it at once, and a
	// person who copies the URL needs some seconds.
	tokenTime = 2 * time.Minute
	// loginTime is how long a browser stays logged in: a working day.
	loginTime = 12 * time.Hour
	// maxTokens and maxLogins bound the memory. The oldest is removed.
	maxTokens = 16
	maxLogins = 256
	// secretBytes is the size of tokens and cookies: 160 bits.
	secretBytes = 20
)

// A login is a browser that is logged in, or a token that has not been used.
type login struct {
	hash [sha256.Size]byte // of the cookie or token
	ends time.Time
	role page.Role
	// person checks each request of a person other than the local user.
	person access.Person
}

// logins contains the unused tokens of the local user, and the browsers that are logged in. It is
// safe for concurrent use.
type logins struct {
	cookie   string // its name contains the port, since browsers send cookies to all ports of a host
	public   string // the host of the URL for other machines, with its port; empty without it
	isSecure bool   // at that host, whose URL is an https URL

	mu       sync.Mutex // guards the fields below
	tokens   []login
	browsers []login
}

func newLogins(addr net.Addr, public string) *logins {
	_, port, _ := net.SplitHostPort(addr.String()) // a listener has an address
	return &logins{cookie: "patchbay-" + port, public: publicHost(public),
		isSecure: strings.HasPrefix(public, "https:")}
}

// isTLS reports whether the browser of a request uses the https URL for other machines.
func (l *logins) isTLS(r *http.Request) bool { return l.isSecure && r.Host == l.public }

// cookieName returns the name of the cookie. With TLS it begins with __Host-, so that other hosts
// of the domain cannot set the cookie; browsers accept this prefix over TLS only.
func (l *logins) cookieName(r *http.Request) string {
	if l.isTLS(r) {
		return "__Host-" + l.cookie
	}
	return l.cookie
}

// newSecret returns a random text and its hash.
func newSecret() (secret string, hash [sha256.Size]byte) {
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // never fails
	secret = hex.EncodeToString(b)
	return secret, sha256.Sum256([]byte(secret))
}

// newToken returns a token, which is valid for one login.
func (l *logins) newToken() string {
	token, hash := newSecret()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokens = added(l.tokens, login{hash, time.Now().Add(tokenTime), page.RoleOperator, nil}, maxTokens)
	return token
}

// added adds a login, and removes logins that have ended and the oldest over a limit.
func added(all []login, s login, limit int) []login {
	all = slices.DeleteFunc(all, func(s login) bool { return !time.Now().Before(s.ends) })
	return append(all[max(0, len(all)+1-limit):], s)
}

// find returns the index of a login that has not ended, or -1. It compares hashes, so the time that
// it takes reveals nothing about a secret.
func find(all []login, secret string) int {
	hash := sha256.Sum256([]byte(secret))
	return slices.IndexFunc(all, func(s login) bool { return s.hash == hash && time.Now().Before(s.ends) })
}

// logIn uses a token. It returns the cookie for a browser, or nil for a token that is invalid,
// was used or has expired.
func (l *logins) logIn(r *http.Request, token string) *http.Cookie {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := find(l.tokens, token)
	if at < 0 {
		return nil
	}
	s := login{role: l.tokens[at].role}
	l.tokens = slices.Delete(l.tokens, at, at+1)
	return l.addBrowser(r, s)
}

// add returns the cookie for the browser of a person.
func (l *logins) add(r *http.Request, p access.Person) *http.Cookie {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addBrowser(r, login{person: p})
}

// addBrowser returns the cookie for a login. The caller holds the mutex.
func (l *logins) addBrowser(r *http.Request, s login) *http.Cookie {
	var value string
	value, s.hash = newSecret()
	s.ends = time.Now().Add(loginTime)
	l.browsers = added(l.browsers, s, maxLogins)
	return l.newCookie(r, value, int(loginTime.Seconds()))
}

func (l *logins) newCookie(r *http.Request, value string, seconds int) *http.Cookie {
	name := l.cookieName(r)
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: name != l.cookie}
}

// login returns the login of a request, or nil.
func (l *logins) login(r *http.Request) *login {
	if person, ok := r.Context().Value(personKey{}).(access.Person); ok {
		return &login{person: person}
	}
	cookie, err := r.Cookie(l.cookieName(r))
	if err != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := find(l.browsers, cookie.Value); at >= 0 {
		s := l.browsers[at]
		return &s
	}
	return nil
}

// logOut ends the login of a request.
func (l *logins) logOut(r *http.Request) {
	cookie, err := r.Cookie(l.cookieName(r))
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := find(l.browsers, cookie.Value); at >= 0 {
		l.browsers = slices.Delete(l.browsers, at, at+1)
	}
}

func (c *Console) loginRoutes() []*page.Route {
	return []*page.Route{
		{Path: loginPath, Role: page.RoleAnyone, Title: "Log in", View: c.loginView},
		{Path: loginPath, Role: page.RoleAnyone, Post: true, Serve: c.logIn},
		{Path: logoutPath, Role: page.RoleViewer, Act: func(r *page.Request) (*page.Outcome, error) {
			c.logins.logOut(r.Request)
			return &page.Outcome{Location: loginPath}, nil
		}},
	}
}

// A loginPage is the data of the login page.
type loginPage struct {
	Next     string // the page after the login
	Failed   bool
	Keys     bool   // a key may log in, besides a token
	Identity string // the path of the login at the identity provider; empty without it
}

func (c *Console) loginView(r *page.Request) (*page.View, error) {
	return &page.View{Body: loginBody(newLoginPage(c.opts.Access, localPath(r.URL.Query().Get("next"))))}, nil
}

func newLoginPage(a *access.Access, next string) *loginPage {
	p := &loginPage{Next: next}
	if a != nil {
		p.Keys = a.LogIn != nil
		if a.Identity != nil {
			p.Identity = identityPath + "?" + url.Values{"next": {next}}.Encode()
		}
	}
	return p
}

// localPath returns a path of the console, or "" for the URL of another site.
func localPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") ||
		strings.ContainsAny(text, "\\\r\n\t") {
		return ""
	}
	return text
}

// logIn exchanges a token for a cookie. login.js sends it from the fragment of the URL, or a person
// pastes it.
func (c *Console) logIn(w http.ResponseWriter, r *page.Request) error {
	token := strings.TrimSpace(r.PostFormValue("token"))
	if _, after, ok := strings.Cut(token, "#t="); ok { // the whole URL was pasted
		token = after
	}
	next := localPath(r.PostFormValue("next"))
	var cookie *http.Cookie
	if user := r.Context().Value(userKey{}); user == nil {
		cookie = c.logins.logIn(r.Request, token)
	} else if c.opts.Access == nil { // the other user may be a proxy in front of a remote console
		c.opts.Logger.Warn("console: login refused: another user of this machine sent the token", "uid", user)
		http.Error(w, "the link is for the user who started the console", http.StatusForbidden)
		return nil
	}
	if cookie == nil {
		cookie = remote{c}.logInKey(r.Request, token)
	}
	if cookie == nil {
		c.opts.Logger.Warn("console: login refused: the token or key is invalid, was used or has expired",
			"address", r.RemoteAddr)
		data := newLoginPage(c.opts.Access, next)
		data.Failed = true
		c.showView(w, r, nil, http.StatusForbidden, &page.View{Title: "Log in", Body: loginBody(data)})
		return nil
	}
	http.SetCookie(w, cookie)
	next = cmp.Or(next, c.opts.Home)
	if isScript(r.Request) {
		writeJSON(w, http.StatusOK, &response{Location: next})
		return nil
	}
	http.Redirect(w, r.Request, next, http.StatusSeeOther)
	return nil
}

// A userKey is the key of the user ID in the context of the connections of another user of this
// machine, who must not use the token or the cookie of the local user.
type userKey struct{}

func withOtherUser(ctx context.Context, c net.Conn) context.Context {
	if uid, ok := otherUser(c.RemoteAddr().String(), c.LocalAddr().String()); ok {
		return context.WithValue(ctx, userKey{}, uid)
	}
	return ctx
}
