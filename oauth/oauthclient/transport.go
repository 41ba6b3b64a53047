package oauthclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/dpop"
	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// maxAttempts is how often one request may lead to authorization, failures of the token (401) and of its scopes (403)
	// together: once because a token has ended, and once because the operation needs more than the first one did.
	maxAttempts = 2
	// maxDrained is how much of a failedAttempt's body is read, in bytes, so that its connection can be used again.
	maxDrained = 16 << 10
	// drainTimeout is for how long: what has not come by then costs more than another connection.
	drainTimeout = 250 * time.Millisecond
	// idleConnections and idleTimeout are how many connections to a server wait for the next request, and for how long: as
	// many as a busy host has calls in parallel, and less long than servers keep them.
	idleConnections, idleTimeout = 64, 90 * time.Second
	// pingAfter and pingTimeout find out that the other end of an HTTP/2 connection is gone.
	pingAfter, pingTimeout = 30 * time.Second, 15 * time.Second
)

// TransportOptions configures a [Transport]. The zero value is right for programs that run without a person and have
// tokens in no store: each login is then an error that says what to do.
type TransportOptions struct {
	// Base sends the requests, the ones to other addresses too. Default: an http.Transport of its own, which takes
	// proxies from the environment and speaks HTTP/2 where the server does.
	Base http.RoundTripper
	// Store keeps tokens and the ids under which authorization servers know the client. Default: [NewMemoryStore].
	Store Store
	// Authorizer asks a person to log in. Default: none, so that a server which wants a login is an error that
	// errors.Is finds [ErrLoginRequired] in. [NewBrowser] gives one for programs on a person's machine.
	Authorizer Authorizer
	// Grant is how tokens are come by. Default: the authorization code grant, with Authorizer.
	Grant Grant
	// Client is what authorization servers know of the program. Default: it registers itself.
	Client Identity
	// Scopes are asked for in addition to those that the server wants, and in place of those that it merely says it
	// has. Default: none.
	Scopes []string
	// DPoP binds the tokens to a key. Default: they are bearer tokens.
	DPoP *DPoPOptions
	// Fetcher fetches metadata and calls the authorization server. Default: oauth.NewFetcher(nil).
	Fetcher *oauth.Fetcher
	// WholeOrigin sends the token to every path of the server's origin. Default: to the path of the endpoint and to
	// those that the server says its identifier covers. Servers of HTTP+SSE take messages at another path.
	WholeOrigin bool
	// InsecureHTTP sends tokens by plain http to other machines too. Default: to this machine alone.
	InsecureHTTP bool
	// Logger takes what goes wrong without being an error of a request. Default: slog.Default().
	Logger *slog.Logger
}

// A Transport authorizes the requests to one MCP server. It is an [http.RoundTripper] for the client of
// mcphttp.TransportOptions:
//
//	t := oauth.NewTransport(endpoint, &oauth.TransportOptions{Authorizer: oauth.NewBrowser(nil)})
//	transport := mcphttp.NewTransport(endpoint, &mcphttp.TransportOptions{Client: &http.Client{Transport: t}})
//
// A request gets the token that is held, renewed if it has ended. If the server refuses it, or asks for more scopes,
// tokens are got and the request is sent again. Requests that need a login at the same time share one, and so do the
// processes that share a Store share a renewal; while a person is waited for, the time limits of the [mcp.Client] stand
// still. Requests to other addresses, and such as have an Authorization header, are left as they are.
//
// A request that cannot be authorized ends with an [*AuthorizeError], and has certainly not been carried out. All methods
// are safe for concurrent use.
//
// Spec: basic/authorization, in all revisions that have it.
type Transport struct {
	endpoint    *url.URL
	base        http.RoundTripper
	fetcher     *oauthfetch.Fetcher
	store       *writeBackStore
	authorizer  Authorizer
	grant       Grant
	client      Identity
	scopes      []string
	prover      *dpop.Prover
	wholeOrigin bool
	log         *slog.Logger
	invalid     error // why nothing can be authorized

	mu       sync.Mutex    // guards the fields below
	loaded   bool          // from the store
	tokens   *TokenSet     // nil if there are none; never changed
	known    *serverRecord // nil if nothing is known of the server; never changed
	failures map[string]*failedAttempt
	pointer  *oauth.Challenge // the last that said where the metadata is
	flow     *flow
	renewal  *flow // beside the other one
	logouts  int   // what was begun before the last of them is no longer kept
}

// NewTransport returns a Transport for the MCP server at an endpoint such as https://example.com/mcp. Nothing is sent or
// read yet; an endpoint or an option that cannot be used is the error of every request. opts may be nil.
func NewTransport(endpoint string, opts *TransportOptions) *Transport {
	var o TransportOptions
	if opts != nil {
		o = *opts
	}
	t := &Transport{
		base: o.Base, fetcher: (*oauthfetch.Fetcher)(o.Fetcher), authorizer: o.Authorizer, grant: o.Grant, client: o.Client,
		scopes: o.Scopes, wholeOrigin: o.WholeOrigin, log: o.Logger, failures: map[string]*failedAttempt{},
	}
	if t.base == nil {
		t.base = newBase()
	}
	if t.fetcher == nil {
		t.fetcher = oauthfetch.New(nil)
	}
	if o.Store == nil {
		o.Store = NewMemoryStore()
	}
	t.store = newWriteBackStore(o.Store)
	if t.grant == nil {
		t.grant = codeGrant{}
	}
	if t.log == nil {
		t.log = slog.Default()
	}
	var noEndpoint, noProver error
	t.endpoint, noEndpoint = parseEndpoint(endpoint, o.InsecureHTTP)
	if o.DPoP != nil {
		t.prover, noProver = dpop.NewProver((*dpop.ProverOptions)(o.DPoP))
	}
	t.invalid = errors.Join(noEndpoint, noProver, t.client.validate(), validateScopes(o.Scopes))
	return t
}

func newBase() *http.Transport {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	base.MaxIdleConns, base.MaxIdleConnsPerHost, base.IdleConnTimeout = idleConnections, idleConnections, idleTimeout
	base.MaxResponseHeaderBytes = oauthfetch.MaxHeader
	return base
}

// parseEndpoint reads the address of the server. Its errors do not repeat the address, which may hold secrets.
func parseEndpoint(text string, insecure bool) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return &url.URL{}, errors.New("oauth: the address of the server is no http or https URL with a host")
	case u.Scheme == "http" && !insecure && !netx.IsLoopback(strings.ToLower(u.Hostname())):
		return u, errors.New("oauth: tokens are sent by https alone, but to this machine; the address of the server is http")
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	return u, nil
}

// CloseIdleConnections closes connections that wait for the next request, as http.Client.CloseIdleConnections expects it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// covers reports whether a request to u is one to the server.
func (t *Transport) covers(u *url.URL) bool {
	if !netx.SameOrigin(u, t.endpoint) {
		return false
	}
	if t.wholeOrigin || isSamePath(u, t.endpoint) {
		return true
	}
	t.mu.Lock()
	known := t.known
	t.mu.Unlock()
	return known != nil && known.covers(u)
}

// RoundTrip sends a request with a token, as the type says.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Authorization") != "" || !t.covers(req.URL) {
		return t.base.RoundTrip(req)
	}
	res, err := (&exchange{Transport: t, req: req}).run()
	if err != nil && req.Body != nil {
		_ = req.Body.Close()
	}
	return res, err
}

// An exchange is one request to the server, sent as often as authorization needs it.
type exchange struct {
	*Transport
	req  *http.Request
	sent int
}

func (x *exchange) run() (*http.Response, error) {
	ctx := x.req.Context()
	if x.invalid != nil {
		return nil, x.failed(http.StatusUnauthorized, x.invalid)
	}
	tokens, err := x.currentTokens(ctx, x.req.Header.Get(headerRevision))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, x.failed(http.StatusUnauthorized, err)
	}
	source := fromStore
	for attempt := 1; ; attempt++ {
		res, err := x.sendProved(tokens)
		if err != nil {
			return nil, err
		}
		n := newNeed(res, tokens)
		if n == nil {
			return res, nil
		}
		n.persists = source == fromRefresh
		drain(res)
		switch {
		case attempt > maxAttempts:
			err = errTooMany
		case n.kind == needToken && source == fromGrant:
			err = errStillRefused
			x.mu.Lock()
			x.rememberFailure(n, err) // another login would give another such token
			x.mu.Unlock()
		default:
			var got *outcome
			if got, err = x.acquire(ctx, n); err == nil {
				tokens, source = got.tokens, got.source
			}
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, x.failed(res.StatusCode, err)
		}
	}
}

var (
	errTooMany      = errors.New("the server still refuses, after as many authorizations as one request may cost")
	errStillRefused = errors.New("the server refuses the token that it has just been given by its authorization server")
)

// sendProved sends the request, a second time if proofs of possession want a nonce.
func (x *exchange) sendProved(tokens *TokenSet) (*http.Response, error) {
	res, err := x.send(tokens)
	if err != nil || x.prover == nil || tokens == nil {
		return res, err
	}
	if wantsNonce(x.prover, x.req.URL, res) {
		drain(res)
		return x.send(tokens)
	}
	return res, nil
}

// wantsNonce keeps the DPoP nonce of a resource's response. It reports whether the request was refused only for want of it:
// then it is sent again, once.
func wantsNonce(p *dpop.Prover, target *url.URL, res *http.Response) bool {
	if !p.LearnFromResource(target, res.Header) || res.StatusCode != http.StatusUnauthorized {
		return false
	}
	return slices.ContainsFunc(oauth.ParseChallenges(res.Header), func(c oauth.Challenge) bool {
		return c.Is(oauthwire.DPoP) && c.Params["error"] == oauthwire.UseDPoPNonce
	})
}

// send sends a copy of the request, with a token if there is one.
func (x *exchange) send(tokens *TokenSet) (*http.Response, error) {
	req := x.req.WithContext(x.req.Context())
	req.Header = x.req.Header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if x.sent > 0 && req.Body != nil && req.Body != http.NoBody {
		if req.GetBody == nil {
			return nil, x.failed(http.StatusUnauthorized,
				errors.New("the request has to be sent again, and its body cannot be: it has no GetBody"))
		}
		body, err := req.GetBody()
		if err != nil {
			return nil, fmt.Errorf("oauth: send the request again: %w", err)
		}
		req.Body = body
	}
	x.sent++
	if err := x.setToken(tokens, req); err != nil {
		return nil, err
	}
	res, err := x.base.RoundTrip(req)
	if err == nil {
		res.Request = x.req // whoever looks at the response sees no token
	}
	return res, err
}

// put puts a token on a request.
func (t *Transport) setToken(tokens *TokenSet, req *http.Request) error {
	switch {
	case tokens == nil:
		return nil
	case t.prover != nil && tokens.TokenType == oauthwire.DPoP:
		return t.prover.Authorize(req, tokens.AccessToken)
	}
	req.Header.Set("Authorization", oauthwire.Bearer+" "+tokens.AccessToken)
	return nil
}

// drain ends the reading of a response so that its connection is of use.
func drain(res *http.Response) {
	if res.ContentLength <= maxDrained {
		timer := time.AfterFunc(drainTimeout, func() { _ = res.Body.Close() }) // which ends the reading
		_, _ = io.CopyN(io.Discard, res.Body, maxDrained)
		timer.Stop()
	}
	_ = res.Body.Close()
}

func (t *Transport) failed(status int, err error) error {
	if cause, ok := errors.AsType[*AuthorizeError](err); ok {
		return cause
	}
	return &AuthorizeError{Endpoint: oauthfetch.ShownURL(t.endpoint), Status: status, Err: err}
}

// An AuthorizeError is a request that was not carried out because it could not be authorized.
type AuthorizeError struct {
	Endpoint string // the MCP server, without a query
	Status   int    // of HTTP, with which the server refused: 401 or 403; 401 if it was not asked
	Err      error  // why
}

// Error says which server refuses, and why it was not possible to change that.
func (e *AuthorizeError) Error() string {
	return fmt.Sprintf("oauth: authorize a request to %s: %v", e.Endpoint, withoutPrefix(e.Err))
}

// Unwrap returns Err.
func (e *AuthorizeError) Unwrap() error { return e.Err }

// HTTPStatus returns Status, for callers that look for the method with [errors.As].
func (e *AuthorizeError) HTTPStatus() int { return e.Status }

func withoutPrefix(err error) string { return strings.TrimPrefix(err.Error(), "oauth: ") }
