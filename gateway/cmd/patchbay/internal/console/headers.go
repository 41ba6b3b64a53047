package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
)

// contentPolicy is the Content-Security-Policy of each response. A page can load only files of the
// console, and HTML becomes part of a page only through the Trusted Types policy of trust.js.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; " +
	"media-src 'self' data: blob:; connect-src 'self'; form-action 'self'; frame-src 'none'; base-uri 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types console"

// policyWith returns contentPolicy for a page with frames of an origin. A frame cannot navigate to
// another origin.
func policyWith(frames string) string {
	return strings.Replace(contentPolicy, "frame-src 'none'", "frame-src "+frames, 1)
}

// setHeaders sets the headers of each response.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// A refusal is the response to a request that is not served.
type refusal struct {
	status int
	text   string
}

// ServeHTTP checks a request in the order: host, origin, path, login, role. Then it serves the
// request.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	if !c.isHost(r.Host) {
		http.Error(w, "invalid header Host: open the link that the command prints", http.StatusForbidden)
		return
	}
	if err := checkOrigin(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	r, err := remote{c}.fromProxy(r)
	if err != nil {
		c.opts.Logger.Warn("console: request refused", "error", err, "address", r.RemoteAddr)
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	req := c.site.Request(r, nil, "")
	o, refused := c.admit(req)
	if refused != nil {
		c.refuse(w, req, refused)
		return
	}
	if !o.Stream {
		out := http.NewResponseController(w)
		_ = out.SetReadDeadline(time.Now().Add(writeTimeout))  // fails only in tests
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails only in tests
	}
	req.Check = func() bool { return c.identify(req) && req.Role.Grants(o.Role) }
	defer remote{c}.bind(req)()
	c.dispatch(w, req, o)
}

// isHost reports whether a header Host names this console. Any other name may belong to a page that
// resolved its own name to this machine.
func (c *Console) isHost(host string) bool {
	u, err := url.Parse("http://" + host)
	return err == nil && host != "" && u.Host == host && (host == c.logins.public ||
		netx.IsLocalHost(u.Hostname()) || slices.Contains(c.opts.Hosts, u.Hostname()))
}

// checkOrigin refuses requests of other sites: each request that may change something, and any use
// of a response but its display as a page.
func checkOrigin(r *http.Request) error {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return err
	}
	site := r.Header.Get("Sec-Fetch-Site")
	isPage := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	if site != "" && site != "same-origin" && site != "none" && !isPage {
		return errors.New("cross-origin request refused")
	}
	return nil
}

// admit sets who sent a request, and returns its route. It refuses a request without a login before
// it tells whether a path exists.
func (c *Console) admit(r *page.Request) (*page.Route, *refusal) {
	routes := c.paths[r.URL.Path]
	at := slices.IndexFunc(routes, func(o *page.Route) bool {
		return o.Method() == r.Method || o.Method() == http.MethodGet && r.Method == http.MethodHead
	})
	isPublic := at >= 0 && routes[at].Role == page.RoleAnyone
	if !isPublic && !c.identify(r) {
		return nil, &refusal{http.StatusUnauthorized, endedText(c.opts.Access)}
	}
	switch {
	case len(routes) == 0:
		return nil, &refusal{http.StatusNotFound, "There is no page at " + r.URL.Path + "."}
	case at < 0:
		return nil, &refusal{http.StatusMethodNotAllowed, "The method is not allowed here."}
	case !r.Role.Grants(routes[at].Role):
		return nil, &refusal{http.StatusForbidden, "This requires the role " + string(routes[at].Role) +
			", and yours is " + string(r.Role) + "."}
	}
	return routes[at], nil
}

// identify sets who sent a request, and reports whether that is known.
func (c *Console) identify(r *page.Request) bool {
	if c.opts.Authenticate == nil {
		s := c.logins.login(r.Request)
		if s == nil {
			return false
		}
		r.Role = s.role
		if s.person == nil { // the local user
			return r.Context().Value(userKey{}) == nil
		}
		p, role, err := s.person.Check()
		r.Principal, r.Role = p, page.Role(role)
		return err == nil
	}
	p, role, err := c.opts.Authenticate(r.Request)
	r.Principal, r.Role = p, role
	return err == nil && (role == page.RoleViewer || role == page.RoleOperator)
}

// refuse responds to a request that is not served: with the login page for a page, and with a text
// for a script.
func (c *Console) refuse(w http.ResponseWriter, r *page.Request, p *refusal) {
	isPage := r.Method == http.MethodGet && !strings.HasPrefix(r.URL.Path, assetPrefix) && !isScript(r.Request)
	switch {
	case isPage && p.status == http.StatusUnauthorized && c.opts.Authenticate == nil:
		next := url.Values{"next": {r.URL.RequestURI()}}
		http.Redirect(w, r.Request, loginPath+"?"+next.Encode(), http.StatusSeeOther)
	case isPage && p.status != http.StatusUnauthorized:
		c.showError(w, r, p.status, "", p.text)
	default:
		http.Error(w, p.text, p.status)
	}
}

// isScript reports whether a script of the console sent a request, and not a form or a link.
func isScript(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return mode != "" && mode != "navigate" || r.Header.Get("X-Console") != ""
}
