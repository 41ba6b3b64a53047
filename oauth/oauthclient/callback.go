package oauthclient

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/markup"
	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
)

const (
	// callbackPath is the path of the redirect URI if no URI is registered.
	callbackPath = "/callback"
	// maxCallbackHeader limits the header block, in bytes. Browsers send the cookies of localhost.
	maxCallbackHeader   = 64 << 10
	callbackReadTimeout = 10 * time.Second
	// outcomeTimeout is how long the page waits for the outcome of the login.
	outcomeTimeout = 15 * time.Second
	// closeTimeout is how long Close waits until the page is sent.
	closeTimeout = 2 * time.Second
)

type loopbackCallback struct {
	browser   *Browser
	uri       *url.URL
	server    *http.Server
	serving   sync.WaitGroup
	responses chan url.Values // buffered, at most one

	mu       sync.Mutex    // guards the fields below
	login    *LoginRequest // nil before Authorize
	answered bool          // set when the response arrived
	closed   bool
	outcome  error         // of the login, once ended is closed
	ended    chan struct{} // closed by Close
	pages    sync.WaitGroup
}

// listenCallback listens at the first possible redirect URI, at any port if there is no URI.
func listenCallback(ctx context.Context, b *Browser, redirectURIs []string) (*loopbackCallback, error) {
	if len(redirectURIs) == 0 {
		redirectURIs = []string{"http://127.0.0.1" + callbackPath}
	}
	var all []error
	for _, text := range redirectURIs {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" || !netx.IsLoopback(u.Hostname()) ||
			u.RawQuery != "" || u.User != nil || u.Fragment != "" {
			continue // for another Authorizer
		}
		listeners, err := listenOn(ctx, u)
		if err != nil {
			all = append(all, err)
			continue
		}
		return newCallback(b, u, listeners), nil
	}
	if len(all) == 0 {
		return nil, errors.New("oauth: the browser login needs a redirect URI that is http with a loopback host")
	}
	return nil, fmt.Errorf("oauth: listen for the authorization response: %w", errors.Join(all...))
}

// listenOn listens at the host of a redirect URI and sets its port. localhost resolves to two
// addresses, and browsers differ in which they use.
func listenOn(ctx context.Context, u *url.URL) ([]net.Listener, error) {
	var config net.ListenConfig
	port, host := cmp.Or(u.Port(), "0"), u.Hostname()
	var listeners []net.Listener
	var err error
	if strings.EqualFold(host, "localhost") {
		listeners, err = listenOnBoth(ctx, &config, port)
	} else {
		listeners = make([]net.Listener, 1)
		listeners[0], err = config.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	}
	if err != nil {
		return nil, err
	}
	u.Host = net.JoinHostPort(host, strconv.Itoa(listeners[0].Addr().(*net.TCPAddr).Port))
	return listeners, nil
}

// listenOnBoth listens at both addresses of localhost, only at the first if there is no IPv6. It is
// an error if another program uses the port at the second address, since it could receive the
// response.
func listenOnBoth(ctx context.Context, config *net.ListenConfig, port string) ([]net.Listener, error) {
	const tries = 5 // to find a port that is free at both addresses
	for try := 1; ; try++ {
		first, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			return nil, err
		}
		same := strconv.Itoa(first.Addr().(*net.TCPAddr).Port)
		second, err := config.Listen(ctx, "tcp", net.JoinHostPort("::1", same))
		if err == nil {
			return []net.Listener{first, second}, nil
		}
		other, failed := config.Listen(ctx, "tcp", "[::1]:0")
		if failed != nil {
			return []net.Listener{first}, nil // browsers cannot use IPv6 either
		}
		_ = other.Close()
		_ = first.Close()
		if port != "0" || try == tries {
			return nil, err
		}
	}
}

// matchesHost reports whether a Host header is that of a URL. Browsers omit port 80.
func matchesHost(u *url.URL, host string) bool {
	return strings.EqualFold(host, u.Host) || u.Port() == "80" && strings.EqualFold(host+":80", u.Host)
}

func newCallback(b *Browser, u *url.URL, listeners []net.Listener) *loopbackCallback {
	u.Path = cmp.Or(u.Path, "/")
	c := &loopbackCallback{browser: b, uri: u, responses: make(chan url.Values, 1), ended: make(chan struct{})}
	c.server = &http.Server{
		Handler: c, ReadTimeout: callbackReadTimeout, MaxHeaderBytes: maxCallbackHeader,
		ErrorLog: log.New(io.Discard, "", 0), // malformed requests to the port
	}
	c.server.SetKeepAlivesEnabled(false)
	for _, listener := range listeners {
		c.serving.Go(func() { _ = c.server.Serve(listener) }) // ends with Close
	}
	return c
}

func (c *loopbackCallback) RedirectURI() string { return c.uri.String() }

func (c *loopbackCallback) Authorize(ctx context.Context, login *LoginRequest) (url.Values, error) {
	c.mu.Lock()
	c.login = login
	c.mu.Unlock()
	return c.browser.authorize(ctx, login, c.responses)
}

// Close shows the outcome on the waiting page and stops the server.
func (c *loopbackCallback) Close(outcome error) {
	c.mu.Lock()
	if !c.closed {
		c.closed, c.outcome = true, outcome
		close(c.ended)
	}
	c.mu.Unlock()
	timer := time.AfterFunc(closeTimeout, func() { _ = c.server.Close() }) // ends the pages
	c.pages.Wait()
	timer.Stop()
	_ = c.server.Close()
	c.serving.Wait()
}

func (c *loopbackCallback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.pages.Add(1)
	c.mu.Unlock()
	defer c.pages.Done()
	switch {
	case !matchesHost(c.uri, r.Host):
		writePage(w, http.StatusMisdirectedRequest, pageUnexpected) // DNS rebinding
	case r.URL.EscapedPath() != c.uri.EscapedPath():
		writePage(w, http.StatusNotFound, pageUnexpected)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		writePage(w, http.StatusMethodNotAllowed, pageUnexpected)
	default:
		c.handleResponse(w, r)
	}
}

func (c *loopbackCallback) handleResponse(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	state := query["state"]
	c.mu.Lock()
	login := c.login
	isExpected := err == nil && len(state) == 1 && login != nil && login.State != "" &&
		subtle.ConstantTimeCompare([]byte(state[0]), []byte(login.State)) == 1
	isRepeated := isExpected && c.answered
	c.answered = c.answered || isExpected
	c.mu.Unlock()
	switch {
	case !isExpected:
		writePage(w, http.StatusBadRequest, pageUnexpected)
		return
	case isRepeated:
		writePage(w, http.StatusGone, pageRepeated.of(login))
		return
	}
	c.responses <- query
	timer := time.NewTimer(outcomeTimeout)
	defer timer.Stop()
	select {
	case <-c.ended:
		c.mu.Lock()
		outcome := c.outcome
		c.mu.Unlock()
		writePage(w, http.StatusOK, outcomePage(outcome).of(login))
	case <-r.Context().Done():
	case <-timer.C:
		writePage(w, http.StatusOK, pagePending.of(login))
	}
}

type page struct {
	title, text     string // title and text are plain text, as all fields are
	detail          string // of the authorization server; may be empty
	server, program string // of the login; empty for requests without its state
}

func (p page) of(login *LoginRequest) page {
	if u, err := url.Parse(login.Server); err == nil {
		p.server = oauthfetch.CleanText(u.Host, maxShown)
	}
	p.program = oauthfetch.CleanText(login.Program, maxShown)
	return p
}

// maxShown limits a name on a page, in bytes: no host is longer.
const maxShown = 255

var (
	pageUnexpected = page{title: "Unexpected request",
		text: "This request does not belong to a login in progress. You can close this page."}
	pageRepeated = page{title: "Login already completed",
		text: "The response to this login was received before. You can close this page."}
	pagePending = page{title: "Almost done",
		text: "The response was received. The program shows how the login ends; you can close this page."}
	pageDone = page{title: "You are logged in", text: "You can close this page and go back to the program."}
)

func outcomePage(outcome error) page {
	if outcome == nil {
		return pageDone
	}
	refused, ok := errors.AsType[*LoginError](outcome)
	switch {
	case !ok:
		return page{title: "Login failed", text: "The program shows the reason. You can close this page."}
	case refused.Code == "access_denied":
		return page{title: "You are not logged in", text: "Access was declined. You can close this page."}
	}
	return page{title: "Login failed", detail: strings.TrimSuffix(refused.Code+": "+refused.Description, ": "),
		text: "The authorization server refused the login. The program shows details; you can close this page."}
}

const pageStyle = `:root{color-scheme:light dark}*{box-sizing:border-box}` +
	`body{margin:0;padding:12vh 1rem 2rem;display:flex;justify-content:center;` +
	`background:#f2f4f7;color:#16191d;font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}` +
	`main{width:100%;max-width:30rem;padding:2rem;background:#fff;` +
	`border:1px solid #d5dbe2;border-radius:12px;align-self:start}` +
	`h1{margin:0 0 .75rem;font-size:1.375rem;line-height:1.3;font-weight:650}p{margin:.5rem 0}` +
	`p.detail{font-family:ui-monospace,monospace;font-size:.875rem;color:#55606c}` +
	`dl{margin:1.5rem 0 0;padding-top:1.25rem;border-top:1px solid #d5dbe2;` +
	`display:grid;grid-template-columns:max-content 1fr;gap:.375rem 1rem}` +
	`dt{color:#55606c}dd{margin:0;min-width:0}` +
	`@media(max-width:26rem){body{padding:1rem .75rem}main{padding:1.25rem}}` +
	`@media(prefers-color-scheme:dark){body{background:#121519;color:#e9ecf0}main{background:#1c2026}` +
	`main,dl{border-color:#39414c}p.detail,dt{color:#a4aeba}}`

// writePage sends a page without external resources and scripts.
func writePage(w http.ResponseWriter, status int, p page) {
	body := `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">` +
		`<meta name="viewport" content="width=device-width">` +
		`<title>` + markup.Text(p.title) + `</title><style>` + pageStyle + `</style></head><body><main><h1>` +
		markup.Text(p.title) + `</h1><p>` + markup.Text(p.text) + `</p>`
	if p.detail != "" {
		body += `<p class="detail">` + markup.Text(p.detail) + `</p>`
	}
	if p.server != "" {
		body += `<dl><dt>MCP server</dt><dd><bdi>` + markup.Text(p.server) +
			`</bdi></dd><dt>Program</dt><dd><bdi>` + markup.Text(p.program) + `</bdi></dd></dl>`
	}
	body += `</main></body></html>`
	style := sha256.Sum256([]byte(pageStyle))
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(style[:])+
			"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
	_ = http.NewResponseController(w).Flush() // Close stops the server once the page is written
}
