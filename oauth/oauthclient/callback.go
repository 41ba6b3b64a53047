package oauthclient

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/netx"
)

const (
	// callbackPath is the path of the redirect URI if none is registered.
	callbackPath = "/callback"
	// maxCallbackHeader bounds the header block of a request, in bytes. Browsers send the cookies
	// of all programs on this machine.
	maxCallbackHeader = 64 << 10
	// callbackReadTimeout bounds reading a request.
	callbackReadTimeout = 10 * time.Second
	// outcomeTimeout is how long the page waits for the outcome of the login: as long as a token
	// request.
	outcomeTimeout = 15 * time.Second
	// closeTimeout is how long Close waits until the page is sent.
	closeTimeout = 2 * time.Second
)

// A loopbackCallback receives the response of a login on this machine.
type loopbackCallback struct {
	browser *Browser
	uri     *url.URL
	server  *http.Server
	serving sync.WaitGroup
	answers chan url.Values // buffered, at most one

	mu       sync.Mutex    // guards the fields below
	login    *LoginRequest // nil before Authorize
	answered bool          // set when the response has arrived
	closed   bool
	outcome  error         // of the login, once ended is closed
	ended    chan struct{} // closed by Close
	pages    sync.WaitGroup
}

// listenCallback listens at the first redirect URI where that is possible, at any port if there are
// none.
func listenCallback(ctx context.Context, b *Browser, redirectURIs []string) (*loopbackCallback, error) {
	if len(redirectURIs) == 0 {
		redirectURIs = []string{"http://127.0.0.1" + callbackPath}
	}
	var all []error
	for _, text := range redirectURIs {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" || !netx.IsLoopback(u.Hostname()) || u.RawQuery != "" ||
			u.User != nil || u.Fragment != "" {
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
		return nil, errors.New("oauth: none of the client's redirect URIs is http with a loopback host, which the " +
			"browser login needs")
	}
	return nil, fmt.Errorf("oauth: listen for the authorization response: %w", errors.Join(all...))
}

// listenOn listens at the host of a redirect URI and sets its port. localhost has two addresses,
// and browsers differ in which they use.
func listenOn(ctx context.Context, u *url.URL) ([]net.Listener, error) {
	var config net.ListenConfig
	port, host := u.Port(), u.Hostname()
	if port == "" {
		port = "0"
	}
	var listeners []net.Listener
	var err error
	if strings.EqualFold(host, "localhost") {
		listeners, err = listenOnBoth(ctx, &config, port)
	} else if a, bad := netip.ParseAddr(host); bad != nil || !a.IsLoopback() {
		err = errors.New("invalid host: must be localhost or a loopback address")
	} else {
		var one net.Listener
		one, err = config.Listen(ctx, "tcp", net.JoinHostPort(host, port))
		listeners = []net.Listener{one}
	}
	if err != nil {
		return nil, err
	}
	u.Host = net.JoinHostPort(host, strconv.Itoa(listeners[0].Addr().(*net.TCPAddr).Port))
	return listeners, nil
}

// listenOnBoth listens at both addresses of localhost, only at the first if there is no IPv6. It is
// an error if another program has the port at the second address, since it could receive the
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
			return []net.Listener{first}, nil // browsers have no IPv6 either
		}
		_ = other.Close()
		_ = first.Close()
		if port != "0" || try == tries {
			return nil, err
		}
	}
}

// matchesHost reports whether a Host header is that of a URL. Browsers write it in lower case and
// omit port 80.
func matchesHost(u *url.URL, host string) bool {
	return strings.EqualFold(host, u.Host) || u.Port() == "80" && strings.EqualFold(host+":80", u.Host)
}

func newCallback(b *Browser, u *url.URL, listeners []net.Listener) *loopbackCallback {
	if u.Path == "" {
		u.Path = "/"
	}
	c := &loopbackCallback{browser: b, uri: u, answers: make(chan url.Values, 1), ended: make(chan struct{})}
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

// RedirectURI returns the redirect URI with its port.
func (c *loopbackCallback) RedirectURI() string { return c.uri.String() }

// Authorize opens the page and returns the response.
func (c *loopbackCallback) Authorize(ctx context.Context, login *LoginRequest) (url.Values, error) {
	c.mu.Lock()
	c.login = login
	c.mu.Unlock()
	return c.browser.authorize(ctx, login, c.answers)
}

// Close shows the outcome on the waiting page and stops the server.
func (c *loopbackCallback) Close(outcome error) {
	c.mu.Lock()
	if !c.closed {
		c.closed, c.outcome = true, outcome
		close(c.ended)
	}
	c.mu.Unlock()
	sent := make(chan struct{})
	go func() { // ends when the pages are sent or the server is closed
		c.pages.Wait()
		close(sent)
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-sent:
	case <-timer.C:
	}
	_ = c.server.Close()
	c.serving.Wait()
	<-sent
}

// ServeHTTP serves a request of the browser.
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
	isFirst := isExpected && !c.answered
	c.answered = c.answered || isExpected
	c.mu.Unlock()
	switch {
	case !isExpected:
		writePage(w, http.StatusBadRequest, pageUnexpected)
		return
	case !isFirst:
		writePage(w, http.StatusGone, pageRepeated.of(login))
		return
	}
	c.answers <- query
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
