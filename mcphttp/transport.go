package mcphttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Limits of what a client spends on a server, beside those of [TransportOptions].
const (
	// connectTimeout bounds each of the steps to a connection. It is short: a server that is there answers at once, and
	// one that is not should be found out before people give up.
	connectTimeout = 10 * time.Second
	// idleConnTimeout is less than the time after which our own server closes an idle connection, so that requests
	// seldom meet one that is just being closed.
	idleConnTimeout = 90 * time.Second
	// idleConns is how many connections to a server wait for the next request: enough for as many parallel calls as a
	// busy host makes.
	idleConns = 64
	// pingInterval and pingTimeout find out that the other end of an HTTP/2 connection is gone, on which streams would
	// otherwise wait for ever.
	pingInterval, pingTimeout = 30 * time.Second, 15 * time.Second
	// maxResponseHeader bounds the header block of a response, as that of a request is bounded.
	maxResponseHeader = 64 << 10
	// maxRedirects bounds the redirects of one GET, all of them within the origin.
	maxRedirects = 5
	// closeTimeout is how long closing waits for what runs in the background and has been told to end.
	closeTimeout = 2 * time.Second
)

// TransportOptions configures a [Transport]. The zero value is right for most clients.
type TransportOptions struct {
	// Client sends the HTTP requests; its Transport is where authorization goes. Its CheckRedirect is not used: a POST
	// is never redirected, and a GET only within the server's origin. A Timeout cuts off long calls and streams too, so
	// leave it zero and bound calls by their contexts. Default: a client with an http.Transport of its own, which takes
	// proxies from the environment, speaks HTTP/2 where the server does, gives up connecting after 10 seconds, and keeps
	// 64 idle connections.
	Client *http.Client
	// Header is sent with every request. It cannot hold the headers that the protocol itself uses, such as Accept or
	// Mcp-Session-Id.
	Header http.Header
	// Logger takes what is dropped and what fails in the background. Default: slog.Default().
	Logger *slog.Logger
	// MaxResponse is the largest JSON body of a response, in bytes after decompression. Default: 16 MiB.
	MaxResponse int
	// MaxEvent is the largest event of an event stream, in bytes. Default: 16 MiB.
	MaxEvent int
}

// A Transport is the way of a client to one server over HTTP, for [mcp.Connect]. Requests with an envelope are a POST
// each. For servers of the older revisions it opens sessions on Streamable HTTP, or on the two endpoints of HTTP+SSE
// where the server has nothing else.
//
// A request without an answer is an [*mcp.TransportError]. Within it is a [*StatusError] if what came is an HTTP
// response and no message, [ErrTooLarge] if it is beyond a limit, and [mcp.ErrClosed] if the transport or the session has
// ended. All methods are safe for concurrent use.
//
// Spec: basic/transports/streamable-http (2026-07-28), basic/transports (2025-11-25 and earlier).
type Transport struct {
	target      *url.URL
	client      *http.Client
	own         *http.Transport // of client, nil if it is the caller's
	direct      *http.Transport // of client, nil if that does more than to follow redirects
	header      http.Header     // of every GET and DELETE; never changed
	postHeader  http.Header     // of every POST; never changed
	log         *slog.Logger
	maxResponse int
	maxEvent    int
	broken      error // why nothing can be sent

	ids    atomic.Int64
	drains atomic.Bool // the server has sent a stream, whose end is to be waited for without the caller
	life   lifetime

	mu     sync.Mutex // guards the fields below
	opened map[io.Closer]struct{}
	closed bool
}

// ErrTooLarge is within the error of a request whose answer is larger than [TransportOptions] allow. The connection, on
// which the rest would follow, is closed.
var ErrTooLarge = errors.New("mcphttp: the response is too large")

// NewTransport returns a Transport to the server at an address such as https://example.com/mcp. It connects to nothing
// yet; an address or an option that cannot be used is the error of every request. opts may be nil.
func NewTransport(url string, opts *TransportOptions) *Transport {
	var o TransportOptions
	if opts != nil {
		o = *opts
	}
	setDefault(&o.MaxResponse, 16<<20)
	setDefault(&o.MaxEvent, 16<<20)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	t := &Transport{log: o.Logger, maxResponse: o.MaxResponse, maxEvent: o.MaxEvent, header: http.Header{}}
	t.opened = map[io.Closer]struct{}{}
	t.life.begin(context.Background())
	var err error
	t.target, err = parseTarget(url)
	t.broken = errors.Join(err, checkStaticHeader(o.Header),
		positive("TransportOptions.MaxResponse", o.MaxResponse), positive("TransportOptions.MaxEvent", o.MaxEvent))
	for name, values := range o.Header {
		t.header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	t.authorize()
	t.header["Accept"] = []string{typeEventStream}
	t.postHeader = t.header.Clone()
	t.postHeader["Accept"] = []string{typeJSON + ", " + typeEventStream}
	t.postHeader["Content-Type"] = []string{typeJSON}
	if o.Client == nil {
		t.own = newHTTPTransport()
		o.Client = &http.Client{Transport: t.own}
	}
	client := *o.Client
	client.CheckRedirect = checkRedirect
	t.client = &client
	if client.Jar == nil && client.Timeout == 0 {
		t.direct, _ = client.Transport.(*http.Transport)
	}
	return t
}

// authorize takes user and password out of the address of the server, where http.Client would look for them.
func (t *Transport) authorize() {
	if t.target == nil || t.target.User == nil || t.header["Authorization"] != nil {
		return
	}
	password, _ := t.target.User.Password()
	(&http.Request{Header: t.header}).SetBasicAuth(t.target.User.Username(), password)
}

// send sends an HTTP request. What is never redirected passes the http.Client by where that would add nothing but its
// cost. A header may be that of many requests: net/http leaves it as it is, and what others
// do to it must not show in the next one.
func (t *Transport) send(req *http.Request) (*http.Response, error) {
	if t.direct != nil && req.Method != http.MethodGet {
		return t.direct.RoundTrip(req)
	}
	req.Header = maps.Clone(req.Header)
	return t.client.Do(req)
}

func newHTTPTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: connectTimeout}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    connectTimeout,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingTimeout},
		MaxIdleConns:           idleConns,
		MaxIdleConnsPerHost:    idleConns,
		IdleConnTimeout:        idleConnTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
}

// parseTarget reads the address of a server. Its errors do not repeat the address, which may hold secrets.
func parseTarget(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	var bad *url.Error
	switch {
	case errors.As(err, &bad):
		return nil, fmt.Errorf("mcphttp: the address of the server is no URL: %w", bad.Err)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("mcphttp: the address of the server is no http or https URL with a host")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// reservedHeaders are what the protocol or HTTP itself decides about. Accept-Encoding is one since with it set net/http
// no longer decompresses.
var reservedHeaders = []string{
	"Accept", "Accept-Encoding", "Content-Encoding", "Content-Length", "Content-Type", "Host",
	headerVersion, headerMethod, headerName, headerSession, headerLastEvent,
}

// checkStaticHeader says what is wrong with the headers that a caller wants on every request.
func checkStaticHeader(header http.Header) error {
	for name, values := range header {
		canonical := http.CanonicalHeaderKey(name)
		if slices.Contains(reservedHeaders, canonical) || strings.HasPrefix(canonical, headerParam) {
			return fmt.Errorf("mcphttp: TransportOptions.Header: %s belongs to the protocol", canonical)
		}
		if !isToken(name) || slices.ContainsFunc(values, hasControl) {
			return fmt.Errorf("mcphttp: TransportOptions.Header: %q cannot be sent", name)
		}
	}
	return nil
}

// checkRedirect follows no redirect but a few of a GET, within the origin: a body would be sent to where its sender did
// not want it, and with it what stands in the headers.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if via[0].Method != http.MethodGet || len(via) > maxRedirects || !isOneOrigin(via[0].URL, req.URL) {
		return http.ErrUseLastResponse
	}
	return nil
}

// isOneOrigin reports whether two addresses have the same scheme, host and port.
//
// Spec: RFC 6454, section 5.
func isOneOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && portOf(a) == portOf(b)
}

func portOf(u *url.URL) string {
	switch port := u.Port(); {
	case port != "":
		return port
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// ServerKey is the address of the server without its query, by which [mcp.Connect] remembers what it has found there.
func (t *Transport) ServerKey() string {
	if t.target == nil {
		return ""
	}
	return t.target.Scheme + "://" + t.target.Host + t.target.EscapedPath()
}

// Close ends what is in progress, sessions at the server too, and closes idle connections if they are the transport's
// own. It returns within 10 seconds, and at once if nothing is in progress.
func (t *Transport) Close() error {
	t.life.close(func() {
		t.mu.Lock()
		t.closed = true
		opened := t.opened
		t.opened = nil
		t.mu.Unlock()
		var closes sync.WaitGroup
		for c := range opened {
			closes.Go(func() { _ = c.Close() })
		}
		closes.Wait()
		t.life.end(0)
		if t.own != nil {
			t.own.CloseIdleConnections()
		}
	})
	return nil
}

// keep remembers what has to be closed with the transport. It reports false if that is closed already.
func (t *Transport) keep(c io.Closer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.opened[c] = struct{}{}
	return true
}

func (t *Transport) forget(c io.Closer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.opened, c)
}

// A lifetime is that of something which can be closed, with what it does in the background.
type lifetime struct {
	ctx    context.Context // ends with the cause mcp.ErrClosed
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup
	closed chan struct{} // when it is

	mu        sync.Mutex // guards the fields below
	closing   bool
	ended     bool            // nothing is begun in the background
	over      bool            // ctx has ended
	borrowers *clientExchange // the first of those with the contexts of their callers
}

func (l *lifetime) begin(parent context.Context) {
	l.ctx, l.cancel = context.WithCancelCause(parent)
	l.closed = make(chan struct{})
}

// close has f done once, and waits until it is done. It is a sync.Once on which virtual time can pass.
func (l *lifetime) close(f func()) {
	l.mu.Lock()
	first := !l.closing
	l.closing = true
	l.mu.Unlock()
	if first {
		f()
		close(l.closed)
	}
	<-l.closed
}

// run does f in the background, unless the lifetime is over, which it reports. It ends when it is done or ctx ends.
func (l *lifetime) run(f func()) (running bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.tasks.Go(f)
	return true
}

// end ends a lifetime. What is in the background has the time of grace to end by itself.
func (l *lifetime) end(grace time.Duration) {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	done := make(chan struct{})
	go func() { // ends with the tasks
		l.tasks.Wait()
		close(done)
	}()
	if grace > 0 {
		waitFor(done, grace)
	}
	l.cancel(mcp.ErrClosed)
	l.mu.Lock()
	l.over = true
	for x := l.borrowers; x != nil; x = x.after {
		x.borrowed.EndRequest(mcp.ErrClosed)
	}
	l.mu.Unlock()
	waitFor(done, closeTimeout)
}

// lend notes a trip whose context does not end with the lifetime by itself. It reports false if that is over.
func (l *lifetime) borrow(x *clientExchange) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	if x.after = l.borrowers; x.after != nil {
		x.after.before = x
	}
	l.borrowers = x
	return true
}

func (l *lifetime) endBorrow(x *clientExchange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x.before == nil {
		l.borrowers = x.after
	} else {
		x.before.after = x.after
	}
	if x.after != nil {
		x.after.before = x.before
	}
	x.before, x.after = nil, nil
}

func waitFor(done <-chan struct{}, timeout time.Duration) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
