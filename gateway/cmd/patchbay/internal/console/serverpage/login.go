package serverpage

import (
	"maps"
	"net/url"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A login is a login at a server that waits for its user. Its page is a secret, for one visit.
type login struct {
	URL     *url.URL
	All     bool // requests of all callers use the login
	Expires time.Time
}

// logins are the pending logins that persons began. The zero logins are ready to use. They are safe
// for concurrent use.
type logins struct {
	mu  sync.Mutex // guards the field below
	all map[[2]string]login
}

func keyOf(r *page.Request, server string) [2]string {
	return [2]string{question.PersonOf(r.Principal), server}
}

// of returns the pending login that a person began at a server, or nil.
func (l *logins) of(r *page.Request, server string) *login {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.all[keyOf(r, server)]
	if !ok || time.Now().After(found.Expires) {
		return nil
	}
	return &found
}

// keep remembers a login, and forgets the logins that expired.
func (l *logins) keep(r *page.Request, server string, begun login) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[[2]string]login{}
	}
	maps.DeleteFunc(l.all, func(_ [2]string, old login) bool { return time.Now().After(old.Expires) })
	l.all[keyOf(r, server)] = begun
}

func (l *logins) forget(r *page.Request, server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, keyOf(r, server))
}

// login begins a login of the local user at the server of a form. The page then shows its address,
// which the person opens.
func (s *screen) login(r *page.Request) (*page.Outcome, error) {
	name := r.PostFormValue("server")
	var begun struct {
		URL     string
		All     bool
		Expires time.Time
	}
	if err := r.Post("/servers/"+url.PathEscape(name)+":login", nil, &begun); err != nil {
		return nil, err
	}
	address, err := oauthclient.CheckPage(begun.URL)
	if err != nil {
		return nil, err
	}
	s.logins.keep(r, name, login{address, begun.All, begun.Expires})
	return s.toTab(name, "Open the page to log in.")
}

// logout ends the login of the local user.
func (s *screen) logout(r *page.Request) (*page.Outcome, error) {
	name := r.PostFormValue("server")
	if err := r.Post("/servers/"+url.PathEscape(name)+":logout", nil, nil); err != nil {
		return nil, err
	}
	s.logins.forget(r, name)
	return s.toTab(name, "Logged out of "+name+".")
}

func (s *screen) toTab(server, message string) (*page.Outcome, error) {
	s.site.Changed()
	to, err := page.Link("/server", "server", server, "tab", "login")
	return &page.Outcome{Location: to, Message: message}, err
}
