package doctor

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
)

const (
	// dialTimeout bounds the lookup of the host, and connecting, as in package network.
	dialTimeout = 10 * time.Second
	// maxShown limits the addresses and names of a server that are shown: some have a hundred.
	maxShown = 8
)

// A web checks a URL.
type web struct {
	*run
	url       *url.URL
	proxy     *url.URL // nil without a proxy
	addresses []netip.Addr
	reply     *reply // to the first message, after redirects
	failed    error  // of the exchange without a reply
	events    bool   // the server speaks HTTP+SSE only

	named    string   // the URL of the metadata in the challenge, or ""
	issuers  []string // that the metadata of the resource names
	canLogIn bool     // a login is stored, or succeeded
	login    *loginRun
}

func (w *web) checks() {
	w.check("url", "parse the URL", "", w.parse)
	w.check("dns", "look up the host", "url", w.lookUp)
	w.check("proxy", "look for a proxy in the environment", "url", w.findProxy)
	w.check("tcp", "connect", "url dns proxy", w.connect)
	w.check("tls", "verify the certificate", "tcp", w.verifyTLS)
	w.check("redirect", "POST initialize and follow redirects within the origin", "tls", w.followRedirects)
	w.check("http", "look at the response", "redirect", w.judgeReply)
	w.check("session", "POST ping, GET and DELETE in the session", "http", w.followUp)
	w.loginCheck("challenge", "read the challenge of the response", "http", w.readChallenge)
	w.loginCheck("metadata", "GET the metadata of the protected resource", "challenge", w.fetchMetadata)
	w.loginCheck("server-metadata", "GET the metadata of the authorization server", "metadata", w.fetchServerMetadata)
	w.loginCheck("register", "register the client", "server-metadata", w.register)
	w.loginCheck("authorize", "let the user log in", "register", w.authorize)
	w.loginCheck("token", "exchange the code for tokens", "authorize", w.token)
	w.check("negotiate", "connect as a client", "http token", w.negotiate)
	if w.login != nil { // also of an interrupted run
		<-w.login.done
	}
}

func (w *web) parse(_ context.Context, c *Check) {
	u, err := url.Parse(w.target.URL)
	if err == nil {
		err = target.CheckServerURL(w.target.URL)
	}
	if err != nil {
		c.see("%v", err)
		c.end(Fail, "pass the URL of the server, such as https://example.com/mcp")
		return
	}
	w.url = u
	w.proxy, _ = http.ProxyFromEnvironment(&http.Request{URL: u}) // findProxy reports the error
	c.see("%s", target.PublicURL(w.target.URL))
	if u.Scheme == "http" && !netx.IsLocalHost(u.Hostname()) {
		c.end(Warn, "use https: the network can read and change messages over http")
	}
}

func (w *web) lookUp(ctx context.Context, c *Check) {
	host := w.url.Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		w.addresses = []netip.Addr{a}
		c.see("the host is an address")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var err error
	if w.addresses, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
		c.see("%v", err)
		c.end(Fail, "check the spelling of %s, and connect the network or VPN that knows the name", host)
		if w.proxy != nil {
			c.end(Warn, "the proxy looks the host up itself")
		}
		return
	}
	var shown []string
	for _, a := range w.addresses[:min(len(w.addresses), maxShown)] {
		shown = append(shown, a.Unmap().String())
	}
	c.see("%d found: %s", len(w.addresses), strings.Join(shown, ", "))
}

func (w *web) findProxy(_ context.Context, c *Check) {
	_, err := http.ProxyFromEnvironment(&http.Request{URL: w.url})
	variable := strings.ToUpper(w.url.Scheme) + "_PROXY"
	switch {
	case err != nil:
		c.see("%s: %v", variable, err)
		c.end(Fail, "correct or unset %s", variable)
	case w.proxy != nil:
		shown := &url.URL{Scheme: w.proxy.Scheme, Host: w.proxy.Host} // the rest may be a password
		c.see("%s: requests go through %s", variable, shown)
	default:
		c.see("none")
	}
}

// connect connects to the server or the proxy. A failure to connect names the likely reason.
func (w *web) connect(ctx context.Context, c *Check) {
	at, what := w.url, "the server"
	if w.proxy != nil {
		at, what = w.proxy, "the proxy"
	}
	port := at.Port()
	if port == "" {
		port = map[string]string{"http": "80", "socks5": "1080", "socks5h": "1080"}[at.Scheme]
	}
	if port == "" {
		port = "443"
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", net.JoinHostPort(at.Hostname(), port))
	if err == nil {
		c.see("connected to %s at %s", what, conn.RemoteAddr())
		_ = conn.Close()
		return
	}
	c.see("%v", err)
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		c.end(Fail, "start %s, or correct the port: no program listens at port %s", what, port)
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		c.end(Fail, "connect to the network of %s%s", what, w.onlyIPv6())
	case errors.As(err, &timeout) && timeout.Timeout():
		c.end(Fail, "no response within %v: check the port, firewalls, a VPN%s", dialTimeout, w.onlyIPv6())
	default:
		c.end(Fail, "check the host and port of %s", what)
	}
}

// onlyIPv6 explains a failure to reach a host without an IPv4 address.
func (w *web) onlyIPv6() string {
	for _, a := range w.addresses {
		if a.Unmap().Is4() {
			return ""
		}
	}
	return "; the host has only IPv6 addresses, which this machine may not be able to reach"
}

func (w *web) followRedirects(ctx context.Context, c *Check) {
	at := w.url
	for range maxRedirects + 1 {
		w.reply, w.failed = w.initialize(ctx, at, w.header())
		if w.failed != nil || w.reply.status/100 != 3 {
			if len(c.Seen) == 0 {
				c.see("none")
			}
			return
		}
		to, err := at.Parse(w.reply.header.Get("Location"))
		if err != nil || w.reply.header.Get("Location") == "" {
			c.see("HTTP %d without a valid Location", w.reply.status)
			c.end(Fail, "correct the server: a redirect names its target in the header Location")
			return
		}
		shown := target.PublicURL(to.String())
		c.see("HTTP %d to %s", w.reply.status, shown)
		keepsMethod := w.reply.status == http.StatusTemporaryRedirect || w.reply.status == http.StatusPermanentRedirect
		switch {
		case !keepsMethod && strings.Trim(to.Path, "/") != strings.Trim(at.Path, "/"):
			c.end(Fail, "open %s in a browser: HTTP %d turns a POST into a GET, as for a login page or documentation; "+
				"if a proxy requires the login, let MCP requests pass the proxy", shown, w.reply.status)
			return
		case to.Scheme != at.Scheme || to.Host != at.Host:
			c.end(Fail, "connect to %s if you trust it: credentials and messages are not sent to another origin", shown)
			return
		case !keepsMethod:
			c.end(Fail, "connect to %s: clients do not follow a redirect that turns a POST into a GET", shown)
			return
		}
		c.end(Warn, "connect to %s: some clients do not follow redirects of a POST", shown)
		at = to
	}
	c.end(Fail, "correct the server: more than %d redirects", maxRedirects)
}

// nextOf are the next steps for a response without a message, by its status. Others may be from a
// server of another revision.
var nextOf = map[int]string{
	http.StatusForbidden:          "check the rights of the credentials, and the hosts that the server accepts",
	http.StatusMisdirectedRequest: "add the host of the URL to the hosts that the server accepts",
	http.StatusProxyAuthRequired:  "add the credentials of the proxy to the variable HTTPS_PROXY or HTTP_PROXY",
	http.StatusTooManyRequests:    "wait before you run the doctor again: the server limits requests",
	http.StatusBadGateway:         nextOfProxy,
	http.StatusServiceUnavailable: nextOfProxy,
	http.StatusGatewayTimeout:     nextOfProxy,
}

const nextOfProxy = "start the server behind the proxy or load balancer, which responds instead of it"

// judgeReply finds the reason why a reply is not that of a server.
func (w *web) judgeReply(ctx context.Context, c *Check) {
	if w.failed != nil {
		c.see("no response: %v", w.failed)
		c.end(Fail, "look at the log of the server or its proxy")
		if errors.Is(w.failed, context.DeadlineExceeded) {
			c.end(Fail, "look at the log of the server: it does not respond within %v", exchangeTimeout)
		}
		return
	}
	a := w.reply
	c.see("POST %s -> %s in %s, Content-Type %q", target.PublicURL(a.url.String()), statusText(a.status),
		rounded(a.took), a.header.Get("Content-Type"))
	want := typeJSON
	if a.isEvents() {
		want = typeEvents
	}
	if a.status == http.StatusUnauthorized || a.message() != nil && a.kind() == want {
		return // challenge explains the status
	}
	c.see("body %s", w.secrets.excerpt(a.body))
	next := nextOf[a.status]
	switch {
	case a.message() != nil:
		c.end(Fail, "correct the server: the response is a message, whose Content-Type must be %s", want)
	case next != "":
		c.end(Fail, "%s", next)
	case a.status/100 == 5:
		c.end(Fail, "look at the log of the server")
	case a.status/100 == 4, a.kind() == typeHTML:
		w.explainPath(ctx, c)
	default:
		c.end(Warn, "see negotiate, which shows whether the server speaks another revision: the response is no message")
	}
}

// explainPath looks for a server of HTTP+SSE, and for the server at the usual path.
func (w *web) explainPath(ctx context.Context, c *Check) {
	res, err := w.exchange(ctx, http.MethodGet, w.url, "", w.header())
	if err == nil && res.status == http.StatusOK && res.kind() == typeEvents {
		c.see("GET -> 200 %s", typeEvents)
		w.events = true
		c.end(Warn, "this server speaks HTTP+SSE, which revision 2025-03-26 replaced: new clients may lack it")
		return
	}
	what := "no MCP server is at this path"
	if w.reply.kind() == typeHTML {
		what = "this is a web page, not an MCP server"
	} else if w.reply.status != http.StatusNotFound && w.reply.status != http.StatusMethodNotAllowed {
		c.end(Warn, "see negotiate, which shows whether the server speaks another revision: it refuses initialize")
		return
	}
	base := &url.URL{Scheme: w.url.Scheme, Host: w.url.Host, Path: w.url.Path} // without credentials
	root := base.ResolveReference(&url.URL{Path: connect.Endpoint})
	for _, guess := range []*url.URL{base.JoinPath(connect.Endpoint), root} {
		if guess.Path != w.url.Path && w.isServer(ctx, guess) {
			c.see("an MCP server responds at %s", guess)
			c.end(Fail, "%s: connect to %s", what, guess)
			return
		}
	}
	c.see("no MCP server responds at %s", connect.Endpoint)
	c.end(Fail, "%s: look for the URL in the documentation of the server", what)
}

// isServer reports whether a server or a login is at a URL that the user did not name, to which no
// header is sent.
func (w *web) isServer(ctx context.Context, at *url.URL) bool {
	a, err := w.initialize(ctx, at, nil)
	return err == nil && (a.message() != nil || a.status == http.StatusUnauthorized)
}

func (w *web) followUp(ctx context.Context, c *Check) {
	if m := w.reply.message(); w.events || m == nil || m["error"] != nil {
		c.skip("the server opened no session")
		return
	}
	header, id := w.header(), w.reply.header.Get(headerSession)
	if id != "" {
		w.secrets.add(id)
		sum := sha256.Sum256([]byte(id))
		c.see("%s with the hash %x", headerSession, sum[:3])
		header.Set(headerSession, id)
	} else {
		c.see("no %s: the server keeps no session", headerSession)
	}
	requests := []struct{ method, body string }{{http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"ping"}`},
		{http.MethodGet, ""}, {http.MethodDelete, ""}}
	for _, r := range requests {
		if id == "" && r.method == http.MethodDelete {
			return
		}
		a, err := w.exchange(ctx, r.method, w.reply.url, r.body, header)
		if err != nil {
			c.see("%s: %v", r.method, err)
			c.end(Warn, "look at the log of the server or its proxy")
			continue
		}
		c.see("%s -> %s", r.method, statusText(a.status))
		switch {
		case r.method != http.MethodPost || a.status/100 == 2:
		case id == "":
			c.end(Fail, "let the proxy pass the header %s, which the response to initialize lacked", headerSession)
		default:
			c.end(Fail, "route all requests of a session to the same replica, which alone knows the session")
		}
	}
}
