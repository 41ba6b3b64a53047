// Package oauthfetch fetches documents and calls endpoints whose URLs come from servers that are
// not trusted. It protects OAuth against server-side request forgery.
package oauthfetch

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/netx"
)

// Limits of documents and responses. Documents of OAuth take a few kilobytes.
const (
	// MaxDocument is the size of a document, in bytes.
	MaxDocument = 1 << 20
	// MaxHeader bounds the header block of a response, in bytes.
	MaxHeader = 64 << 10
	// defaultTimeout bounds an exchange, and a discovery.
	defaultTimeout = 10 * time.Second
	// MaxRedirects bounds the redirects of a GET. Hosts that redirect to the canonical spelling
	// of a URL need a redirect.
	MaxRedirects = 3
)

// Options configures a [Fetcher]. The fields correspond to oauth.FetcherOptions, which documents
// them.
type Options struct {
	TLSConfig          *tls.Config
	AllowedHosts       []string
	Proxy              func(*http.Request) (*url.URL, error)
	Timeout            time.Duration
	Logger             *slog.Logger
	Wrap               func(http.RoundTripper) http.RoundTripper
	InsecureAnyAddress bool
}

// A Fetcher fetches documents of OAuth and calls its endpoints, by the rules that oauth.Fetcher
// documents: policy.check checks the URL, and policy.checkAddress the address when it is dialled.
// All methods are safe for concurrent use.
//
// Spec: basic/security_best_practices, Server-Side Request Forgery (2026-07-28).
type Fetcher struct {
	policy    policy
	transport *http.Transport
	timeout   time.Duration
	redirects int                                       // of one GET
	header    http.Header                               // of each GET; may be nil
	wrap      func(http.RoundTripper) http.RoundTripper // may be nil
	log       *slog.Logger
}

// New returns a Fetcher. opts may be nil.
func New(opts *Options) *Fetcher {
	o := *cmp.Or(opts, new(Options))
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	f := &Fetcher{timeout: o.Timeout, redirects: MaxRedirects, wrap: o.Wrap,
		log: cmp.Or(o.Logger, slog.Default())}
	f.policy = policy{anyAddress: o.InsecureAnyAddress, lookup: lookupHost, connect: connectChecked}
	f.policy.allowed = map[string]bool{}
	for _, host := range o.AllowedHosts {
		f.policy.allowed[strings.ToLower(host)] = true
	}
	config := cmp.Or(o.TLSConfig, &tls.Config{MinVersion: tls.VersionTLS12}).Clone()
	config.NextProtos = nil // the connections speak HTTP/1.1
	f.transport = &http.Transport{
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    o.Timeout,
		DisableKeepAlives:      true, // so that the address is checked for each request
		DisableCompression:     true, // documents are small, and an uncompressed body cannot expand
		MaxResponseHeaderBytes: MaxHeader,
		Protocols:              new(http.Protocols),
	}
	f.transport.Protocols.SetHTTP1(true)
	if o.Proxy != nil {
		f.policy.proxies = true
		f.transport.Proxy = f.policy.proxied(o.Proxy)
	}
	f.transport.DialContext = f.policy.dial
	return f
}

// For is oauth.Fetcher.For.
func (f *Fetcher) For(endpoint *url.URL) *Fetcher {
	return f.forSource(&source{host: strings.ToLower(endpoint.Hostname()), limit: Loopback, expires: true})
}

// Within is For with the scope that the server had when it was discovered: the URLs that it names
// may be no nearer, whatever its address is now. Otherwise its name could resolve to a public
// address during the discovery and to a private address afterwards.
func (f *Fetcher) Within(endpoint *url.URL, limit NetworkScope) *Fetcher {
	return f.forSource(&source{host: strings.ToLower(endpoint.Hostname()), limit: max(limit, Public)})
}

func (f *Fetcher) forSource(s *source) *Fetcher {
	copied := *f
	copied.policy.source = s
	copied.transport = f.transport.Clone()
	copied.transport.DialContext = copied.policy.dial
	return &copied
}

// WithHeader returns a Fetcher with the same options that adds header fields to each GET.
func (f *Fetcher) WithHeader(header http.Header) *Fetcher {
	copied := *f
	copied.header = header
	return &copied
}

// WithoutRedirects returns a Fetcher with the same options that follows no redirects.
func (f *Fetcher) WithoutRedirects() *Fetcher {
	copied := *f
	copied.redirects = 0
	return &copied
}

// WithoutCertificates returns a Fetcher with the same options that presents no client certificate.
func (f *Fetcher) WithoutCertificates() *Fetcher {
	copied := *f
	copied.transport = f.transport.Clone()
	copied.transport.DialContext = copied.policy.dial
	copied.transport.TLSClientConfig.Certificates = nil
	copied.transport.TLSClientConfig.GetClientCertificate = nil
	return &copied
}

// maxIdle limits the idle connections that a Fetcher keeps, for their file descriptors, and
// maxIdlePerHost the connections to a host: many requests at a time go to the host of a large service.
const maxIdle, maxIdlePerHost = 1000, 100

// KeepingConnections returns a Fetcher with the same options that keeps up to 1,000 connections open
// between requests of its [Fetcher.HTTPClient], up to 100 of them to the same host. The caller must
// close them. An address is checked when it is dialled, and a connection stays at its address.
func (f *Fetcher) KeepingConnections(idle time.Duration) *Fetcher {
	copied := *f
	copied.transport = f.transport.Clone()
	copied.transport.DialContext = copied.policy.dial
	copied.transport.DisableKeepAlives = false
	copied.transport.IdleConnTimeout = idle
	copied.transport.MaxIdleConns, copied.transport.MaxIdleConnsPerHost = maxIdle, maxIdlePerHost
	return &copied
}

// SourceScope returns the scope of the server that the Fetcher is for; Public if no request
// needed it.
func (f *Fetcher) SourceScope() NetworkScope {
	scope, _ := f.policy.knownSourceScope()
	return scope
}

// Timeout returns the time limit of an exchange and of a discovery.
func (f *Fetcher) Timeout() time.Duration { return f.timeout }

// Logger returns the logger of the options.
func (f *Fetcher) Logger() *slog.Logger { return f.log }

// CheckURL parses a URL in a document. The error, which wraps [ErrURLRefused], is for a URL that
// may not be fetched, whatever the address of its host is.
func (f *Fetcher) CheckURL(text string) (*url.URL, error) { return f.policy.checkText(text) }

// Check is CheckURL for a URL that is parsed already.
func (f *Fetcher) Check(u *url.URL) error { return f.policy.check(u) }

// HTTPClient is oauth.Fetcher.HTTPClient.
func (f *Fetcher) HTTPClient() *http.Client {
	return &http.Client{
		Transport:     guard{f},
		Timeout:       f.timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type guard struct{ fetcher *Fetcher }

func (g guard) RoundTrip(req *http.Request) (*http.Response, error) {
	f := g.fetcher
	if err := f.policy.check(req.URL); err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, &Error{URL: ShownURL(req.URL), Err: err}
	}
	d := &dialInfo{host: netx.HostPort(req.URL), plain: req.URL.Scheme == "http"}
	var send http.RoundTripper = f.transport
	if f.wrap != nil {
		send = f.wrap(send)
	}
	resp, err := send.RoundTrip(req.WithContext(context.WithValue(req.Context(), dialInfoKey{}, d)))
	if err != nil {
		return nil, &Error{URL: ShownURL(req.URL), Err: withoutPeerText(err)}
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: MaxDocument}
	return resp, nil
}

// CloseIdleConnections closes the connections that [Fetcher.KeepingConnections] keeps.
func (g guard) CloseIdleConnections() { g.fetcher.transport.CloseIdleConnections() }

var errTooLarge = errors.New("the document is larger than 1 MiB")

type boundedBody struct {
	io.ReadCloser
	left int // bytes until Read fails
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if n > b.left {
		return b.left, errTooLarge
	}
	b.left -= n
	return n, err
}

// A Response is the response to a request, read to its end.
type Response struct {
	URL    string // as errors show it
	Status int
	Header http.Header
	Body   []byte
}

// exchange sends a request and reads the whole response. It follows redirects of a GET within its
// origin.
func (f *Fetcher) exchange(
	ctx context.Context, method, address string, header http.Header, body []byte,
) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	target, err := f.CheckURL(address) // http.NewRequest removes an empty port
	if err != nil {
		return nil, &Error{URL: ShownURL(target), Err: err}
	}
	for redirects := 0; ; redirects++ {
		r, err := f.exchangeOnce(ctx, method, target, header, body)
		if err != nil || !slices.Contains([]int{301, 302, 303, 307, 308}, r.Status) {
			return r, err
		}
		next, err := redirectTarget(method, target, r.Header.Get("Location"))
		if err == nil && redirects == f.redirects {
			err = errors.New("too many redirects")
		}
		if err != nil {
			return nil, &Error{URL: r.URL, Status: r.Status, Err: err}
		}
		target = next
	}
}

func redirectTarget(method string, from *url.URL, location string) (*url.URL, error) {
	if method != http.MethodGet {
		return nil, errors.New("a redirect of a POST is not followed")
	}
	next, err := from.Parse(location)
	if err == nil {
		next, err = ParseURL(next.String())
	}
	if err == nil {
		err = CheckHost(next)
	}
	switch {
	case err != nil || location == "":
		return nil, errors.New("a redirect without a valid Location")
	case !netx.SameOrigin(from, next):
		return nil, errors.New("a redirect to another origin is not followed")
	}
	return next, nil
}

func (f *Fetcher) exchangeOnce(
	ctx context.Context, method string, target *url.URL, header http.Header, body []byte,
) (*Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, &Error{URL: ShownURL(target), Err: errors.New("invalid request")}
	}
	req.Header = withField(header, "Accept", cmp.Or(header.Get("Accept"), "application/json"))
	resp, err := guard{f}.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, &Error{URL: ShownURL(target), Status: resp.StatusCode, Err: withoutPeerText(err)}
	}
	return &Response{URL: ShownURL(target), Status: resp.StatusCode, Header: resp.Header, Body: data}, nil
}

// MaxDepth is how deep a JSON document may be nested. Metadata uses two levels, a key set four.
const MaxDepth = 16

// GetJSON fetches a JSON object, decodes it into the value that into points to and returns the
// response header. The error is an [*Error] if the status is not 200, the media type is not JSON,
// or the object does not match the types of into.
func (f *Fetcher) GetJSON(ctx context.Context, address string, into any) (http.Header, error) {
	r, err := f.Get(ctx, address, "application/json")
	if err != nil {
		return nil, err
	}
	if err := r.Decode(into); err != nil {
		return nil, &Error{URL: r.URL, Status: r.Status, Err: err}
	}
	return r.Header, nil
}

// Get fetches a document of the types in accept, which the caller checks. The error is an [*Error],
// also if the status is not 200.
func (f *Fetcher) Get(ctx context.Context, address, accept string) (*Response, error) {
	r, err := f.exchange(ctx, http.MethodGet, address, withField(f.header, "Accept", accept), nil)
	if err == nil && r.Status != http.StatusOK {
		return nil, &Error{URL: r.URL, Status: r.Status}
	}
	return r, err
}

// PostForm sends a form. The error is an [*Error] if there is no response; the caller interprets
// the status.
func (f *Fetcher) PostForm(
	ctx context.Context, address string, form url.Values, header http.Header,
) (*Response, error) {
	header = withField(header, "Content-Type", "application/x-www-form-urlencoded")
	return f.exchange(ctx, http.MethodPost, address, header, []byte(form.Encode()))
}

// PostJSON sends a value as JSON. The error is an [*Error] if there is no response; the caller
// interprets the status.
func (f *Fetcher) PostJSON(ctx context.Context, address string, value any) (*Response, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("oauth: encode the body: %w", err)
	}
	return f.exchange(ctx, http.MethodPost, address, withField(nil, "Content-Type", "application/json"), data)
}

func withField(header http.Header, name, value string) http.Header {
	header = header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set(name, value)
	return header
}

// Decode decodes the body as [Decode] does, and checks that the Content-Type is JSON or missing.
func (r *Response) Decode(into any) error {
	text := r.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(text)
	kind, isApplication := strings.CutPrefix(kind, "application/")
	if text != "" && (err != nil || !isApplication || kind != "json" && !strings.HasSuffix(kind, "+json")) {
		return errNotJSON
	}
	return Decode(r.Body, into)
}

var errNotJSON = errors.New("the Content-Type of the response is not JSON")

// Decode decodes a JSON object. It refuses duplicate names, invalid UTF-8, data after the object,
// and more than [MaxDepth] levels. Names must match exactly. The error does not repeat values.
func Decode(data []byte, into any) error {
	if err := jsonscan.Valid(data, jsonscan.Limits{Depth: MaxDepth}); err != nil {
		return fmt.Errorf("invalid JSON: %w", err)
	}
	if jsonscan.Kind(data) != '{' {
		return errors.New("invalid document: must be a JSON object")
	}
	if err := json.Unmarshal(data, into); err != nil {
		bad, ok := errors.AsType[*json.SemanticError](err)
		if !ok || bad.JSONPointer == "" {
			return errors.New("invalid document: a member has the wrong type")
		}
		return fmt.Errorf("invalid document: member %.64q has the wrong type", string(bad.JSONPointer))
	}
	return nil
}
