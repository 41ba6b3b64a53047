package oauthclient

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/dpop"
	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// maxAttempts limits the authorizations for a request: for a new token, and for more scopes.
	maxAttempts = 2
	// maxDrained and drainTimeout bound reading the body of a refusal, so that its connection can
	// be reused.
	maxDrained, drainTimeout = 16 << 10, 250 * time.Millisecond
	// idleConnections and idleTimeout bound the idle connections to a server.
	idleConnections, idleTimeout = 64, 90 * time.Second
	// pingAfter and pingTimeout detect dead HTTP/2 connections.
	pingAfter, pingTimeout = 30 * time.Second, 15 * time.Second
)

// TransportOptions configures a [Transport]. The zero value cannot log in: set Authorizer if
// the program serves a user, else Grant.
type TransportOptions struct {
	// Base sends the requests. Default: an http.Transport of its own, which uses proxies from the
	// environment and HTTP/2 where the server supports it.
	Base http.RoundTripper
	// Store keeps tokens and client registrations. Default: [NewMemoryStore].
	Store Store
	// Authorizer lets the user log in, such as [NewBrowser]. Default: none, so that a request that
	// needs a login fails with [ErrLoginRequired].
	Authorizer Authorizer
	// Grant is how tokens are obtained. Default: the authorization code grant, with Authorizer.
	Grant Grant
	// Client identifies the program to authorization servers. Default: it registers itself.
	Client Identity
	// Scopes are requested in addition to the scopes that the server asks for in a challenge.
	// Without either, the scopes_supported of the server are requested. Default: none.
	Scopes []string
	// DPoP binds tokens to a key. Default: bearer tokens.
	DPoP *DPoPOptions
	// Fetcher fetches metadata and calls the authorization server. Default: oauth.NewFetcher(nil).
	Fetcher *oauth.Fetcher
	// Page is called with each login page before its user is asked. It returns a function that is
	// called at the end with the response, which contains secrets, or an error. Default: none.
	Page func(r *LoginRequest) (end func(response url.Values, err error))
	// WholeOrigin sends the token to every path of the server's origin. Default: to the path of the
	// endpoint and requests that the server's identifier covers. HTTP+SSE servers receive messages
	// at another path.
	WholeOrigin bool
	// InsecureHTTP allows http to other machines, so that tokens can be read on the network.
	// Default: only to this machine.
	InsecureHTTP bool
	// Logger receives failures that are not the error of a request. Default: slog.Default().
	Logger *slog.Logger
}

// A Transport authorizes the requests to an MCP server. It is an [http.RoundTripper] for the
// client of mcphttp.TransportOptions:
//
//	login := oauthclient.NewTransport(url, &oauthclient.TransportOptions{
//		Authorizer: oauthclient.NewBrowser(nil),
//	})
//	client := &http.Client{Transport: login}
//
// A request is sent with the current token, renewed if it expired. If the server refuses it or
// asks for more scopes, the Transport obtains other tokens and sends the request again. Requests
// that need a login at the same time share it, and processes that share a Store share renewals.
// While the user logs in, the time limits of the [mcp.Client] are suspended. Requests to other
// addresses, and requests with an Authorization header, are sent unchanged.
//
// A request that cannot be authorized fails with an [*AuthorizeError] and was not carried out.
// All methods are safe for concurrent use.
//
// Spec: basic/authorization, in all revisions that define it.
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
	page        func(r *LoginRequest) func(url.Values, error) // may be nil
	wholeOrigin bool
	log         *slog.Logger
	invalid     error // the error of every request; nil if endpoint and options are valid

	// accepted holds the tokens of the last request that the server did not refuse: noTokens for a
	// request without a token, nil before the first such request.
	accepted atomic.Pointer[TokenSet]

	mu                sync.Mutex                // guards the fields below
	loaded            bool                      // the store was read
	tokens            *TokenSet                 // may be nil; never modified
	record            *serverRecord             // nil before a discovery; never modified
	failures          map[string]*failedAttempt // recent failed logins, by failureKey
	metadataChallenge *oauth.Challenge          // the last challenge with resource_metadata
	flow, renewal     *flow                     // in progress; may be nil
	logouts           int                       // calls of Logout; results of older flows are not stored
}

// NewTransport returns an http.RoundTripper that adds access tokens to the requests to the MCP
// server at an endpoint such as https://example.com/mcp; see mcphttp.TransportOptions.Client. It
// sends no request yet; an invalid endpoint or option is the error of every request. opts may be
// nil: then a login is [ErrLoginRequired], and tokens are lost when the program ends.
func NewTransport(endpoint string, opts *TransportOptions) *Transport {
	o := *cmp.Or(opts, new(TransportOptions))
	t := &Transport{
		base: o.Base, fetcher: (*oauthfetch.Fetcher)(o.Fetcher), authorizer: o.Authorizer, grant: o.Grant,
		client: o.Client, scopes: o.Scopes, page: o.Page, wholeOrigin: o.WholeOrigin,
		failures: map[string]*failedAttempt{},
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
	t.store = &writeBackStore{Store: o.Store, unsaved: map[string]*unsavedValue{}}
	if t.grant == nil {
		t.grant = codeGrant{}
	}
	var noEndpoint, noProver error
	t.endpoint, noEndpoint = parseEndpoint(endpoint, o.InsecureHTTP)
	t.log = cmp.Or(o.Logger, slog.Default()).With("server", oauthfetch.ShownURL(t.endpoint))
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

// parseEndpoint parses the address of the server, which may be secret and is not in the errors.
func parseEndpoint(text string, insecure bool) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return &url.URL{}, errors.New("oauth: invalid address of the server: must be an http or https URL with a host")
	case u.Scheme == "http" && !insecure && !netx.IsLoopback(strings.ToLower(u.Hostname())):
		return u, errors.New("oauth: invalid address of the server: must be https, since tokens are sent there " +
			"(http is only for this machine)")
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	return u, nil
}

// CloseIdleConnections closes idle connections, for [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) covers(u *url.URL) bool {
	if !netx.SameOrigin(u, t.endpoint) {
		return false
	}
	if t.wholeOrigin || cmp.Or(u.EscapedPath(), "/") == cmp.Or(t.endpoint.EscapedPath(), "/") {
		return true
	}
	t.mu.Lock()
	record := t.record
	t.mu.Unlock()
	return record != nil && record.covers(u)
}

// RoundTrip sends a request with a token.
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

// An exchange is a request to the server, which may be sent several times.
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
		if used := cmp.Or(tokens, noTokens); n == nil && x.accepted.Load() != used {
			x.accepted.Store(used)
		}
		if n == nil || x.req.Method == http.MethodDelete || // the end of a session does not justify a login
			x.hasOtherReason(n) {
			return res, nil
		}
		n.renewed = source == fromRefresh && x.accepted.Load() != tokens
		drain(res)
		switch {
		case attempt > maxAttempts:
			err = errTooMany
		case n.kind == needToken && source == fromGrant:
			err = errStillRefused
			x.mu.Lock()
			x.rememberFailure(n, err) // another login would not help
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

// headerSession identifies the session of a request. Spec: basic/transports#session-management
// (2025-11-25)
const headerSession = "Mcp-Session-Id"

// noTokens stands for a request without a token.
var noTokens = new(TokenSet)

// hasOtherReason reports whether the server may have refused a request because it lost the session:
// it accepted the same token, or a request without a token, before, and does not report the token
// as invalid. The caller of the transport then opens a new session. If the server refuses the token
// there too, the request belongs to no session, and the token is replaced.
func (x *exchange) hasOtherReason(n *need) bool {
	return n.kind == needToken && x.accepted.Load() == cmp.Or(n.used, noTokens) &&
		x.req.Header.Get(headerSession) != "" &&
		(n.used == nil || n.challenge == nil || n.challenge.Params["error"] == "")
}

var (
	errTooMany      = errors.New("the server still refuses the request after two authorizations")
	errStillRefused = errors.New("the server refuses a token that its authorization server has just issued for it")
)

// sendProved sends the request, a second time if the server asks for a DPoP nonce.
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

// wantsNonce stores the DPoP nonce of a response. It reports whether the request was refused only
// because it lacked the nonce.
func wantsNonce(p *dpop.Prover, target *url.URL, res *http.Response) bool {
	if !p.LearnFromResource(target, res.Header) || res.StatusCode != http.StatusUnauthorized {
		return false
	}
	return slices.ContainsFunc(oauth.ParseChallenges(res.Header), func(c oauth.Challenge) bool {
		return c.Is(oauthwire.DPoP) && c.Params["error"] == oauthwire.UseDPoPNonce
	})
}

func (x *exchange) send(tokens *TokenSet) (*http.Response, error) {
	req := x.req.WithContext(x.req.Context())
	req.Header = x.req.Header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if x.sent > 0 && req.Body != nil && req.Body != http.NoBody {
		if req.GetBody == nil {
			return nil, x.failed(http.StatusUnauthorized,
				errors.New("the request cannot be sent again with a token: it has a body and no GetBody"))
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
		res.Request = x.req // without the token
	}
	return res, err
}

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

// drain reads the rest of a small response, so that its connection can be reused.
func drain(res *http.Response) {
	if res.ContentLength <= maxDrained {
		timer := time.AfterFunc(drainTimeout, func() { _ = res.Body.Close() }) // ends the read
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

// An AuthorizeError reports a request that was not carried out because it could not be authorized.
type AuthorizeError struct {
	Endpoint string // the MCP server, without a query
	Status   int    // HTTP status of the refusal: 401 or 403; 401 if the server was not asked
	Err      error  // the reason
}

// Error names the server and the reason.
func (e *AuthorizeError) Error() string {
	return fmt.Sprintf("oauth: authorize a request to %s: %v", e.Endpoint, strings.TrimPrefix(e.Err.Error(), "oauth: "))
}

// Unwrap returns Err.
func (e *AuthorizeError) Unwrap() error { return e.Err }

// HTTPStatus returns Status, for callers that look for the method with [errors.As].
func (e *AuthorizeError) HTTPStatus() int { return e.Status }

// DPoPOptions configures tokens that are bound to a key (DPoP), so that a stolen token is of no
// use. The zero value is right for programs that need not keep tokens after they end.
//
// Spec: RFC 9449; extension io.modelcontextprotocol/auth/dpop.
type DPoPOptions struct {
	// Key signs the proofs: an *ecdsa.PrivateKey, an ed25519.PrivateKey, an *rsa.PrivateKey of at
	// least 2048 bits, or a hardware key with such a public key. It signs for every request, from
	// several goroutines at once. Tokens in a Store can be used by another process only if that has
	// the same key. Default: a new P-256 key.
	Key crypto.Signer
	// InsecureAllowBearer accepts a token that is not bound to the key if the authorization server
	// issues no other. Default: such a token is an error.
	InsecureAllowBearer bool
}
