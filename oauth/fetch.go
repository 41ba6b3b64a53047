package oauth

import (
	"bytes"
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
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// Limits of what is fetched. Documents of OAuth are a few kilobytes; the limits are far from any that is real, and near
// enough that a hostile one costs nothing.
const (
	// maxDocument is the size of a document, in bytes.
	maxDocument = 1 << 20
	// maxDocumentHeader bounds the header block of a response.
	maxDocumentHeader = 64 << 10
	// defaultFetchTime bounds one exchange, from the lookup of the name to the last byte, and one whole discovery.
	defaultFetchTime = 10 * time.Second
	// zoneLife is for how long it is known how near a server is: longer than the discovery that is judged by it, and
	// short enough for those who move a server.
	zoneLife = time.Minute
	// maxDocumentRedirects bounds the redirects of one GET, all of them within the origin: hosts that move a document
	// to its canonical spelling need one.
	maxDocumentRedirects = 3
)

// FetcherOptions configures a [Fetcher]. The zero value is right for most programs.
type FetcherOptions struct {
	// TLSConfig is for servers with certificates that the system does not trust. It is cloned. Default: the system's
	// roots, TLS 1.2 and later.
	TLSConfig *tls.Config
	// AllowedHosts may be at any address, also at a private one or on this machine; the scheme is https nevertheless.
	// Each is a name or an address as it stands in URLs, with a port (":8443" after it) if only that is meant. It is
	// for identity providers within a company. Default: none.
	AllowedHosts []string
	// Proxy returns the proxy for a request, as that of http.Transport does. What a proxy connects to cannot be checked
	// here: it has to refuse what must not be reached. Default: no proxy, not even one from the environment.
	Proxy func(*http.Request) (*url.URL, error)
	// Timeout bounds each exchange as a whole, and each discovery, which is several. Default: 10 seconds.
	Timeout time.Duration
	// Logger takes what is ignored on the way, such as a challenge that points to another origin. Default:
	// slog.Default().
	Logger *slog.Logger
	// InsecureAnyAddress lets everything be fetched: from any address, and by plain http. It is for tests alone: with
	// it, whoever runs a server that the client calls makes the client call whatever it can reach.
	InsecureAnyAddress bool
}

// A Fetcher fetches the documents and calls the endpoints of OAuth, whose URLs come from servers that are not trusted. Its
// rules:
//
//   - A URL is https, and has neither user nor fragment.
//   - The address that a name resolves to is checked when it is dialled, so that an answer which changes helps nobody.
//     Public addresses are open. Those of private networks (RFC 1918, RFC 4193, RFC 6598) and of this machine are
//     closed, but for AllowedHosts. All others, such as link-local ones, where clouds keep their secrets, are never open.
//   - What is fetched for a server (see [Fetcher.For]) may be as near as that server: if all addresses of its host are
//     private, private ones are open, and if they are on this machine, so are those. A server within a company can thus
//     send its clients to an identity provider there, and one on the Internet can not.
//   - http is for servers on this machine that are themselves called there, by an address or as localhost.
//   - No cookies, no proxy unless asked for, no redirects but few of a GET within its origin, 1 MiB at most, JSON of 16
//     levels at most, 10 seconds.
//
// A Fetcher keeps no connections, so there is nothing to close. All methods are safe for concurrent use.
//
// Spec: basic/security_best_practices, Server-Side Request Forgery (2026-07-28).
type Fetcher struct {
	policy    policy
	transport *http.Transport
	timeout   time.Duration
	redirects int // of one GET
	log       *slog.Logger
}

// NewFetcher returns a Fetcher. opts may be nil.
func NewFetcher(opts *FetcherOptions) *Fetcher {
	var o FetcherOptions
	if opts != nil {
		o = *opts
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultFetchTime
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	f := &Fetcher{timeout: o.Timeout, redirects: maxDocumentRedirects, log: o.Logger}
	f.policy = policy{allowed: map[string]bool{}, anyAddress: o.InsecureAnyAddress, lookup: lookupHost, connect: connectChecked}
	for _, host := range o.AllowedHosts {
		f.policy.allowed[strings.ToLower(host)] = true
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TLSConfig != nil {
		config = o.TLSConfig.Clone()
	}
	config.NextProtos = nil // what is dialled here speaks HTTP/1.1
	f.transport = &http.Transport{
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    o.Timeout,
		DisableKeepAlives:      true, // so that each request is dialled, and checked
		DisableCompression:     true, // documents are small, and what is not compressed cannot expand
		MaxResponseHeaderBytes: maxDocumentHeader,
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

// For returns a Fetcher with the same options for what the server at an endpoint says: an MCP server, or an issuer that the
// caller trusts to name its own documents. How near that server is gets looked up, and again after a minute.
func (f *Fetcher) For(endpoint *url.URL) *Fetcher {
	return f.at(&home{host: strings.ToLower(endpoint.Hostname()), reach: loopback, moves: true})
}

// within is For a server that was seen before: whatever its name leads to now, it reaches no further than it did then.
// Otherwise one who answers for the name could be public while it is looked at, and private when the rest is called.
func (f *Fetcher) within(endpoint *url.URL, reach zone) *Fetcher {
	return f.at(&home{host: strings.ToLower(endpoint.Hostname()), reach: max(reach, public)})
}

func (f *Fetcher) at(h *home) *Fetcher {
	near := *f
	near.policy.home = h
	near.transport = f.transport.Clone()
	near.transport.DialContext = near.policy.dial
	return &near
}

// HTTPClient returns a client that keeps the rules of the Fetcher, for libraries that want one. It follows no redirects; a
// body that is too large is an error while it is read.
func (f *Fetcher) HTTPClient() *http.Client {
	return &http.Client{
		Transport:     guard{f},
		Timeout:       f.timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A guard is a Fetcher as a RoundTripper.
type guard struct{ fetcher *Fetcher }

// RoundTrip sends a request if the rules allow its URL.
func (g guard) RoundTrip(req *http.Request) (*http.Response, error) {
	f := g.fetcher
	err := f.policy.check(req.URL)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, &FetchError{URL: shown(req.URL), Err: err}
	}
	trip := &trip{host: hostKey(req.URL), plain: req.URL.Scheme == "http"}
	resp, err := f.transport.RoundTrip(req.WithContext(context.WithValue(req.Context(), tripKey{}, trip)))
	if err != nil {
		return nil, &FetchError{URL: shown(req.URL), Err: withoutPeerText(err)}
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxDocument}
	return resp, nil
}

// errTooLarge is within the error of a body that is beyond maxDocument.
var errTooLarge = errors.New("the document is larger than 1 MiB")

type boundedBody struct {
	io.ReadCloser
	left int
}

// Read returns no more than is allowed, and an error where more would follow.
func (b *boundedBody) Read(p []byte) (int, error) {
	if len(p) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if n > b.left {
		return b.left, errTooLarge
	}
	b.left -= n
	return n, err
}

// An answer is what came of one exchange.
type answer struct {
	url    string // as errors show it
	status int
	header http.Header
	body   []byte
}

// get fetches a document of any kind. A status other than 200 is a *FetchError.
func (f *Fetcher) get(ctx context.Context, address string, header http.Header) (*answer, error) {
	a, err := f.exchange(ctx, http.MethodGet, address, header, nil)
	if err == nil && a.status != http.StatusOK {
		err = &FetchError{URL: a.url, Status: a.status}
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// getJSON fetches a JSON object into what into points to. A status other than 200, another media type and an object that
// is not strictly what into takes are a *FetchError.
func (f *Fetcher) getJSON(ctx context.Context, address string, header http.Header, into any) error {
	_, err := f.getDocument(ctx, address, header, into)
	return err
}

// getDocument is getJSON that also gives the headers that came.
func (f *Fetcher) getDocument(ctx context.Context, address string, header http.Header, into any) (http.Header, error) {
	header = header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Accept", "application/json")
	a, err := f.get(ctx, address, header)
	if err != nil {
		return nil, err
	}
	if err := checkJSONType(a.header); err != nil {
		return nil, &FetchError{URL: a.url, Status: a.status, Err: err}
	}
	if err := decodeDocument(a.body, into); err != nil {
		return nil, &FetchError{URL: a.url, Status: a.status, Err: err}
	}
	return a.header, nil
}

// postForm calls an endpoint with a form. The error is a *FetchError if there is no answer; what the status means is for
// the caller to say.
func (f *Fetcher) postForm(
	ctx context.Context, address string, form url.Values, header http.Header,
) (status int, answered http.Header, body []byte, err error) {
	return f.post(ctx, address, "application/x-www-form-urlencoded", []byte(form.Encode()), header)
}

// postJSON is postForm with a JSON body.
func (f *Fetcher) postJSON(
	ctx context.Context, address string, value any, header http.Header,
) (status int, answered http.Header, body []byte, err error) {
	data, err := json.Marshal(value)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("oauth: encode the body: %w", err)
	}
	return f.post(ctx, address, "application/json", data, header)
}

func (f *Fetcher) post(
	ctx context.Context, address, contentType string, data []byte, header http.Header,
) (int, http.Header, []byte, error) {
	header = header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", contentType)
	header.Set("Accept", "application/json")
	a, err := f.exchange(ctx, http.MethodPost, address, header, data)
	if err != nil {
		return 0, nil, nil, err
	}
	return a.status, a.header, a.body, nil
}

// exchange sends a request and reads the whole answer. Of redirects it follows few of a GET within the origin.
func (f *Fetcher) exchange(ctx context.Context, method, address string, header http.Header, body []byte) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	target, err := parseURL(address)
	if err != nil {
		return nil, &FetchError{URL: shown(target), Err: err}
	}
	for redirects := 0; ; redirects++ {
		a, err := f.exchangeOnce(ctx, method, target, header, body)
		if err != nil {
			return nil, err
		}
		if !isRedirect(a.status) {
			return a, nil
		}
		fail := func(text string) (*answer, error) {
			return nil, &FetchError{URL: a.url, Status: a.status, Err: errors.New(text)}
		}
		if method != http.MethodGet {
			return fail("a redirect of a POST is not followed")
		}
		next, err := target.Parse(a.header.Get("Location"))
		if err == nil {
			next, err = parseURL(next.String())
		}
		switch {
		case err != nil || a.header.Get("Location") == "":
			return fail("a redirect without a usable Location")
		case !isSameOrigin(target, next):
			return fail("a redirect to another origin is not followed")
		case redirects == f.redirects:
			return fail("too many redirects")
		}
		target = next
	}
}

func (f *Fetcher) exchangeOnce(
	ctx context.Context, method string, target *url.URL, header http.Header, body []byte,
) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, &FetchError{URL: shown(target), Err: errors.New("the request cannot be made")}
	}
	if header != nil {
		req.Header = header.Clone()
	}
	resp, err := guard{f}.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, &FetchError{URL: shown(target), Status: resp.StatusCode, Err: withoutPeerText(err)}
	}
	return &answer{url: shown(target), status: resp.StatusCode, header: resp.Header, body: data}, nil
}

func isRedirect(status int) bool {
	return slices.Contains([]int{
		http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
	}, status)
}

// checkJSONType refuses what says that it is something else. What says nothing is tolerated: the scanner has the last word.
func checkJSONType(header http.Header) error {
	text := header.Get("Content-Type")
	if text == "" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(text)
	if err != nil || kind != "application/json" && !(strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")) {
		return errors.New("the answer is not JSON by its Content-Type")
	}
	return nil
}

// decodeDocument reads a JSON object that somebody else wrote: no name twice, valid UTF-8, names in their exact case,
// nothing after it, few levels. The error does not repeat what is in it.
func decodeDocument(data []byte, into any) error {
	if err := jsonscan.Valid(data, jsonscan.Limits{Depth: maxDocumentDepth}); err != nil {
		return fmt.Errorf("the document is not acceptable JSON: %w", err)
	}
	if jsonscan.Kind(data) != '{' {
		return errors.New("the document is no JSON object")
	}
	if err := json.Unmarshal(data, into); err != nil {
		bad, ok := errors.AsType[*json.SemanticError](err)
		if !ok || bad.JSONPointer == "" {
			return errors.New("the document has a member of a wrong type")
		}
		return fmt.Errorf("the document has a member of a wrong type: %.64q", string(bad.JSONPointer))
	}
	return nil
}

// home is where the server is for which something is fetched.
type home struct {
	host  string // lower case, without the port
	reach zone   // how near what others than itself have for it may be, at most
	moves bool   // it is looked up again after zoneLife

	mu     sync.Mutex // guards the fields below
	zone   zone       // nowhere until it is known
	looked time.Time  // when it was found
}
