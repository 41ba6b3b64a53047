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

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Limits of the resources that a client spends on a server, in addition to those of
// [TransportOptions].
const (
	// connectTimeout bounds each step of connecting. It is short: a server that is reachable
	// answers at once.
	connectTimeout = 10 * time.Second
	// idleConnTimeout is less than the idle timeout of [Serve], so that requests rarely meet a
	// connection that is being closed.
	idleConnTimeout = 90 * time.Second
	// idleConns is the number of idle connections to a server: enough for the parallel calls of a
	// busy host.
	idleConns = 256
	// pingInterval and pingTimeout detect that the peer of an HTTP/2 connection is gone. Otherwise
	// its streams would wait without a limit.
	pingInterval, pingTimeout = 30 * time.Second, 15 * time.Second
	// maxResponseHeader bounds the header block of a response.
	maxResponseHeader = 64 << 10
	// maxRedirects limits the redirects of a request. All of them are within the origin.
	maxRedirects = 5
	// closeTimeout is how long Close waits for canceled background work.
	closeTimeout = 2 * time.Second
)

// TransportOptions configures a [Transport]. The zero value is right for most clients.
type TransportOptions struct {
	// Client sends the HTTP requests; its Transport adds authorization. Its CheckRedirect is not
	// used: redirects are followed only within the server's origin, and for a POST only with status
	// 307 or 308. A Timeout also ends long calls and streams, so leave it zero and use contexts.
	// Default: a client with an http.Transport of its own, which uses the proxies of the
	// environment and HTTP/2 if the server supports it, limits connecting to 10 seconds, and keeps
	// 64 idle connections.
	Client *http.Client
	// Header is sent with every request, such as Authorization with a static bearer token. It must
	// not contain headers of MCP or of the content: Accept, Content-Type, Mcp-Session-Id and so on.
	Header http.Header
	// InsecureHTTP sends credentials in Header and in the URL even to an http URL of another
	// machine, where the network can read them; by default, every request with them fails.
	// Credentials are the headers Authorization, Proxy-Authorization and Cookie, and headers whose
	// names contain a word such as token or api-key.
	InsecureHTTP bool
	// Logger logs dropped messages and background failures. Default: slog.Default().
	Logger *slog.Logger
	// MaxResponse is the largest JSON body of a response, in bytes after decompression. Default: 16
	// MiB.
	MaxResponse int
	// MaxEvent is the largest event of an event stream, in bytes. Default: 16 MiB.
	MaxEvent int
}

// A Transport connects a client to a server over HTTP, for [mcp.Connect]. A request of revision
// 2026-07-28 is a POST. For servers of revisions before 2026-07-28 the Transport opens sessions
// on Streamable HTTP, or on HTTP+SSE if the server supports no other transport.
//
// The error of a request without a response is an [*mcp.TransportError]. It wraps a [*StatusError]
// if the HTTP response contains no message, [ErrTooLarge] if the response exceeds a limit, and
// [mcp.ErrClosed] if the transport or the session ended. All methods are safe for concurrent
// use.
//
// Spec: basic/transports/streamable-http (2026-07-28), basic/transports (2025-11-25 and earlier).
type Transport struct {
	target      *url.URL
	client      *http.Client
	own         *http.Transport // of client; nil if it is the caller's
	direct      *http.Transport // of client; nil if the client does more than follow redirects
	header      http.Header     // of every GET and DELETE; never changed
	postHeader  http.Header     // of every POST; never changed
	log         *slog.Logger
	maxResponse int
	maxEvent    int
	broken      error // of the options; every request returns it
	trace       func(mcp.Frame)

	ids    atomic.Int64
	drains atomic.Bool // the server sends streams, which are drained without the caller
	life   lifetime

	mu     sync.Mutex // guards the fields below
	opened map[io.Closer]struct{}
	closed bool
}

// ErrTooLarge reports a response that is larger than [TransportOptions] allow. Its connection is
// closed.
var ErrTooLarge = errors.New("mcphttp: the response is too large")

// NewTransport returns a Transport to the server at a URL such as https://example.com/mcp. It does
// not connect. If the URL or an option is invalid, every request returns the error. opts may be
// nil.
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
	t.broken = errors.Join(err, checkStaticHeader(o.Header), checkCredentials(t.target, &o),
		positive("TransportOptions.MaxResponse", o.MaxResponse), positive("TransportOptions.MaxEvent", o.MaxEvent))
	for name, values := range o.Header {
		t.header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	if u := t.target; u != nil && u.User != nil && t.header["Authorization"] == nil { // as http.Client does
		password, _ := u.User.Password()
		(&http.Request{Header: t.header}).SetBasicAuth(u.User.Username(), password)
	}
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
	if t.direct != nil && !t.direct.DisableCompression {
		t.postHeader["Accept-Encoding"] = []string{"gzip"}
	}
	return t
}

// send sends an HTTP request. A request other than GET goes to the http.Transport directly, and to
// the http.Client only to follow a redirect. The header may be shared: net/http does not change it,
// and other RoundTrippers receive a copy.
func (t *Transport) send(req *http.Request) (*http.Response, error) {
	if t.direct != nil && req.Method != http.MethodGet {
		res, err := t.direct.RoundTrip(req)
		if err == nil && keepsMethod(res.StatusCode) && req.GetBody != nil {
			_ = res.Body.Close()
			req.Body, _ = req.GetBody() // never fails
			req.Header = maps.Clone(req.Header)
			res, err = t.client.Do(req) // the client follows the redirect
		}
		if err == nil && req.Header["Accept-Encoding"] != nil {
			decompress(res)
		}
		return res, err
	}
	req.Header = maps.Clone(req.Header)
	return t.client.Do(req)
}

func newHTTPTransport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout: connectTimeout,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingTimeout},
		MaxIdleConns:        idleConns, MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:        idleConnTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
}

// parseTarget parses the URL of a server. Its errors do not contain the URL, which may hold
// secrets.
func parseTarget(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	var bad *url.Error
	switch {
	case errors.As(err, &bad):
		return nil, fmt.Errorf("mcphttp: invalid server URL: %w", bad.Err)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("mcphttp: invalid server URL: must be an http or https URL with a host")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// reservedHeaders are the headers of the protocol and of HTTP itself. Accept-Encoding is among
// them, since net/http does not decompress responses if it is set.
var reservedHeaders = []string{
	"Accept", "Accept-Encoding", "Content-Encoding", "Content-Length", "Content-Type", "Host",
	headerVersion, headerMethod, headerName, headerSession, headerLastEvent,
}

func checkStaticHeader(header http.Header) error {
	for name, values := range header {
		canonical := http.CanonicalHeaderKey(name)
		if slices.Contains(reservedHeaders, canonical) || strings.HasPrefix(canonical, headerParam) {
			return fmt.Errorf("mcphttp: invalid header %q: reserved for the protocol", canonical)
		}
		if !netx.IsToken(name) || slices.ContainsFunc(values, hasControl) {
			return fmt.Errorf("mcphttp: invalid header %q: must be valid in HTTP", name)
		}
	}
	return nil
}

// checkCredentials returns an error if the network could read the credentials of requests.
func checkCredentials(target *url.URL, o *TransportOptions) error {
	if target == nil || target.Scheme != "http" || o.InsecureHTTP || netx.IsLoopback(target.Hostname()) {
		return nil
	}
	if target.User != nil {
		return fmt.Errorf("mcphttp: invalid server URL: the network could read the credentials for %q: "+
			"use https, or set TransportOptions.InsecureHTTP", target.Host)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Header)) {
		if netx.IsCredentialHeader(name) {
			return fmt.Errorf("mcphttp: invalid header %q for %q: the network could read it: "+
				"use https, or set TransportOptions.InsecureHTTP", name, target.Host)
		}
	}
	return nil
}

// checkRedirect follows a few redirects within the origin: every redirect of a GET, and 307 and 308
// of other methods, with which web frameworks add a slash to the path. A redirect to another origin
// would disclose the body and the headers of the request.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if req.Method != via[0].Method || len(via) > maxRedirects || !netx.SameOrigin(via[0].URL, req.URL) ||
		req.Method != http.MethodGet && !keepsMethod(req.Response.StatusCode) {
		return http.ErrUseLastResponse
	}
	req.Header.Del("Referer") // the query of the endpoint may be secret
	return nil
}

// keepsMethod reports whether a redirect requires the same method and body at its target. Spec:
// RFC 9110, sections 15.4.8 and 15.4.9.
func keepsMethod(status int) bool {
	return status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
}

// ServerKey returns the URL of the server without its query, by which [mcp.Connect] caches all that
// it learned about the server.
func (t *Transport) ServerKey() string {
	if t.target == nil {
		return ""
	}
	return t.target.Scheme + "://" + t.target.Host + t.target.EscapedPath()
}

// Close ends all requests and sessions, the sessions also at the server. It closes idle connections
// if they are the transport's own. It returns within 10 seconds, and at once if no request is in
// progress.
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

// keep registers something to be closed with the transport. It returns false if the transport is
// closed.
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

// A lifetime is the life of something that can be closed, with its background goroutines.
type lifetime struct {
	ctx    context.Context // ends with the cause mcp.ErrClosed
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup
	closed chan struct{} // closed when close returned

	mu        sync.Mutex // guards the fields below
	closing   bool
	ended     bool                         // no goroutine is started in the background
	over      bool                         // ctx ended
	borrowers map[*clientExchange]struct{} // they use the context of their caller
}

func (l *lifetime) begin(parent context.Context) {
	l.ctx, l.cancel = context.WithCancelCause(parent)
	l.closed, l.borrowers = make(chan struct{}), make(map[*clientExchange]struct{})
}

// close calls f once, and waits until it returned. Unlike on sync.Once, waiting is durably
// blocking for testing/synctest.
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

// run calls f in the background. It returns false if the lifetime is over. f must return when ctx
// ends.
func (l *lifetime) run(f func()) (running bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.tasks.Go(f)
	return true
}

// end ends the lifetime. Background goroutines get the grace period to end by themselves.
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
	for x := range l.borrowers {
		x.borrowed.EndRequest(mcp.ErrClosed)
	}
	l.mu.Unlock()
	waitFor(done, closeTimeout)
}

// borrow registers an exchange that uses the context of its caller, which does not end with the
// lifetime by itself. It returns false if the lifetime is over.
func (l *lifetime) borrow(x *clientExchange) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.borrowers[x] = struct{}{}
	}
	return !l.over
}

func waitFor(done <-chan struct{}, timeout time.Duration) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
